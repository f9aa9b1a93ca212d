"""Reads small micro-batches in the stream's own process, and gives them to Spark with the plan.

For a few rows a task costs more than reading them: it has to start, and needs a Python process. The rows are
the same that tasks would read. Who reads a batch depends only on its offsets and bytes, and may change when
it runs again. If anything unexpected happens, tasks read it.

Batches are read ahead: as soon as a batch's end is known, while Spark writes it to its checkpoint. One thread
does all the reading. Its rows are used only for exactly the ranges for which they were read.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.client.wire.cluster import close_shared, shared_cluster
from eoslog.connector.offsets import plan
from eoslog.connector.options.source_options import SourceOptions
from eoslog.connector.spark.versions import rows_with_plan
from eoslog.errors import SchemaError

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


_HEAVIER, _FADES = 2.0, 0.9
"""A batch that was too large counts as having twice the allowed bytes, and each further batch fades the
estimate by this factor: if all batches are too large, one in seven is tried."""


Rows = list["pa.RecordBatch"]


class _Ahead(NamedTuple):
    """Ranges that are being read ahead, and their rows. None: tasks have to read them."""

    ranges: Sequence[plan.Range]
    rows: "Future[Rows | None]"


class SmallBatches:
    """The small batches of one query. It remembers how large records were, so that after a batch that was too
    large it does not try the next one at once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._weight = 0.0  # estimated bytes for each offset
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy starts empty: rows stay in the process that read them."""
        return SmallBatches, (self._options,)

    def begin(self, ranges: Sequence[plan.Range]) -> None:
        """Read these ranges ahead if they are a small batch."""
        self._ahead = self._submit(ranges) if self._may_be_small(ranges) else None

    def read(self, ranges: Sequence[plan.Range]) -> Rows | None:
        """All rows of the ranges. None: tasks have to read them."""
        if not self._may_be_small(ranges):
            return None
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead.ranges != ranges:
            ahead = self._submit(ranges)
        return ahead.rows.result()

    def close(self) -> None:
        """Close the thread's connections and let it end."""
        if self._thread is not None:
            self._thread.submit(close_shared, self._options.client)
            self._thread.shutdown(wait=False)
            self._thread = self._ahead = None

    def _submit(self, ranges: Sequence[plan.Range]) -> _Ahead:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "eoslog-read-ahead")
        return _Ahead(ranges, self._thread.submit(self._read, ranges))

    def _may_be_small(self, ranges: Sequence[plan.Range]) -> bool:
        return 0 < sum(one.size for one in ranges) <= self._most() and is_offered()

    def _read(self, ranges: Sequence[plan.Range]) -> Rows | None:
        size, options = sum(one.size for one in ranges), self._options
        self._weight *= _FADES
        if size * self._weight > options.small_bytes:
            return None
        from eoslog.client.records.fetch_small import fetch_small
        from eoslog.connector.source import read_range  # it loads the codec, which only small batches need

        found = fetch_small(
            shared_cluster(options.client),
            ranges,
            committed=options.committed,
            headers=options.headers,
            max_bytes=options.small_bytes,
        )
        if found is None:
            self._weight = _HEAVIER * options.small_bytes / size
            return None
        try:
            return [
                batch
                for one in found
                for records in one.records
                for batch in read_range.batches(
                    records, one.wanted.topic, one.wanted.partition, options.headers
                )
            ]
        except SchemaError:  # the task that reads it reports which record it is
            return None

    def _most(self) -> int:
        """The most offsets of a small batch. 0 if the user sets the number of tasks, or reads from nearby
        replicas (client.rack), because small batches are read from the leaders."""
        options = self._options
        asked = options.min_partitions is not None or options.max_records is not None
        return 0 if asked or options.client.client_rack else options.small_offsets
