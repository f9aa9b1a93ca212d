"""Gives Spark the rows of a small micro-batch together with its plan, so that no task has to read them.

PySpark has a path for sources that read everything in the driver: when it asks a stream's process for a
batch's partitions, it takes the rows from the same process, and one task gets them from the JVM. It takes
this path if the reader is a `_SimpleStreamReaderWrapper`, and calls `getCache` for the rows. Our reader is
such a wrapper between these two calls only; otherwise it keeps its limits and `reportLatestOffset`.

The class has no public name. Where PySpark does not have it, tasks read (`is_offered`).
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = "_rows_to_hand_over"


@cache
def _simple() -> Any:
    """PySpark's class; None: this PySpark has none."""
    try:
        found = import_module("pyspark.sql.datasource_internal")._SimpleStreamReaderWrapper
    except (ImportError, AttributeError):
        return None
    return found if hasattr(found, "getCache") else None


def is_offered() -> bool:
    """Whether this PySpark takes rows with the plan."""
    return _simple() is not None


def hand_over(reader: Any, rows: "Sequence[pa.RecordBatch]") -> None:
    """The next that is asked of the reader is this batch's rows. Its `partitions` returns one partition."""
    setattr(reader, _ROWS, rows)
    reader.__class__ = _handing_over(type(reader))


def take_back(reader: Any) -> Any:
    """The rows that nobody has asked for; None: there are none. The reader is what it was."""
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
