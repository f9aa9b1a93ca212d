"""Walks the records of one batch as a reader does, to see that all of them can be read, and makes nothing.

Most producers' batches have records of one shape: keys equally long, values too, no headers. These are seen
as the rows of a table, and whole columns are compared at once, which costs a few microseconds whatever their
number. Every other batch is laid out by `layout`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.protocol import compression
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, CorruptBatch
from eoslog.protocol.layout import lay_out, open_sections
from eoslog.protocol.varints import INT_BYTES, LONG_BYTES, Bytes, Ints, Raw, size_of, unzigzag

NO_TIME = -1
"""The time of a record that has none."""

MOST_ALIKE = 20_000
"""Records of one shape that are walked within a millisecond."""

_Table = npt.NDArray[np.uint8]
_KEPT = 1 << 13  # rows of the columns that are kept for the next batch
_WORTH = 8  # rows of one shape, below which a batch is better laid out
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
    """One record, as a pattern of those after it. Sizes in bytes."""

    begin: bytes  # the varint of its length, and its attributes
    time: bytes  # the varint of its time delta
    delta: int
    number_size: int
    key: bytes  # the varint of the key's length
    key_size: int
    value: bytes  # the varint of the value's length
    width: int  # the whole record
    keyless: bool


def _shape(section: memoryview, start: int, number: int) -> _Shape | None:
    """The shape of the record at `start`. None if it has headers or another number, or is not whole."""
    try:
        length, at = _number(section, start)
        delta, number_at = _number(section, at + 1)
        found, key_len_at = _number(section, number_at)
        key_size, key_at = _number(section, key_len_at)
        if found != number or key_len_at - number_at != size_of(number << 1) or key_size < -1:
            return None
        value_at = key_at + max(key_size, 0)
        value_size, begin = _number(section, value_at)
        end = begin + max(value_size, 0)
        if value_size < -1 or end + 1 != at + length or section[end]:
            return None
    except IndexError:
        return None
    if max(at - start, key_len_at - number_at, key_at - key_len_at, begin - value_at) > INT_BYTES:
        return None
    if number_at - at > LONG_BYTES:  # nine bytes behind the attributes: a tenth may reach beyond 64 bits
        return None
    time = section[at + 1 : number_at].tobytes()
    key, value = section[key_len_at:key_at].tobytes(), section[value_at:begin].tobytes()
    return _Shape(
        section[start : at + 1].tobytes(), time, delta, key_len_at - number_at, key, max(key_size, 0), value,
        end + 1 - start, key_size < 0,
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
    """What the records say, if long runs of them differ in bytes, times and numbers alone; else None.

    A new run begins where a number or a time delta takes a byte more.
    """
    view, count = data.data, header.count
    at, number, spans, keyless = 0, 0, [], False
    while number < count:
        shape = _shape(view, at, number)
        if shape is None:
            return None
        last = min(1 << 7 * shape.number_size - 1, count)
        rows = min(last - number, (len(data) - at) // shape.width)
        behind = at + shape.width
        if rows > 1 and view[behind : behind + len(shape.begin)] != shape.begin:
            return None
        table = data[at : at + rows * shape.width].reshape(rows, shape.width)
        fit = _fitting(table, shape, number)
        if fit < min(_WORTH, last - number):
            return None
        times_at = len(shape.begin)
        spans.append(_time_span(table[:fit, times_at : times_at + len(shape.time)], shape, header))
        at, number, keyless = at + fit * shape.width, number + fit, keyless or shape.keyless
    if at != len(data):
        return None
    earliest, latest = min(span[0] for span in spans), max(span[1] for span in spans)
    if earliest <= NO_TIME < latest:
        return None  # some records may have no time: they are looked at one by one
    return Walked(earliest, max(latest, NO_TIME), keyless)


def _fitting(table: _Table, shape: _Shape, first: int) -> int:
    """How many rows, from the first on, are as the shape says: all that is not a byte of key or value."""
    rows, begin, size = len(table), shape.begin, shape.number_size
    number_at = len(begin) + len(shape.time)
    key_at = number_at + size + len(shape.key)
    value_at = key_at + shape.key_size
    columns = (
        (table[:, : len(begin)], begin * rows),
        (table[:, number_at:key_at], _numbered(first, first + rows, size, shape.key)),
        (table[:, value_at : value_at + len(shape.value)], shape.value * rows),
        (table[:, -1], bytes(rows)),
    )
    time = table[:, len(begin) : number_at]
    if all(column.tobytes() == wanted for column, wanted in columns) and _are_numbers(time).all():
        return rows
    fits = _are_numbers(time)
    for column, wanted in columns:
        same = column.reshape(rows, -1) == np.frombuffer(wanted, np.uint8).reshape(rows, -1)
        fits &= same.all(axis=1)
    return rows if fits.all() else int(fits.argmin())


def _are_numbers(time: _Table) -> npt.NDArray[np.bool_]:
    """For each row, whether it is one varint that ends with the row."""
    ends = time[:, -1] < 0x80
    return ends & (time[:, :-1] >= 0x80).all(axis=1) if time.shape[1] > 1 else ends


def _numbered(first: int, last: int, size: int, key: bytes) -> bytes:
    """The columns of numbers and of the lengths of keys, row by row."""
    width = size + len(key)
    if last > _KEPT:
        return _columns(first, last, size, key)
    begin = 0 if size == 1 else 1 << 7 * (size - 1) - 1
    return _kept(begin, size, key)[(first - begin) * width : (last - begin) * width]


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


def _time_span(column: _Table, shape: _Shape, header: BatchHeader) -> tuple[int, int]:
    """The earliest and the latest time of rows whose time deltas have as many bytes."""
    if column.tobytes() == shape.time * len(column):
        return _span(header, shape.delta, shape.delta)
    raw: Raw = np.zeros(len(column), np.uint64)
    for step in range(len(shape.time)):
        raw |= (column[:, step] & 0x7F).astype(np.uint64) << np.uint64(7 * step)
    deltas = unzigzag(raw)
    return _span(header, int(deltas.min()), int(deltas.max()))


def _span(header: BatchHeader, least: int, largest: int) -> tuple[int, int]:
    """The times of these deltas. Such sums are 64-bit numbers to a reader; those that wrap are left to it."""
    earliest, latest = header.base_timestamp + least, header.base_timestamp + largest
    if not -_WRAP // 2 <= earliest <= latest < _WRAP // 2:
        return NO_TIME, NO_TIME + 1  # looked at one by one
    return earliest, latest
