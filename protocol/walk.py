"""Walks the records of one batch as a reader does, to see that all of them can be read, and makes nothing.

Most producers' batches have records of one shape: keys equally long, values too, no headers. These are seen
as the rows of a table, and whole columns are compared at once, which costs a few microseconds whatever their
number. Every other batch is laid out by `layout`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.protocol import compression
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatch
from eoslog.protocol.layout import lay_out, open_sections
from eoslog.protocol.plain_records import write_varint
from eoslog.protocol.varints import INT_BYTES, LONG_BYTES, Bytes, Ints, Raw, unzigzag

NO_TIME = -1
"""The time of a record that has none."""

MOST_ALIKE = 20_000
"""Records of one shape that are walked within a millisecond."""

_Table = npt.NDArray[np.uint8]
_KEPT = 1 << 13  # rows of the columns that are kept for the next batch
_WRAP = 1 << 64


class Walked(NamedTuple):
    """What the records of a batch say. Times in ms: the base timestamp and the records' own deltas."""

    earliest: int  # of the records that have a time; NO_TIME if none has
    latest: int  # of all records; NO_TIME if none is later
    keyless: bool  # whether a record has no key


def walk(batch: memoryview, header: BatchHeader, most: int) -> Walked:
    """Walk all records of the one `batch`, of at most `most` bytes when decompressed.

    Their number must be the header's, at least one, and their offset deltas must count up without a gap. The
    CRC is not checked.
    Raises CorruptBatch where a reader could not go on, PayloadTooLarge.
    """
    if header.codec == compression.CODECS["lz4"]:
        try:
            compression.check_lz4(batch[HEADER_SIZE:])
        except compression.CompressionError as error:
            raise CorruptBatch(str(error), header.base_offset) from error
    sections = open_sections(batch, [(0, header)], False, most)
    found = _alike(sections.data[int(sections.begins[0]) : int(sections.ends[0])], header)
    if found is not None:
        return found
    records = lay_out(sections)
    records.headers()
    strays = records.offset_deltas != np.arange(header.count)
    records.batches.refuse(strays, "another offset than its place in the batch")
    times = records.time_deltas + header.base_timestamp
    return _walked(times, bool((records.key.lengths < 0).any()))


def walk_alike(batch: memoryview, header: BatchHeader) -> Walked | None:
    """Walk a batch that is not compressed, if all its records are of one shape; else None.

    Takes 50 microseconds for a batch of a megabyte in a thousand records.
    """
    if header.codec or header.count > MOST_ALIKE:
        return None
    return _alike(np.frombuffer(batch, np.uint8)[HEADER_SIZE:], header)


def keyless_rows(batch: memoryview, header: BatchHeader, most: int) -> list[int]:
    """The numbers of the records without a key, in a batch that can be walked."""
    found = lay_out(open_sections(batch, [(0, header)], False, most))
    rows: list[int] = np.flatnonzero(found.key.lengths < 0).tolist()
    return rows


def times(batch: memoryview, header: BatchHeader, most: int) -> Ints:
    """The times of the records, ms, in a batch that can be walked."""
    found = lay_out(open_sections(batch, [(0, header)], False, most))
    return found.time_deltas + header.base_timestamp


def _walked(times: Ints, keyless: bool) -> Walked:
    earliest, latest = int(times.min()), int(times.max())
    if earliest == NO_TIME != latest:
        earliest = int(times[times != NO_TIME].min())
    return Walked(earliest, max(latest, NO_TIME), keyless)


# --- records of one shape


class _Shape(NamedTuple):
    """The first record, as a pattern of all. Sizes in bytes."""

    attributes: int
    time: bytes  # the varint of its time delta
    delta: int
    key: bytes  # the varint of the key's length
    key_size: int
    value: bytes  # the varint of the value's length
    value_size: int
    keyless: bool

    @property
    def behind(self) -> int:
        """The bytes of a record behind its number."""
        return len(self.key) + self.key_size + len(self.value) + self.value_size + 1


