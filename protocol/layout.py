"""Where the parts of records lie in their batches, found for all records of all batches at once.

First the batches are opened one by one: CRC, decompression, limits. Then the positions of all records are
found (`length_chains`), and each number of the records' layout is read with one vectorised call. Nothing is
copied out: `decode` makes columns of what is found here, a broker only looks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.protocol import batch, compression, length_chains, varints
from eoslog.protocol.batch import BatchHeader, Buffer, CorruptBatch, PayloadTooLarge
from eoslog.protocol.varints import Bytes, Ints

Bools = npt.NDArray[np.bool_]

SMALLEST_RECORD = 7  # bytes: length, attributes, two deltas, two lengths, count of headers
MOST_BYTES = 2**31 - 1  # of batches in one piece: what 32-bit offsets reach
_MAX_OFFSET = 2**63 - 1


class Sections(NamedTuple):
    """The uncompressed records sections of the batches that have records, all in `data`."""

    data: Bytes
    begins: Ints
    ends: Ints
    headers: list[BatchHeader]


class Span(NamedTuple):
    """Ranges of bytes in the payload, one row per record or header. A negative length is null."""

    begins: Ints
    ends: Ints
    lengths: Ints


# --- the pass over batches


def open_sections(
    buf: Buffer, batches: Sequence[tuple[int, BatchHeader]], check_crc: bool, max_payload: int
) -> Sections:
    """Check each batch as a whole, and put the uncompressed sections one after another into one buffer.

    Raises CorruptBatch; PayloadTooLarge above `max_payload` bytes; ValueError for a control batch.
    """
    for pos, header in batches:
        _check(buf, pos, header, check_crc)
    full = [(pos, header) for pos, header in batches if header.count]
    if any(header.codec for _, header in full):
        return _decompress(memoryview(buf), full, max_payload)
    begins = np.array([pos + batch.HEADER_SIZE for pos, _ in full], np.int64)
    ends = np.array([pos + header.size for pos, header in full], np.int64)
    if len(buf) > MOST_BYTES:
        raise PayloadTooLarge(f"{len(buf)} bytes of batches in one piece: decode fewer at a time")
    return Sections(np.frombuffer(buf, np.uint8), begins, ends, [header for _, header in full])


def _check(buf: Buffer, pos: int, header: BatchHeader, check_crc: bool) -> None:
    if header.is_control:
        raise ValueError(f"batch of offset {header.base_offset} is a control batch: nothing to decode in it")
    if header.base_offset < 0 or header.last_offset > _MAX_OFFSET:
        raise corrupt(header, "no such offsets")
    if header.size > len(buf) - pos:
        raise corrupt(header, f"cut: {header.size} bytes are needed, {len(buf) - pos} are there")
    if check_crc and not batch.crc_ok(buf, pos, header):
        raise corrupt(header, "its bytes do not match its CRC")
    if not header.count and header.size > batch.HEADER_SIZE:
        raise corrupt(header, f"{header.size - batch.HEADER_SIZE} bytes of records where none should be")


def _decompress(buf: memoryview, batches: Sequence[tuple[int, BatchHeader]], max_payload: int) -> Sections:
    sections: list[Buffer] = []
    left = max_payload
    for pos, header in batches:
        section: Buffer = buf[pos + batch.HEADER_SIZE : pos + header.size]
        if header.codec:
            section = uncompressed(section, header, left, max_payload)
        left -= len(section)
        if left < 0:
            raise _too_much(header, max_payload)
        sections.append(section)
    sizes = np.array([len(section) for section in sections], np.int64)
    ends = np.cumsum(sizes)
    data = sections[0] if len(sections) == 1 else b"".join(sections)
    return Sections(np.frombuffer(data, np.uint8), ends - sizes, ends, [header for _, header in batches])


def uncompressed(section: Buffer, header: BatchHeader, left: int, max_payload: int) -> Buffer:
    """The records of a compressed batch, of at most `left` bytes. Raises CorruptBatch, PayloadTooLarge."""
    most = min(left, compression.MAX_UNCOMPRESSED)
    try:
        return compression.decompress(header.codec, section, most)
    except compression.CompressionError as error:
        if isinstance(error, compression.OutputTooLarge) and most < compression.MAX_UNCOMPRESSED:
            raise _too_much(header, max_payload) from error
        raise corrupt(header, str(error)) from error


def _too_much(header: BatchHeader, max_payload: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"more than {max_payload} bytes of records when decompressed, at offset {header.base_offset}: decode "
        "fewer batches at a time"
    )


def corrupt(header: BatchHeader, what: str) -> CorruptBatch:
    """The error for a batch, which names its offsets."""
    offsets = f"{header.base_offset} to {header.last_offset}"
    return CorruptBatch(f"batch of offsets {offsets}: {what}", header.base_offset)


# --- the pass over records


class Batches:
    """Facts about the batches as columns, and the batch of each record."""

    def __init__(self, sections: Sections) -> None:
        self.headers = sections.headers
        self.counts = self.column("count")
        for index in np.flatnonzero(self.counts * SMALLEST_RECORD > sections.ends - sections.begins)[:1]:
            raise corrupt(self.headers[index], f"{self.counts[index]} records do not fit into so few bytes")
        self.first_rows = np.cumsum(self.counts) - self.counts

    def column(self, name: str) -> Ints:
        """A header's field, by its name, for each batch."""
        return np.array([getattr(header, name) for header in self.headers], np.int64)

    def spread(self, name: str) -> Ints:
        """For each record, the fact about its batch."""
        return self.column(name).repeat(self.counts)

    def corrupt(self, row: int, what: str) -> CorruptBatch:
        """The error for a record."""
        index = int(np.searchsorted(self.first_rows, row, "right")) - 1
        return corrupt(self.headers[index], f"record {row - self.first_rows[index]} of it has {what}")

    def refuse(self, wrong: Bools, what: str) -> None:
        """Raise CorruptBatch where a record is wrong."""
        if wrong.any():
            raise self.corrupt(int(wrong.argmax()), what)


