"""Walks the records of one batch as a reader does, to see that all of them can be read, and makes nothing.

Most records are plain: without headers, and with no number above three bytes. A few of them are looked at one
by one. Many that are equally long are the rows of a table, whose columns are compared. For all others, where
they begin is found first. Then their heads (length, time, number, length of the key) are columns of 64-bit
words. That takes some microseconds and 10 to 100 ns a record. What is not plain is for `layout` to judge.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.protocol import compression, length_chains, varints
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from eoslog.protocol.layout import SMALLEST_RECORD, Layout, Sections, lay_out, uncompressed
from eoslog.protocol.varints import INT_BYTES, Bytes, Ints, unzigzag

NO_TIME = -1
"""The time of a record that has none."""

QUICK_BYTES, QUICK_COUNT = 1 << 20, 20_000
"""Plain records that are walked within a millisecond."""

_FEW = 24  # records that are sooner looked at one by one
_ROWS, _BLOCK = 4_096, 1 << 16  # records, and bytes, at a time: more need memory from the system each time
_FEW_JUMPS, _BYTES_A_JUMP = 100, 1_000  # what a look at all bytes costs, in jumps from record to record
_HEAD = 16  # bytes of a head: more than its numbers take, but for very large ones
_LAST = -(-_HEAD // SMALLEST_RECORD) - 1  # records at the end whose heads may reach beyond it
_RUNS = (range(1 << 6), range(1 << 6, 1 << 13), range(1 << 13, 1 << 20))  # numbers of one, two, three bytes
_INT64 = range(-(1 << 63), 1 << 63)


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
    section = _section(batch, header, most)
    found = _plain(section, header, quickly=False)
    if found is not None:
        return found
    records = _laid_out(section, header)
    records.headers()
    strays = records.offset_deltas != np.arange(header.count)
    records.batches.refuse(strays, "another offset than its place in the batch")
    times = records.time_deltas + header.base_timestamp
    earliest, latest = int(times.min()), int(times.max())
    if earliest == NO_TIME != latest:
        earliest = int(times[times != NO_TIME].min())
    return Walked(earliest, max(latest, NO_TIME), bool((records.key.lengths < 0).any()))


def walk_quickly(batch: memoryview, header: BatchHeader) -> Walked | None:
    """Walk a batch that is not compressed, if all its records are plain; None if that takes long.

    Takes 0.2 ms for a batch of a megabyte in a thousand records.
    """
    if header.codec or header.count > QUICK_COUNT or len(batch) > QUICK_BYTES + HEADER_SIZE:
        return None
    return _plain(batch[HEADER_SIZE:], header, quickly=True)


def keyless_rows(batch: memoryview, header: BatchHeader, most: int) -> list[int]:
    """The numbers of the records without a key, in a batch that can be walked."""
    found = _laid_out(_section(batch, header, most), header)
    rows: list[int] = np.flatnonzero(found.key.lengths < 0).tolist()
    return rows


def times(batch: memoryview, header: BatchHeader, most: int) -> Ints:
    """The times of the records, ms, in a batch that can be walked."""
    return _laid_out(_section(batch, header, most), header).time_deltas + header.base_timestamp


def _section(batch: memoryview, header: BatchHeader, most: int) -> Buffer:
    section = batch[HEADER_SIZE : header.size]
    return uncompressed(section, header, most, most) if header.codec else section


def _laid_out(section: Buffer, header: BatchHeader) -> Layout:
    begin, end = np.zeros(1, np.int64), np.array([len(section)], np.int64)
    return lay_out(Sections(np.frombuffer(section, np.uint8), begin, end, [header]))


# --- plain records


_Words = npt.NDArray[Any]
"""Raw numbers, and what holds them: np.uint64."""


class _NotPlainError(Exception):
    """Records that `layout` must judge."""


def _plain(section: Buffer, header: BatchHeader, quickly: bool) -> Walked | None:
    """What the records say if all are plain, else None. `quickly`: also None if finding them takes long."""
    count, base = header.count, header.base_timestamp
    if not 0 < count * SMALLEST_RECORD <= len(section):
        return None
    try:
        if count <= _FEW:
            least, largest, keyless = _one_by_one(bytes(section), count)
        else:
            least, largest, keyless = _at_once(section, count, quickly)
    except (_NotPlainError, IndexError):
        return None
    earliest, latest = base + least, base + largest
    if earliest <= NO_TIME < latest or earliest not in _INT64 or latest not in _INT64:
        return None  # some records may have no time, or sums that wrap
    return Walked(earliest, max(latest, NO_TIME), keyless)


_Said = tuple[int, int, bool]  # least and largest time delta, whether a record has no key


def _one_by_one(section: bytes, count: int) -> _Said:
    """Look at a few records. Raises _NotPlainError; IndexError where a number is not whole."""
    at, keyless, deltas = 0, False, []
    for number in range(count):
        length, begin = _number(section, at)
        delta, at = _number(section, begin + 1)
        found, at = _number(section, at)
        key, at = _number(section, at)
        value, at = _number(section, at + key if key > 0 else at)
        at += value + 1 if value > 0 else 1
        if found != number or key < -1 or value < -1 or at != begin + length or section[at - 1]:
            raise _NotPlainError
        deltas.append(delta)
        keyless = keyless or key < 0
    if at != len(section):
        raise _NotPlainError
    return min(deltas), max(deltas), keyless


def _number(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it. Raises IndexError if it is not whole, or long."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    raw = byte & 0x7F
    for step in range(1, INT_BYTES):
        byte = data[at + step]
        raw |= (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + step + 1
    raise IndexError(at)


def _at_once(section: Buffer, count: int, quickly: bool) -> _Said:
    """Look at many records at once. Raises _NotPlainError; IndexError where they lead out of the section."""
    data = np.frombuffer(section, np.uint8)
    try:
        found = _equally_long(data, count)
    except (_NotPlainError, IndexError):
        starts = np.empty(count + 1, np.int64)
        starts[:-1], starts[-1] = _starts(data, count, quickly), len(data)
        found = [_look(data, starts, rows) for rows in _parts(range(count))]
    least, largest, keyless = zip(*found, strict=True)
    return min(least), max(largest), any(keyless)


def _parts(rows: range) -> list[range]:
    return [rows[first : first + _ROWS] for first in range(0, len(rows), _ROWS)]


def _equally_long(data: Bytes, count: int) -> list[_Said]:
    """Look at records that are equally long if their numbers are. Raises _NotPlainError, IndexError."""
    at, found = 0, []
    for size, numbers in enumerate(_RUNS, 1):
        for rows in _parts(numbers[: max(count - numbers.start, 0)]):
            at, said = _look_alike(data, at, rows, size)
            found.append(said)
    if at != len(data):
        raise _NotPlainError
    return found


def _look_alike(data: Bytes, at: int, rows: range, size: int) -> tuple[int, _Said]:
    """Look at records that differ in keys, values and times alone, and in numbers of `size` bytes.

    The first one, at `at`, says where the parts of all are. Returns the end of the last one too. Raises
    _NotPlainError, IndexError.
    """
    view, count = data.data, len(rows)
    length, begin = _number(view, at)
    _, number_at = _number(view, begin + 1)
    _, key_at = _number(view, number_at)
    key, key_end = _number(view, key_at)
    value_at = key_end + max(key, 0)
    value, value_end = _number(view, value_at)
    last = value_end + max(value, 0)
    if last + 1 != begin + length or view[last] or min(key, value) < -1:
        raise _NotPlainError
    width = last + 1 - at
    end = at + count * width
    if end > len(data):
        raise _NotPlainError
    columns = data[at:end].reshape(count, width).T
    for places in (range(at, begin), range(key_at, key_end), range(value_at, value_end), (last,)):
        for place in places:
            _refuse(columns[place - at] != view[place])
    wanted = _encoded(rows)[0].view(np.uint8).reshape(count, 8).T
    for step in range(size):
        _refuse(columns[number_at - at + step] != wanted[step])
    times = columns[begin + 1 - at : number_at - at]
    _refuse(times[-1] & 0x80)
    raw = times[0] & np.uint64(0x7F)
    for step, column in enumerate(times[1:], 1):
        _refuse(times[step - 1] < 0x80)
        raw |= (column & np.uint64(0x7F)) << 7 * step
    return end, (*_span(raw), key < 0)


def _look(data: Bytes, starts: Ints, rows: range) -> _Said:
    """Look at the records of these numbers. Raises _NotPlainError, IndexError."""
    at, nexts = starts[rows.start : rows.stop], starts[rows.start + 1 : rows.stop + 1]
    head, rest = _heads(data, at)
    lengths, bits = _numbers(head)
    begins = at + _bytes(bits)
    _refuse(lengths.view(np.int64) != (nexts - begins) << 1)
    # Behind the length are the attributes, of which no bit is in use.
    head = head >> bits + 8 | rest << 56 - bits
    times, time_bits = _numbers(head)
    head = head >> time_bits
    wanted, mask, number_bits = _encoded(rows)
    _refuse((head ^ wanted) & mask)
    keys, key_bits = _numbers(head >> number_bits)
    bits = number_bits + (time_bits + key_bits + 8)
    if rows.stop > _RUNS[1].stop and int(bits.max()) > 72:  # the word does not hold all of it
        raise _NotPlainError
    keyless = _nulls(keys)
    values, ends = varints.read(data, begins + _bytes(bits) + (keys >> 1).view(np.int64))
    _nulls(values)
    ends += (values >> 1).view(np.int64)
    _refuse(nexts - ends != 1)
    _refuse(data.take(ends))  # their numbers of headers
    return *_span(times), keyless


def _span(times: _Words) -> tuple[int, int]:
    deltas = unzigzag(times)
    return int(np.minimum.reduce(deltas)), int(np.maximum.reduce(deltas))


def _refuse(wrong: npt.NDArray[np.bool_] | _Words | Bytes) -> None:
    """Raise _NotPlainError unless all of it is false, or zero. `any` would take four times as long."""
    if np.count_nonzero(wrong):
        raise _NotPlainError


def _bytes(bits: _Words | int) -> Ints | int:
    return bits >> 3 if isinstance(bits, int) else (bits >> 3).view(np.int64)


def _nulls(lengths: _Words) -> bool:
    """Whether there are nulls among these lengths. Raises _NotPlainError for lengths below -1."""
    largest = int(np.maximum.reduce(lengths & -(lengths & 1)))  # of those of negative numbers, which are odd
    if largest > 1:
        raise _NotPlainError
    return largest == 1


def _starts(data: Bytes, count: int, quickly: bool) -> Ints:
    """Where records begin, if they are plain: whoever uses it must see that each leads to the next."""
    if count > _FEW_JUMPS + len(data) // _BYTES_A_JUMP:
        found = _between_zeros(data, count)
        if len(found) == count:
            return found
        if quickly:
            raise _NotPlainError
    return length_chains.starts_of(data.data, 0, count)


def _between_zeros(data: Bytes, count: int) -> Ints:
    """Where records may begin: behind a byte that says "no headers", one or two before the attributes.

    Keys and values may have such bytes too. Whatever leads to no other place, or is led to by none, is none.
    """
    found = [np.zeros(1, np.int64)]
    for first in range(0, len(data), _BLOCK):
        zero = data[first : first + _BLOCK + 3] == 0
        places = np.flatnonzero(zero[:-3] & (zero[2:-1] | zero[3:])) + (first + 1)
        found.append(places[data[places] != 0])
    starts = np.concatenate(found)
    for _ in range(3):
        if len(starts) <= count:
            break
        raw, at = varints.read(data, starts)
        nexts = np.minimum(at + (raw >> 1).view(np.int64), len(data))
        known, led = np.zeros((2, len(data) + 1), np.bool_)
        known[starts] = known[-1] = led[0] = led[nexts] = True
        starts = starts[known[nexts] & led[starts]]
    return starts


def _heads(data: Bytes, at: Ints) -> tuple[_Words, _Words]:
    """The first 16 bytes of each record as two words, the lowest byte first."""
    inside = at if at[-1] + _HEAD <= len(data) else at[:-_LAST]
    heads = np.zeros(len(at), f"V{_HEAD}")
    heads[: len(inside)] = np.ndarray((len(data) - _HEAD + 1,), heads.dtype, data, strides=(1,))[inside]
    for row in range(len(inside), len(at)):
        heads[row] = data[at[row] : at[row] + _HEAD].tobytes().ljust(_HEAD, b"\0")
    words = heads.view("<u8")
    return words[::2], words[1::2]


def _numbers(words: _Words) -> tuple[_Words, _Words | int]:
    """The raw number with which each word begins, and its bits. Raises _NotPlainError above three bytes."""
    some, every = int(np.bitwise_or.reduce(words)), int(np.bitwise_and.reduce(words))
    if not some & 0x80:
        return words & 0x7F, 8
    if every & 0x80 and not some & 0x8000:
        return words & 0x7F | words >> 1 & 0x3F80, 16
    two = words >> 7 & 1
    if not some & 0x8000:
        return words & 0x7F | (words >> 1 & 0x3F80) * two, (two << 3) + 8
    three = two & words >> 15
    if (three & words >> 23).any():
        raise _NotPlainError
    raw = words & 0x7F | (words >> 1 & 0x3F80) * two | (words >> 2 & 0x1FC000) * three
    return raw, (two + three << 3) + 8


def _encoded(rows: range) -> tuple[_Words, _Words, _Words]:
    """These numbers as records have them, masks of their bytes, and their bits."""
    if rows.stop > QUICK_COUNT:
        return _encode(rows)
    words, mask, bits = _kept()
    return words[rows.start : rows.stop], mask[rows.start : rows.stop], bits[rows.start : rows.stop]


@lru_cache(1)
def _kept() -> tuple[_Words, _Words, _Words]:
    return _encode(range(QUICK_COUNT))


def _encode(rows: range) -> tuple[_Words, _Words, _Words]:
    raw: _Words = np.arange(rows.start, rows.stop, dtype=np.uint64) << 1
    sizes = varints.sizes(raw).astype(np.uint64)
    words = np.zeros(len(raw), "<u8")
    for step in range(3):  # longer numbers are not equal to any of these, then
        words |= (raw >> 7 * step & 0x7F | (sizes > step + 1) * np.uint64(0x80)) << 8 * step
    return words, (np.uint64(1) << (sizes << 3)) - np.uint64(1), sizes << 3
