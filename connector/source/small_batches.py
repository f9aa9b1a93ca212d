"""Reads small micro-batches in the stream's own process; hand_over.py gives them to Spark.

For a few rows a task costs more than the reading: its start, and a Python process. The rows are those that
tasks would read. Which way a batch goes depends on its offsets and bytes alone, and may change when it runs
again. Anything unexpected is left to the tasks.

Batches are read ahead: as soon as a batch's end is known, while Spark writes it to its checkpoint. One thread
does all the reading; its rows are used only for exactly the ranges that they were read for.
"""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.connector.client.wire.shared import close_shared, shared_cluster
from eoslog.connector.errors import SchemaError
from eoslog.connector.offsets import plan
from eoslog.connector.options.both import SourceOptions
from eoslog.connector.source.hand_over import is_offered

if TYPE_CHECKING:
    import pyarrow as pa

_HEAVIER, _FADES = 2.0, 0.9
"""How much heavier than is known a batch that was too heavy is taken to be, and what is left of that from one
batch to the next: of batches that are all too heavy one in seven is tried."""


Rows = list["pa.RecordBatch"]


class _Ahead(NamedTuple):
    """What is being read, or has been; None: tasks are to read it."""

    ranges: Sequence[plan.Range]
    rows: "Future[Rows | None]"


class SmallBatches:
    """Of one query. Remembers how heavy its records were: who has read in vain does not try at once again."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._weight = 0.0  # bytes of an offset, at least
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: _Ahead | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy starts empty: rows stay in the process that has read them."""
        return SmallBatches, (self._options,)

    def begin(self, ranges: Sequence[plan.Range]) -> None:
        """Read these ahead, if they are a small batch."""
        self._ahead = self._submit(ranges) if self._may_be_small(ranges) else None

    def read(self, ranges: Sequence[plan.Range]) -> Rows | None:
        """All rows of the ranges; None: tasks are to read them."""
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
        from eoslog.connector.client.records.fetch_small import fetch_small
        from eoslog.connector.source import rows  # and the codec: for those who have a small batch

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
                for batch in rows.batches(records, one.wanted.topic, one.wanted.partition, options.headers)
            ]
        except SchemaError:  # the task that reads it says which record it is
            return None

    def _most(self) -> int:
        """Offsets of a small batch. A user who asks for tasks gets them; and who reads at replicas near by
        does not go to the leaders."""
        options = self._options
        asked = options.min_partitions is not None or options.max_records is not None
        return 0 if asked or options.client.client_rack else options.small_offsets