class Layout(NamedTuple):
    """The parts of all records of all batches, one row a record. Its headers end where the record ends."""

    batches: Batches
    data: Bytes
    time_deltas: Ints  # ms, to the batch's base timestamp
    offset_deltas: Ints
    key: Span
    value: Span
    header_counts: Ints
    headers_at: Ints
    stops: Ints

    def offsets(self) -> Ints:
        """The records' offsets. Raises CorruptBatch unless they rise within those of their batch."""
        batches, deltas = self.batches, self.offset_deltas
        firsts, lasts = batches.first_rows, batches.first_rows + batches.counts - 1
        falling = np.zeros(len(deltas), np.bool_)
        falling[1:] = deltas[1:] <= deltas[:-1]
        falling[firsts] = deltas[firsts] < 0
        falling[lasts] |= deltas[lasts] > batches.column("last_offset_delta")
        batches.refuse(falling, "offsets that do not rise within the batch's")
        return batches.spread("base_offset") + deltas

    def times(self) -> Ints:
        """The records' times, ms: the batch's where the broker has set it."""
        batches = self.batches
        times = batches.spread("base_timestamp") + self.time_deltas
        by_broker = batches.column("log_append_time")
        if not by_broker.any():
            return times
        return np.where(by_broker.repeat(batches.counts), batches.spread("max_timestamp"), times)

    def headers(self) -> tuple[Span, Span]:
        """Keys and values of all headers, in the order of the records. Raises CorruptBatch."""
        counts, batches = self.header_counts, self.batches
        rows = np.flatnonzero(counts)
        if not len(rows):
            nothing = np.empty(0, np.int64)
            return Span(nothing, nothing, nothing), Span(nothing, nothing, nothing)
        begins, ends, counts = self.headers_at[rows], self.stops[rows], counts[rows]
        try:  # key, value, key, value ...
            found = length_chains.elements(self.data, begins, ends, 2 * counts)
        except length_chains.BrokenChain as error:
            raise batches.corrupt(int(rows[error.index]), "headers that do not fill their record") from error
        keys, values = (Span(found.at[i::2], found.stops[i::2], found.lengths[i::2]) for i in (0, 1))
        wrong = (keys.lengths < 0) | (values.lengths < -1)
        if wrong.any():
            row = int(rows.repeat(counts)[wrong.argmax()])
            raise batches.corrupt(row, "a header without a key or of negative length")
        return keys, values


def lay_out(sections: Sections) -> Layout:
    """Find the parts of all records. Raises CorruptBatch if records do not fill their batch."""
    data, batches = sections.data, Batches(sections)
    try:
        records = length_chains.elements(data, sections.begins, sections.ends, batches.counts)
    except length_chains.BrokenChain as error:
        raise corrupt(batches.headers[error.index], "its records do not fill it") from error
    # After the length: attributes (no bit in use), time delta, offset delta, key, value, number of headers.
    times, at = varints.read(data, records.at + 1, varints.LONG_BYTES)
    deltas, at = varints.read(data, at)
    key, at = _span(data, at)
    value, at = _span(data, at)
    raw_counts, at = varints.read(data, at)
    counts = varints.unzigzag(raw_counts)
    wrong = _misfits(counts, records.stops - at) | (key.lengths < -1) | (value.lengths < -1)
    batches.refuse(wrong, "lengths that do not add up")
    own = varints.unzigzag(times), varints.unzigzag(deltas)
    return Layout(batches, data, *own, key, value, counts, at, records.stops)


def _span(data: Bytes, at: Ints) -> tuple[Span, Ints]:
    """Read a length at each position; also return the ends of the bytes of that length."""
    raw, begins = varints.read(data, at)
    lengths = varints.unzigzag(raw)
    ends = begins + np.maximum(lengths, 0)
    return Span(begins, ends, lengths), ends


def _misfits(counts: Ints, left: Ints) -> Bools:
    """For each record, whether its number of headers contradicts the bytes left for them."""
    if not counts.any():
        wrong: Bools = left != 0
    else:
        wrong = (counts < 0) | (left < 2 * counts) | ((counts == 0) & (left != 0))
    return wrong
