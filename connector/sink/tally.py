"""The rows that a task was given, in two numbers: their count and a checksum.

They are compared when lost rows are replayed (commit/replay.py), and when a token is written again
(commit/write.py). The checksum is a sum over rows, so their order does not matter: a shuffle may change it.
It is only made for on.lost.transaction=replay and write.token, and costs about a microsecond a row.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.connector.sink.routing import column_of
from eoslog.protocol.partitioner import murmur2_partition

Hashes = npt.NDArray[np.uint64]

_ALL_BITS = 2**31 - 1
_FACTOR = 0x9E3779B97F4A7C15  # odd and large: what is added before counts for all bits after
_BYTES = ("key", "value", "topic")


class Tally:
    """Rows and, if wanted, their checksum (below 2**32) so far; None: not wanted."""

    def __init__(self, *, checksum: bool) -> None:
        self.rows = 0
        self.checksum = 0 if checksum else None

    def add(self, rows: pa.RecordBatch) -> None:
        """Count a batch of rows in."""
        self.rows += len(rows)
        if self.checksum is not None and len(rows):
            self.checksum = (self.checksum + int((_hashes(rows) >> np.uint64(32)).sum())) % 2**32


def _hashes(rows: pa.RecordBatch) -> Hashes:
    """One number for each row, of all that is written of it."""
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
    """A hash of each row's bytes; a number that no hash is for null."""
    if column is None:
        return np.full(count, 2**64 - 1, np.uint64)
    return murmur2_partition(column, _ALL_BITS).astype(np.int64).view(np.uint64)


def _of_headers(column: pa.Array) -> Hashes:
    """A sum over each row's headers; null is as good as none."""
    items = column.flatten()
    each = np.zeros(len(items), np.uint64)
    for field in range(2):
        each = _mixed(each, _bytes(items.field(field), len(items)))
    sums = np.concatenate(([np.uint64(0)], np.cumsum(each, dtype=np.uint64)))
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = np.cumsum(counts)
    total: Hashes = sums[ends] - sums[ends - counts]
    return total
