"""Record batches -> Arrow columns, for all records of all batches at once.

First the batches are opened one by one: CRC, decompression, limits. Then the positions of all records are
found (`length_chains`), and each number of the records' layout is read with one vectorised call. Keys and
values are not cut out in Python: the whole payload is viewed as one Arrow column whose offsets are the starts
and ends of keys and values, and Arrow takes the elements needed, which copies them. The result shares no
memory with the input.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eoslog.protocol import batch, columns, compression, length_chains, varints
from eoslog.protocol.batch import BatchHeader, Buffer, CorruptBatch
from eoslog.protocol.varints import Bytes, Ints, Raw

Bools = npt.NDArray[np.bool_]

SMALLEST_RECORD = 7  # bytes: length, attributes, two deltas, two lengths, count of headers
MAX_PAYLOAD = 1024 * 1024 * 1024  # uncompressed bytes in one call; Arrow's 32-bit offsets end at 2 GiB
_MAX_OFFSET = 2**63 - 1

HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Columns of equal length, one row per record, in the order of the batches. Times are ms since 1970."""

    key: pa.Array  # binary
    value: pa.Array  # binary
    offset: pa.Array  # int64
    timestamp: pa.Array  # int64
    timestamp_type: pa.Array  # int32: 0 if the producer set the time, 1 if the broker did
    headers: pa.Array | None  # `HEADERS`, an empty list for a record without any; None if not asked for

    def __len__(self) -> int:
        return len(self.offset)


class PayloadTooLarge(ValueError):
    """More uncompressed bytes in one call than `MAX_PAYLOAD`: pass fewer batches at a time."""


class _Sections(NamedTuple):
    """The uncompressed records sections of the batches that have records, all in `data`."""

    data: Bytes
    begins: Ints
    ends: Ints
    headers: list[BatchHeader]


class _Span(NamedTuple):
    """Ranges of bytes in the payload, one row per record or header. A negative length is null."""

    begins: Ints
    ends: Ints
    lengths: Ints


def decode_batches(
    buf: Buffer,
    batches: Sequence[tuple[int, BatchHeader]] | None = None,
    *,
    headers: bool = False,
    check_crc: bool = True,
    max_payload: int | None = None,
) -> DecodedRecords:
    """Decode the records of `batches`, given as (position in `buf`, header), or of all in `buf`.

    The offset of a record is the batch's base plus the record's delta, so batches with gaps, which compaction
    leaves, come out right. Without `headers` the records' headers are skipped unread. `max_payload`: the most
    bytes that compressed batches may decompress to, if less than MAX_PAYLOAD.

    Raises CorruptBatch, with the batch's base offset, for a wrong CRC, damaged compression, records that do
    not fill their batch, or offsets that do not rise or are outside of the batch; PayloadTooLarge; and
    ValueError for a control batch, which has no records of an application.
    """
    chosen = list(batch.iter_headers(buf)) if batches is None else batches
    sections = _open(buf, chosen, check_crc, MAX_PAYLOAD if max_payload is None else max_payload)
    if not sections.headers:
        return _nothing(headers)
    return _decode(sections, headers)


def _nothing(headers: bool) -> DecodedRecords:
    empty, numbers = pa.array([], pa.binary()), pa.array([], pa.int64())
    lists = pa.array([], HEADERS) if headers else None
    return DecodedRecords(empty, empty, numbers, numbers, pa.array([], pa.int32()), lists)


# --- the pass over batches


def _open(
    buf: Buffer, batches: Sequence[tuple[int, BatchHeader]], check_crc: bool, max_payload: int
) -> _Sections:
    """Check each batch as a whole, and put the uncompressed sections one after another into one buffer."""
    for pos, header in batches:
        _check(buf, pos, header, check_crc)
    full = [(pos, header) for pos, header in batches if header.count]
    if any(header.codec for _, header in full):
        return _decompress(memoryview(buf), full, max_payload)
    begins = np.array([pos + batch.HEADER_SIZE for pos, _ in full], np.int64)
    ends = np.array([pos + header.size for pos, header in full], np.int64)
    if len(buf) > columns.ARROW_32:
        raise PayloadTooLarge(f"{len(buf)} bytes of batches in one piece: decode fewer at a time")
    return _Sections(np.frombuffer(buf, np.uint8), begins, ends, [header for _, header in full])


