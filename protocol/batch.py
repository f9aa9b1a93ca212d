"""Record batch v2: the 61-byte header and its CRC. Bodies are passed through untouched.

Layout (KIP-98, "RecordBatch" of Kafka's log format; big-endian), offsets in bytes:

    0 base offset      16 magic (2)     23 last offset delta   43 producer id     57 record count
    8 length           17 CRC-32C       27 base timestamp      51 producer epoch  61 records
    12 leader epoch    21 attributes    35 max timestamp       53 base sequence

`length` counts what follows byte 12. The CRC covers byte 21 to the end, so a broker may rewrite the base
offset and the leader epoch of a batch without reckoning it again. All integers are signed but the CRC.
"""

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c

from eoslog.protocol import compression, sequence

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_LEADER_EPOCH = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_MAGIC_AT = 16
_CRC_FROM = 21  # the first byte that the CRC covers
# Finds headers among other bytes: the magic 2; before it the zero bytes that begin an offset, and a leader
# epoch that is not negative; after it the zero byte that begins the attributes.
_LIKE_A_HEADER = re.compile(rb"(?s)\x02(?<=\x00\x00.{10}[\x00-\x7f].{3}\x02)(?=.{4}\x00)")
_LOG_OVERHEAD = 12  # base offset and length: `length` does not count them

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
_CONTROL = 0x20
DELETE_HORIZON = 0x40

_COPY_BELOW = 64 << 10  # bytes; up to here a copy is cheaper than a NumPy view


class CorruptBatch(ValueError):
    """Bytes that are not a valid record batch. `offset` is the batch's base offset (-1: unknown)."""

    def __init__(self, message: str, offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset

    def __reduce__(self) -> tuple[type["CorruptBatch"], tuple[str, int]]:
        return type(self), (str(self), self.offset)


class PayloadTooLarge(ValueError):
    """More bytes of records, when decompressed, than the caller allows in one call."""


class BatchHeader(NamedTuple):
    """The header's fields in wire order. Offsets and sequences count records; timestamps are ms."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a header

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return _LOG_OVERHEAD + self.length

    @property
    def codec(self) -> int:
        """Compression codec of the records section, as a number of `compression.CODECS`."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the time: then `max_timestamp` is the time of every record."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch has a control record, which no application may see."""
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` is a delete horizon (KIP-534); record times are still relative to it."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.last_offset + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 for a batch without sequences."""
        return sequence.last_of(self.base_sequence, self.last_offset_delta + 1)


def raw_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header's fields at `pos` as they stand. Raises CorruptBatch if there are too few bytes."""
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise CorruptBatch(
            f"no record batch at byte {pos}: a header needs {HEADER_SIZE} bytes, "
            f"{max(len(buf) - pos, 0)} are left"
        )
    return BatchHeader._make(_HEADER.unpack_from(buf, pos))


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Read the header at `pos`.

    Raises CorruptBatch if there is none: too few bytes, a magic other than 2, or impossible sizes. The CRC is
    not checked, and the body need not be there.
    """
    header = raw_header(buf, pos)
    if header.magic != MAGIC:
        raise CorruptBatch(
            f"batch at byte {pos} has magic {header.magic}: only record batches of version 2 "
            "(Kafka 0.11 and later) are understood",
            header.base_offset,
        )
    if header.size < HEADER_SIZE or header.count < 0 or header.last_offset_delta < 0:
        raise CorruptBatch(
            f"batch of offset {header.base_offset} at byte {pos} is impossible: length "
            f"{header.length}, {header.count} records, last offset delta "
            f"{header.last_offset_delta}",
            header.base_offset,
        )
    return header


def magic_of(buf: Buffer) -> int | None:
    """The magic, which is at the same position in every version of a batch; None if `buf` ends before it."""
    return buf[_MAGIC_AT] if len(buf) > _MAGIC_AT else None


def likely_headers(buf: bytes) -> Iterator[int]:
    """Positions of bytes that look like a header, which may not be one: see `read_header`."""
    return (hit.start() - _MAGIC_AT for hit in _LIKE_A_HEADER.finditer(buf, _MAGIC_AT))


def iter_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each complete batch in `buf`.

    An incomplete batch at the end is ignored: Fetch answers end like that by design. Raises CorruptBatch if a
    header is not valid.
    """
    pos, end = 0, len(buf)
    while end - pos >= HEADER_SIZE:
        header = read_header(buf, pos)
        if header.size > end - pos:
            return
        yield pos, header
        pos += header.size


def crc32c(parts: Sequence[Buffer], crc: int = 0) -> int:
    """CRC-32C of `parts` one after another, continued from `crc`. Nothing large is copied."""
    for part in parts:
        if len(part):
            crc = google_crc32c.extend(crc, _readable(part))
    return crc


def _readable(part: Buffer) -> Any:
    """The same bytes as an object that the C function accepts; it accepts only read-only ones.

    NumPy can make a read-only view of any memory. It is imported for large batches only: the import takes
    longer than the start of a broker.
    """
    if isinstance(part, bytes):
        return part
    if len(part) < _COPY_BELOW:
        return bytes(part)
    import numpy as np

    return np.frombuffer(part, np.uint8)


def crc_ok(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the batch at `pos` is complete and its bytes match its CRC."""
    if len(buf) - pos < header.size:
        return False
    covered = memoryview(buf)[pos + _CRC_FROM : pos + header.size]
    return bool(google_crc32c.value(_readable(covered)) == header.crc)


def build_header(
    section: Sequence[Buffer],
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = sequence.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """Make the header, CRC included, for a records section that is already compressed by `codec`."""
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (_CONTROL if control else 0)
    return seal(section, BatchHeader(
        base_offset, 0, leader_epoch, MAGIC, 0, attributes, count - 1, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, count,
    ))  # fmt: skip


def seal(section: Sequence[Buffer], header: BatchHeader) -> bytes:
    """The bytes of a header, with the length and CRC that its records section needs."""
    header = header._replace(length=length_with(sum(map(len, section))), crc=0)
    crc = crc32c(section, crc32c([_HEADER.pack(*header)[_CRC_FROM:]]))
    return _HEADER.pack(*header._replace(crc=crc))


def length_with(section_size: int) -> int:
    """The `length` of a batch whose records section has `section_size` bytes."""
    return HEADER_SIZE - _LOG_OVERHEAD + section_size


def stamped(batch: memoryview, header: BatchHeader, attributes: int, max_timestamp: int) -> BatchHeader:
    """The batch's header with other attributes and largest time, and with the CRC that goes with them."""
    if header.attributes == attributes and header.max_timestamp == max_timestamp:
        return header
    changed = header._replace(attributes=attributes, max_timestamp=max_timestamp)
    covered: list[Buffer] = [packed(changed)[_CRC_FROM:], batch[HEADER_SIZE:]]
    return changed._replace(crc=crc32c(covered))


def packed(header: BatchHeader) -> bytes:
    """The bytes of a header."""
    return _HEADER.pack(*header)


def build_batch(
    records: Sequence[Buffer],
    count: int,
    *,
    base_timestamp: int,
    max_timestamp: int,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = sequence.NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> list[Buffer]:
    """Make a batch of encoded, uncompressed records: [header, *parts], one compressed part with a codec."""
    section: list[Buffer] = [compression.compress(codec, records)] if codec else list(records)
    header = build_header(
        section, count, base_timestamp=base_timestamp, max_timestamp=max_timestamp, codec=codec,
        producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence,
        transactional=transactional, control=control, base_offset=base_offset, leader_epoch=leader_epoch,
    )  # fmt: skip
    return [header, *section]
