"""Records one at a time, in plain Python: for the coordinators' own small topics and for control batches.

The data path uses `records` instead, which takes columns.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from eoslog.protocol import batch, compression, sequence

Buffer = batch.Buffer

_INT_BYTES, _LONG_BYTES = 5, 10  # the most bytes of a varint of 32 and of 64 bits


class Record(NamedTuple):
    """One record; `timestamp` in ms since the epoch."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def encode_records(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = batch.NO_PRODUCER_ID,
    producer_epoch: int = batch.NO_PRODUCER_EPOCH,
    base_sequence: int = sequence.NO_SEQUENCE,
    transactional: bool = False,
) -> bytes:
    """Make one whole uncompressed batch of (key, value) pairs, all at `timestamp`, without headers."""
    if not records:
        raise ValueError("a batch needs at least one record")
    section = b"".join(_encode(index, key, value) for index, (key, value) in enumerate(records))
    parts = batch.build_batch(
        [section], len(records), base_timestamp=timestamp, max_timestamp=timestamp, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence, transactional=transactional,
    )  # fmt: skip
    return b"".join(parts)


def iter_records(
    buf: Buffer, pos: int, header: batch.BatchHeader, max_size: int = compression.MAX_UNCOMPRESSED
) -> Iterator[Record]:
    """Yield the records of the batch at `pos`, of at most `max_size` bytes when decompressed.

    Raises CorruptBatch for a wrong CRC or structure, and for more bytes than that.
    """
    if not batch.crc_ok(buf, pos, header):
        raise batch.CorruptBatch(
            f"batch of offset {header.base_offset} at byte {pos} does not match its CRC", header.base_offset
        )
    try:
        body = memoryview(buf)[pos + batch.HEADER_SIZE : pos + header.size]
        reader = _Reader(
            bytes(compression.decompress(header.codec, body, max_size) if header.codec else body)
        )
        for _ in range(header.count):
            yield reader.record(header)
        reader.expect_end(len(reader.data))
    except (_Malformed, compression.CompressionError) as error:
        raise batch.CorruptBatch(
            f"batch of offset {header.base_offset} at byte {pos}: {error}", header.base_offset
        ) from error


def write_varint(value: int) -> bytes:
    """Write a number as Kafka's varint: zigzag, then seven bits a byte, lowest first."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position after it. Raises ValueError if there is none."""
    reader = _Reader(data)
    reader.pos = at
    return reader.varint(_LONG_BYTES), reader.pos


def _nullable(data: bytes | None) -> bytes:
    return write_varint(-1) if data is None else write_varint(len(data)) + data


def _encode(offset_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    # attributes and time delta are 0, and so is the count of headers
    body = b"\x00\x00" + write_varint(offset_delta) + _nullable(key) + _nullable(value) + b"\x00"
    return write_varint(len(body)) + body


class _Malformed(ValueError):
    pass


class _Reader:
    """Reads one records section from start to end."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.pos = 0

    def record(self, header: batch.BatchHeader) -> Record:
        length = self.varint()
        end = self.pos + length
        self.pos += 1  # attributes: no bit of them is in use
        timestamp = header.base_timestamp + self.varint(_LONG_BYTES)
        offset = header.base_offset + self.varint()
        key, value = self.nullable(), self.nullable()
        headers = [self.header() for _ in range(self.bounded(self.varint()))]
        self.expect_end(end)
        if header.log_append_time:
            timestamp = header.max_timestamp
        return Record(offset, timestamp, key, value, headers)

    def header(self) -> tuple[str, bytes | None]:
        # Clients may put any bytes into a key; like the Java client, this replaces invalid ones.
        key = self.take(self.varint()).decode(errors="replace")
        return key, self.nullable()

    def varint(self, most: int = _INT_BYTES) -> int:
        if self.pos < len(self.data) and (byte := self.data[self.pos]) < 0x80:  # almost always one byte
            self.pos += 1
            return (byte >> 1) ^ -(byte & 1)
        raw = 0
        for index in range(most):
            byte = self.take(1)[0]
            raw |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                raw &= 2**64 - 1
                return (raw >> 1) ^ -(raw & 1)
        raise _Malformed(f"number without an end at byte {self.pos} of its records")

    def nullable(self) -> bytes | None:
        length = self.varint()
        return None if length == -1 else self.take(length)

    def take(self, length: int) -> bytes:
        end = self.pos + self.bounded(length)
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def bounded(self, length: int) -> int:
        if not 0 <= length <= len(self.data) - self.pos:
            raise _Malformed(
                f"length {length} at byte {self.pos} of its records, where "
                f"{len(self.data) - self.pos} bytes are left"
            )
        return length

    def expect_end(self, end: int) -> None:
        if self.pos != end:
            raise _Malformed(f"a record ends at byte {self.pos} of its records instead of at {end}")