def _check(buf: Buffer, pos: int, header: BatchHeader, check_crc: bool) -> None:
    if header.is_control:
        raise ValueError(f"batch of offset {header.base_offset} is a control batch: nothing to decode in it")
    if header.base_offset < 0 or header.last_offset > _MAX_OFFSET:
        raise _corrupt(header, "no such offsets")
    if header.size > len(buf) - pos:
        raise _corrupt(header, f"cut: {header.size} bytes are needed, {len(buf) - pos} are there")
    if check_crc and not batch.crc_ok(buf, pos, header):
        raise _corrupt(header, "its bytes do not match its CRC")
    if not header.count and header.size > batch.HEADER_SIZE:
        raise _corrupt(header, f"{header.size - batch.HEADER_SIZE} bytes of records where none should be")


def _decompress(buf: memoryview, batches: Sequence[tuple[int, BatchHeader]], max_payload: int) -> _Sections:
    sections: list[Buffer] = []
    left = max_payload
    for pos, header in batches:
        section: Buffer = buf[pos + batch.HEADER_SIZE : pos + header.size]
        if header.codec:
            section = _uncompressed(section, header, left, max_payload)
        left -= len(section)
        if left < 0:
            raise _too_much(header, max_payload)
        sections.append(section)
    sizes = np.array([len(section) for section in sections], np.int64)
    ends = np.cumsum(sizes)
    data = sections[0] if len(sections) == 1 else b"".join(sections)
    return _Sections(np.frombuffer(data, np.uint8), ends - sizes, ends, [header for _, header in batches])


def _uncompressed(section: Buffer, header: BatchHeader, left: int, max_payload: int) -> bytes:
    most = min(left, compression.MAX_UNCOMPRESSED)
    try:
        return compression.decompress(header.codec, section, most)
    except compression.CompressionError as error:
        if isinstance(error, compression.OutputTooLarge) and most < compression.MAX_UNCOMPRESSED:
            raise _too_much(header, max_payload) from error
        raise _corrupt(header, str(error)) from error


def _too_much(header: BatchHeader, max_payload: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"more than {max_payload} bytes of records when decompressed, at offset {header.base_offset}: decode "
        "fewer batches at a time"
    )


def _corrupt(header: BatchHeader, what: str) -> CorruptBatch:
    offsets = f"{header.base_offset} to {header.last_offset}"
    return CorruptBatch(f"batch of offsets {offsets}: {what}", header.base_offset)


# --- the pass over records


class _Batches:
    """Facts about the batches as columns, and the batch of each record."""

    def __init__(self, sections: _Sections) -> None:
        self.headers = sections.headers
        self.counts = self.column("count")
        for index in np.flatnonzero(self.counts * SMALLEST_RECORD > sections.ends - sections.begins)[:1]:
            raise _corrupt(self.headers[index], f"{self.counts[index]} records do not fit into so few bytes")
        self.first_rows = np.cumsum(self.counts) - self.counts

    def column(self, name: str) -> Ints:
        return np.array([getattr(header, name) for header in self.headers], np.int64)

    def spread(self, name: str) -> Ints:
        """For each record, the fact about its batch."""
        return self.column(name).repeat(self.counts)

    def corrupt(self, row: int, what: str) -> CorruptBatch:
        """The error for a record."""
        index = int(np.searchsorted(self.first_rows, row, "right")) - 1
        return _corrupt(self.headers[index], f"record {row - self.first_rows[index]} of it has {what}")

    def refuse(self, wrong: Bools, what: str) -> None:
        """Raise CorruptBatch where a record is wrong."""
        if wrong.any():
            raise self.corrupt(int(wrong.argmax()), what)


def _decode(sections: _Sections, want_headers: bool) -> DecodedRecords:
    data, batches = sections.data, _Batches(sections)
    try:
        records = length_chains.elements(data, sections.begins, sections.ends, batches.counts)
    except length_chains.BrokenChain as error:
        raise _corrupt(batches.headers[error.index], "its records do not fill it") from error
    # After the length: attributes (no bit in use), time delta, offset delta, key, value, number of headers.
    times, at = varints.read(data, records.at + 1, varints.LONG_BYTES)
    deltas, at = varints.read(data, at)
    key, at = _span(data, at)
    value, at = _span(data, at)
    raw_counts, at = varints.read(data, at)
    counts = varints.unzigzag(raw_counts)
    wrong = _misfits(counts, records.stops - at) | (key.lengths < -1) | (value.lengths < -1)
    batches.refuse(wrong, "lengths that do not add up")
    offsets = _offsets(batches, varints.unzigzag(deltas))
    lists = _headers(data, batches, at, records.stops, counts) if want_headers else None
    keys, values = _take(data, key, value)
    kinds = pa.array(batches.spread("log_append_time").astype(np.int32))
    return DecodedRecords(keys, values, pa.array(offsets), pa.array(_times(batches, times)), kinds, lists)


