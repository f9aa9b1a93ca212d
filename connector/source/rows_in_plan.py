"""Gives Spark the rows of a small micro-batch together with its plan, so that no task has to read them.

PySpark has a path for sources that read everything in the driver: when it asks a stream's process for a
batch's partitions, it takes the rows from the same process, and one task gets them from the JVM. It takes
this path if the reader is a `_SimpleStreamReaderWrapper`, and calls `getCache` for the rows. Our reader is
such a wrapper only between these two calls, so that otherwise its limits and `reportLatestOffset` work.

The class is not public. If PySpark does not have it, tasks read the rows (`is_offered`).
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from eoslog.connector.spark.versions import rows_with_plan

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = "_rows_to_hand_over"


_simple = cache(rows_with_plan)
"""PySpark's class. None: this PySpark does not have it."""


def is_offered() -> bool:
    """Whether this PySpark takes rows together with the plan."""
    return _simple() is not None


def hand_over(reader: Any, rows: "Sequence[pa.RecordBatch]") -> None:
    """Make the reader return these rows when PySpark next asks for the batch. Its `partitions` has to return
    one partition."""
    setattr(reader, _ROWS, rows)
    reader.__class__ = _handing_over(type(reader))


def take_back(reader: Any) -> Any:
    """The rows that PySpark has not taken. None: there are none. The reader is no longer a wrapper."""
    if _ROWS not in reader.__dict__:
        return None
    reader.__class__ = type(reader).__bases__[0]
    return reader.__dict__.pop(_ROWS)


def _get_cache(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> "Iterator[pa.RecordBatch]":
    return iter(take_back(reader))


_classes: dict[type, Any] = {}


def _handing_over(of: type) -> Any:
    if of not in _classes:
        own = {"getCache": _get_cache, "__module__": of.__module__}
        _classes[of] = type(of.__name__, (of, _simple()), own)
    return _classes[of]
