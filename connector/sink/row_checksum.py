"""Counts the rows that a task was given, and adds up their checksum.

Both are compared when lost rows are replayed (commit/replay.py), when a token is written again
(commit/token_write.py), and when a decided batch comes again whose sources' ends do not say what was read.
The checksum is a sum over rows, so their order does not matter: a shuffle may change it. It is computed only
where it is compared, and takes about a microsecond for each row.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.connector.sink.routing import column_of
from eoslog.protocol.partitioner import murmur2_partition

Hashes = npt.NDArray[np.uint64]

_ALL_BITS = 2**31 - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd and large: each bit of the input affects all higher bits
_BYTES = ("key", "value", "topic")


class Tally:
    """The number of rows so far and, if wanted, their checksum (below 2**32) and the topics that they name.
    None: not wanted. `dead`: how many of them the writer has put into the dead letter topic."""

    def __init__(self, *, checksum: bool, topics: bool = False) -> None:
        self.rows = self.dead = 0
        self.checksum = 0 if checksum else None
        self.topics: set[str] | None = set() if topics else None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add a batch of rows."""
        self.rows += len(rows)
        if self.topics is not None and (named := column_of(rows, "topic")) is not None:
            self.topics.update(filter(None, pc.unique(named).to_pylist()))
        if self.checksum is not None and len(rows):
            self.checksum = (self.checksum + int((_hashes(rows) >> np.uint64(32)).sum())) % 2**32


def _hashes(rows: pa.RecordBatch) -> Hashes:
    """One hash for each row, over all of its written columns."""
    found = np.zeros(len(rows), np.uint64)
    for name in _BYTES:
        found = _mixed(found, _bytes(column_of(rows, name), len(rows)))
    partition = column_of(rows, "partition")
    if partition is not None:
        numbers = pc.fill_null(partition, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        found = _mixed(found, numbers.view(np.uint64))
    headers = column_of(rows, "headers")
    return found if headers is None else _mixed(found, _of_headers(headers))


def _mixed(one: Hashes, other: Hashes) -> Hashes:
    mixed: Hashes = (one ^ other) * np.uint64(_FACTOR)
    return mixed ^ (mixed >> np.uint64(29))


def _bytes(column: pa.Array | None, count: int) -> Hashes:
    """A hash of each row's bytes. Null gets a number that is no hash."""
    if column is None:
        return np.full(count, 2**64 - 1, np.uint64)
    return murmur2_partition(column, _ALL_BITS).astype(np.int64).view(np.uint64)


def _of_headers(column: pa.Array) -> Hashes:
    """A sum of hashes over each row's headers; null counts as no headers."""
    items = column.flatten()
    each = np.zeros(len(items), np.uint64)
    for field in range(2):
        each = _mixed(each, _bytes(items.field(field), len(items)))
    sums = np.concatenate(([np.uint64(0)], np.cumsum(each, dtype=np.uint64)))
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    total: Hashes = sums[ends] - sums[ends - counts]
    return total
