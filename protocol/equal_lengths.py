"""Records of equal length as the rows of a table: one layout, into which whole columns are copied.

If all keys have one length, all values too, and the records have one time and no headers, records differ only
in their bytes and in their number within the batch, whose varint grows by a byte at 64, at 8,192 and so on.
That saves the lengths, offsets and joins that other rows need. The bytes are the same.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.protocol.plain_records import write_varint
from eoslog.protocol.varints import Bytes, Ints

Table = npt.NDArray[np.uint8]
"""A column: rows with the same number of bytes, in two dimensions."""


class Column(NamedTuple):
    """The key or value of all rows. `prefix` is the varint of its length; `table` has no bytes for nulls."""

    prefix: bytes
    table: Table


class _Run(NamedTuple):
    """Records with one layout: from `begin` up to, not including, `end` in a batch."""

    begin: int
    end: int
    head: Bytes  # length, attributes, time delta
    number_size: int
    width: int

    @property
    def rows(self) -> int:
        return self.end - self.begin


def column_of(data: Bytes | None, lengths: Ints) -> Column | None:
    """A column of rows that are all equally long, or all null (`data` None, lengths -1); None for others.

    `data`: the bytes of all rows, one after another. `lengths`: of at least one row.
    """
    length = int(lengths[0])
    if (lengths != length).any():
        return None
    bytes_of = np.empty(0, np.uint8) if data is None else data
    return Column(write_varint(length), bytes_of.reshape(len(lengths), max(length, 0)))


def section(key: Column, value: Column, begin: int, end: int) -> memoryview:
    """The records section of a batch of the rows from `begin` to `end` (not included)."""
    key, value = (Column(column.prefix, column.table[begin:end]) for column in (key, value))
    behind = 1 + sum(len(column.prefix) + column.table.shape[1] for column in (key, value))
    runs = list(_runs(end - begin, behind))
    out = np.frombuffer(pa.allocate_buffer(sum(run.rows * run.width for run in runs)), np.uint8)
    at = 0
    for run in runs:
        rows = out[at : at + run.rows * run.width].reshape(run.rows, run.width)
        _fill(rows, run, key, value)
        at += rows.size
    return memoryview(out.data)


def _runs(count: int, behind: int) -> Iterator[_Run]:
    """`behind`: the bytes of a record after its number, including the number of headers."""
    first, size = 0, 1
    while first < count:
        last, body = min(1 << 7 * size - 1, count), 2 + size + behind
        head = write_varint(body) + b"\x00\x00"
        yield _Run(first, last, np.frombuffer(head, np.uint8), size, len(head) - 2 + body)
        first, size = last, size + 1


def _fill(rows: Table, run: _Run, key: Column, value: Column) -> None:
    at = _put(rows, 0, run.head)
    raw = np.arange(run.begin, run.end, dtype=np.int64) << 1
    for step in range(run.number_size):
        more = 0x80 if step < run.number_size - 1 else 0
        at = _put(rows, at, (raw >> 7 * step & 0x7F | more).astype(np.uint8)[:, np.newaxis])
    for column in (key, value):
        at = _put(rows, at, np.frombuffer(column.prefix, np.uint8))
        at = _put(rows, at, column.table[run.begin : run.end])
    rows[:, at] = 0


def _put(rows: Table, at: int, what: Bytes | Table) -> int:
    """Write bytes into each row, or the same into all, from column `at` on. Returns the column after them."""
    behind: int = at + what.shape[-1]
    rows[:, at:behind] = what
    return behind