def _span(data: Bytes, at: Ints) -> tuple[_Span, Ints]:
    """Read a length at each position; also return the ends of the bytes of that length."""
    raw, begins = varints.read(data, at)
    lengths = varints.unzigzag(raw)
    ends = begins + np.maximum(lengths, 0)
    return _Span(begins, ends, lengths), ends


def _misfits(counts: Ints, left: Ints) -> Bools:
    """For each record, whether its number of headers contradicts the bytes left for them."""
    if not counts.any():
        wrong: Bools = left != 0
    else:
        wrong = (counts < 0) | (left < 2 * counts) | ((counts == 0) & (left != 0))
    return wrong


def _offsets(batches: _Batches, deltas: Ints) -> Ints:
    firsts, lasts = batches.first_rows, batches.first_rows + batches.counts - 1
    falling = np.zeros(len(deltas), np.bool_)
    falling[1:] = deltas[1:] <= deltas[:-1]
    falling[firsts] = deltas[firsts] < 0
    falling[lasts] |= deltas[lasts] > batches.column("last_offset_delta")
    batches.refuse(falling, "offsets that do not rise within the batch's")
    return batches.spread("base_offset") + deltas


def _times(batches: _Batches, raw_deltas: Raw) -> Ints:
    times = batches.spread("base_timestamp") + varints.unzigzag(raw_deltas)
    by_broker = batches.column("log_append_time")
    if not by_broker.any():
        return times
    return np.where(by_broker.repeat(batches.counts), batches.spread("max_timestamp"), times)


def _take(data: Bytes, first: _Span, second: _Span) -> tuple[pa.Array, pa.Array]:
    """Copy two spans of each row out of `data`, nulls where lengths are negative.

    One Arrow column over all of `data` has as its offsets the starts and ends of the spans, in the order of
    the bytes. So of each four elements the first and the third are needed, and Arrow takes these.
    """
    rows = len(first.begins)
    edges = np.empty((rows, 4), np.int32)
    for place, edge in enumerate((first.begins, first.ends, second.begins, second.ends)):
        edges[:, place] = edge
    column = pa.Array.from_buffers(pa.binary(), 4 * rows - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    indices = np.arange(0, 4 * rows, 4)
    return _pick(column, indices, first.lengths), _pick(column, indices + 2, second.lengths)


def _pick(column: pa.Array, indices: Ints, lengths: Ints) -> pa.Array:
    null = lengths < 0
    if null.all():
        return pa.nulls(len(indices), pa.binary())
    return column.take(pa.array(indices, mask=null) if null.any() else pa.array(indices))


def _headers(data: Bytes, batches: _Batches, begins: Ints, ends: Ints, counts: Ints) -> pa.Array:
    """The headers of all records as lists; they are between `begins` and `ends`."""
    rows = np.flatnonzero(counts)
    offsets: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    items = _header_items(data, batches, rows, begins[rows], ends[rows], counts[rows])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), items, type=HEADERS)


def _header_items(
    data: Bytes, batches: _Batches, rows: Ints, begins: Ints, ends: Ints, counts: Ints
) -> pa.Array:
    if not len(rows):
        return pa.array([], HEADERS.value_type)
    try:
        found = length_chains.elements(data, begins, ends, 2 * counts)  # key, value, key, value ...
    except length_chains.BrokenChain as error:
        raise batches.corrupt(int(rows[error.index]), "headers that do not fill their record") from error
    keys, values = (_Span(found.at[i::2], found.stops[i::2], found.lengths[i::2]) for i in (0, 1))
    wrong = (keys.lengths < 0) | (values.lengths < -1)
    if wrong.any():
        row = int(rows.repeat(counts)[wrong.argmax()])
        raise batches.corrupt(row, "a header without a key or of negative length")
    key, value = _take(data, keys, values)
    return pa.StructArray.from_arrays([_text(key), value], fields=list(HEADERS.value_type))


def _text(keys: pa.Array) -> pa.Array:
    """Header keys as strings. Clients may put any bytes there: like the Java client, this replaces invalid
    ones.
    """
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        distinct = keys.dictionary_encode()
        texts = [key.decode(errors="replace") for key in distinct.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(distinct.indices)