def _shape(section: memoryview) -> _Shape | None:
    """The shape of the first record. None if that has headers, or is not whole."""
    try:
        length, at = _number(section, 0)
        stop = at + length
        delta, number_at = _number(section, at + 1)
        key_size, key_at = _number(section, number_at + 1)
        if section[number_at] or key_size < -1:
            return None
        value_at = key_at + max(key_size, 0)
        value_size, begin = _number(section, value_at)
        end = begin + max(value_size, 0)
        if value_size < -1 or end + 1 != stop or section[end]:
            return None
    except IndexError:
        return None
    if max(key_at - number_at - 1, begin - value_at) > INT_BYTES or number_at - at >= LONG_BYTES:
        return None
    time = section[at + 1 : number_at].tobytes()
    key, value = section[number_at + 1 : key_at].tobytes(), section[value_at:begin].tobytes()
    return _Shape(
        section[at], time, delta, key, max(key_size, 0), value, max(value_size, 0), key_size < 0
    )  # fmt: skip


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """The varint at a position, and the position after it. Raises IndexError at the end of the data."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw, bits = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        raw |= (byte & 0x7F) << bits
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + 1
        bits += 7
        if bits > 63:
            raise IndexError(at)


def _alike(data: Bytes, header: BatchHeader) -> Walked | None:
    """What the records say, if all are like the first one but for bytes, times and numbers; else None."""
    shape = _shape(data.data)
    if shape is None:
        return None
    spans = [_span(header, shape.delta, shape.delta)]
    at = 0
    for first, last, size in _runs(header.count):
        body = 1 + len(shape.time) + size + shape.behind
        begin = write_varint(body) + bytes((shape.attributes,))
        rows, width = last - first, len(begin) - 1 + body
        if at + rows * width > len(data):
            return None
        table = data[at : at + rows * width].reshape(rows, width)
        if not _fits(table, begin, shape, first, last, size):
            return None
        found = _time_span(table[:, len(begin) : len(begin) + len(shape.time)], shape, header)
        if found is None:
            return None
        spans.append(found)
        at += rows * width
    if at != len(data):
        return None
    earliest, latest = min(span[0] for span in spans), max(span[1] for span in spans)
    if earliest <= NO_TIME < latest:
        return None  # some records may have no time: they are looked at one by one
    return Walked(earliest, max(latest, NO_TIME), shape.keyless)


def _runs(count: int) -> Iterator[tuple[int, int, int]]:
    """First and last number (not included), and bytes of the number, of records whose numbers are as long."""
    first, size = 0, 1
    while first < count:
        last = min(1 << 7 * size - 1, count)
        yield first, last, size
        first, size = last, size + 1


def _fits(table: _Table, begin: bytes, shape: _Shape, first: int, last: int, size: int) -> bool:
    """Whether the columns before, between and after the bytes of time, key and value are as they must be."""
    rows = last - first
    number_at = len(begin) + len(shape.time)
    key_at = number_at + size + len(shape.key)
    if table[:, : len(begin)].tobytes() != begin * rows:
        return False
    if table[:, number_at:key_at].tobytes() != _numbered(first, last, size, shape.key):
        return False
    value_at = key_at + shape.key_size
    if table[:, value_at : value_at + len(shape.value)].tobytes() != shape.value * rows:
        return False
    return not any(table[:, -1].tobytes())


def _numbered(first: int, last: int, size: int, key: bytes) -> bytes:
    """The columns of numbers and of the lengths of keys, row by row."""
    if last <= _KEPT:
        whole = _kept(first, size, key)
        return whole[: (last - first) * (size + len(key))]
    return _columns(first, last, size, key)


@lru_cache(64)
def _kept(first: int, size: int, key: bytes) -> bytes:
    return _columns(first, 1 << 7 * size - 1, size, key)


def _columns(first: int, last: int, size: int, key: bytes) -> bytes:
    out = np.empty((last - first, size + len(key)), np.uint8)
    raw = np.arange(first, last, dtype=np.int64) << 1
    for step in range(size):
        more = 0x80 if step < size - 1 else 0
        out[:, step] = raw >> 7 * step & 0x7F | more
    out[:, size:] = np.frombuffer(key, np.uint8)
    return out.tobytes()


def _time_span(column: _Table, shape: _Shape, header: BatchHeader) -> tuple[int, int] | None:
    """The earliest and the latest time; None if a delta takes fewer or more bytes than that of the first."""
    if column.tobytes() == shape.time * len(column):
        return _span(header, shape.delta, shape.delta)
    raw: Raw = np.zeros(len(column), np.uint64)
    last = len(shape.time) - 1
    for step in range(last + 1):
        byte = column[:, step]
        if (byte.max() if step == last else 0xFF - byte.min()) > 0x7F:
            return None
        raw |= (byte & 0x7F).astype(np.uint64) << np.uint64(7 * step)
    deltas = unzigzag(raw)
    return _span(header, int(deltas.min()), int(deltas.max()))


def _span(header: BatchHeader, least: int, largest: int) -> tuple[int, int]:
    """The times of these deltas. Such sums are 64-bit numbers to a reader; those that wrap are left to it."""
    earliest, latest = header.base_timestamp + least, header.base_timestamp + largest
    if not -_WRAP // 2 <= earliest <= latest < _WRAP // 2:
        return NO_TIME, NO_TIME + 1  # looked at one by one
    return earliest, latest
