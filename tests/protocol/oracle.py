"""A plain, slow record batch codec to judge the fast one by: one record, one byte at a time.

It shares no code with eoslog, nor with pyarrow or NumPy; it is written from the description of the format
alone (record batch v2, varints, CRC-32C, LZ4 frame, snappy block). What it compresses it only wraps: the
formats allow for stored blocks.
"""

import builtins
import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from eoslog.protocol.batch import HEADER_SIZE, packed, read_header
from eoslog.protocol.decode import DecodedRecords


class Broken(Exception):
    """The oracle refuses these bytes."""


@dataclass
class Rec:
    key: bytes | None
    value: bytes | None
    timestamp: int = 0
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    offset: int = 0


@dataclass
class Batch:
    records: list[Rec]
    base_offset: int = 0
    leader_epoch: int = -1
    codec: int = 0
    log_append_time: bool = False
    transactional: bool = False
    control: bool = False
    delete_horizon: bool = False
    base_timestamp: int = 0
    max_timestamp: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    last_offset_delta: int = 0


# --- numbers and checksums


def varint(value: int, bits: int = 64) -> bytes:
    number = (value << 1 ^ value >> 63) & (2**bits - 1) if value < 0 else value << 1
    out: list[int] = []
    while True:
        low, number = number % 128, number // 128
        if not number:
            return bytes([*out, low])
        out.append(low + 128)


class Cursor:
    def __init__(self, data: bytes) -> None:
        self.data, self.pos = data, 0

    def byte(self) -> int:
        if self.pos >= len(self.data):
            raise Broken("out of bytes")
        self.pos += 1
        return self.data[self.pos - 1]

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.pos:
            raise Broken(f"length {count} where {len(self.data) - self.pos} bytes are left")
        self.pos += count
        return self.data[self.pos - count : self.pos]

    def varint(self, most: int) -> int:
        number = 0
        for index in range(most):
            byte = self.byte()
            number += (byte % 128) << (7 * index)
            if byte < 128:
                value = number // 2 if number % 2 == 0 else -(number // 2) - 1
                if most == 10:  # a long: what does not fit into 64 bits falls off
                    value = (value + 2**63) % 2**64 - 2**63
                return value
        raise Broken("number too long")

    def int(self) -> int:
        return self.varint(5)

    def long(self) -> builtins.int:
        return self.varint(10)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


CRC_TABLE = [crc_of_byte(byte) for byte in range(256)]


def xxh32(data: bytes) -> int:
    """XXH32 with seed 0 of less than 16 bytes, which is what an LZ4 frame's header has."""
    assert len(data) < 16
    h = (0x165667B1 + len(data)) & 0xFFFFFFFF
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        h = (h + int.from_bytes(data[at : at + 4], "little") * 0xC2B2AE3D) & 0xFFFFFFFF
        h = (h << 17 | h >> 15) * 0x27D4EB2F & 0xFFFFFFFF
    for byte in data[words:]:
        h = (h + byte * 0x165667B1) & 0xFFFFFFFF
        h = (h << 11 | h >> 21) * 0x9E3779B1 & 0xFFFFFFFF
    h = (h ^ h >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return h ^ h >> 16


# --- compression


def wrap_snappy(data: bytes) -> bytes:
    """One raw snappy block of literals, as librdkafka would frame it: not at all."""
    size, out = len(data), b""
    while size > 127:
        out, size = out + bytes([size % 128 + 128]), size // 128
    out += bytes([size])
    for at in range(0, len(data), 60):
        piece = data[at : at + 60]
        out += bytes([len(piece) - 1 << 2]) + piece
    return out


def wrap_xerial(data: bytes) -> bytes:
    out = b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    for at in range(0, len(data), 1000):
        block = wrap_snappy(data[at : at + 1000])
        out += struct.pack(">i", len(block)) + block
    return out


def wrap_lz4(data: bytes) -> bytes:
    out = b"\x04\x22\x4d\x18\x60\x40" + bytes([xxh32(b"\x60\x40") >> 8 & 0xFF])
    for at in range(0, len(data), 65536):
        piece = data[at : at + 65536]
        out += struct.pack("<I", len(piece) | 0x80000000) + piece
    return out + b"\0\0\0\0"


def wrap_zstd(data: bytes) -> bytes:
    """A frame with a window of 1 MiB, without its content's size, of raw blocks."""
    out = b"\x28\xb5\x2f\xfd\x00\x50"
    pieces = [data[at : at + 100_000] for at in range(0, len(data), 100_000)] or [b""]
    for index, piece in enumerate(pieces):
        last = index == len(pieces) - 1
        out += struct.pack("<I", len(piece) << 3 | last)[:3] + piece
    return out


def unwrap_snappy_block(data: bytes) -> bytes:
    cursor, size, shift = Cursor(data), 0, 0
    while True:
        byte = cursor.byte()
        size, shift = size + (byte % 128 << shift), shift + 7
        if byte < 128:
            break
    out = bytearray()
    while cursor.pos < len(data):
        tag = cursor.byte()
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                length = int.from_bytes(cursor.bytes(length - 59), "little")
            out += cursor.bytes(length + 1)
            continue
        if kind == 1:
            length, back = (tag >> 2 & 7) + 4, tag >> 5 << 8 | cursor.byte()
        else:
            length, back = (tag >> 2) + 1, int.from_bytes(cursor.bytes(2 if kind == 2 else 4), "little")
        for _ in range(length):
            out.append(out[-back])
    if len(out) != size:
        raise Broken("snappy block of another size")
    return bytes(out)


def unwrap_xerial(data: bytes) -> bytes:
    """As snappy-java reads its own framing."""
    if data[:16] != b"\x82SNAPPY\0\0\0\0\1\0\0\0\1":
        raise Broken("not the framing of snappy-java")
    out, pos = b"", 16
    while pos < len(data):
        size = int.from_bytes(data[pos : pos + 4], "big")
        out += unwrap_snappy_block(data[pos + 4 : pos + 4 + size])
        pos += 4 + size
    return out


def unwrap_lz4(data: bytes) -> bytes:
    """As Kafka's Java client reads LZ4: blocks must be independent, the header's checksum right."""
    cursor = Cursor(data)
    if cursor.bytes(4) != b"\x04\x22\x4d\x18":
        raise Broken("not an LZ4 frame")
    flags = cursor.byte()
    if flags >> 6 != 1 or not flags & 0x20:
        raise Broken("LZ4 blocks depend on each other")
    described = bytes([flags, cursor.byte()]) + cursor.bytes(8 if flags & 8 else 0)
    if cursor.byte() != xxh32(described) >> 8 & 0xFF:
        raise Broken("LZ4 header checksum")
    most = 1 << (2 * (described[1] >> 4) + 8)
    out = b""
    while size := int.from_bytes(cursor.bytes(4), "little"):
        block = cursor.bytes(size & 0x7FFFFFFF)
        plain = block if size >> 31 else unwrap_lz4_block(block)
        if len(plain) > most or len(block) > most:
            raise Broken("LZ4 block too long")
        out += plain
        cursor.bytes(4 if flags & 0x10 else 0)
    cursor.bytes(4 if flags & 4 else 0)
    if cursor.pos != len(data):
        raise Broken("bytes behind the LZ4 frame")
    return out


def unwrap_lz4_block(block: bytes) -> bytes:
    cursor, out = Cursor(block), bytearray()

    def length(nibble: int) -> int:
        total = nibble
        while nibble == 15 and (byte := cursor.byte()) is not None:
            total += byte
            if byte < 255:
                break
        return total

    while True:
        token = cursor.byte()
        out += cursor.bytes(length(token >> 4))
        if cursor.pos == len(block):
            return bytes(out)
        back = int.from_bytes(cursor.bytes(2), "little")
        for _ in range(length(token & 15) + 4):
            out.append(out[-back])


Codec = Callable[[bytes], bytes]
WRAP: dict[int, Codec] = {0: bytes, 1: gzip.compress, 2: wrap_snappy, 3: wrap_lz4, 4: wrap_zstd}
UNWRAP: dict[int, Codec] = {0: bytes, 1: gzip.decompress, 2: unwrap_xerial, 3: unwrap_lz4}


# --- records and batches


def nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Rec, base_offset: int, base_timestamp: int) -> bytes:
    body = b"\0" + varint(record.timestamp - base_timestamp) + varint(record.offset - base_offset)
    body += nullable(record.key) + nullable(record.value) + varint(len(record.headers))
    for key, value in record.headers:
        body += nullable(key.encode()) + nullable(value)
    return varint(len(body)) + body


def encode(batch: Batch, section: bytes | None = None) -> bytes:
    """Make the batch's bytes; `section` instead of the records' own, already compressed, if given."""
    if section is None:
        plain = [encode_record(r, batch.base_offset, batch.base_timestamp) for r in batch.records]
        section = WRAP[batch.codec](b"".join(plain))
    attributes = (
        batch.codec
        | batch.log_append_time << 3
        | batch.transactional << 4
        | batch.control << 5
        | batch.delete_horizon << 6
    )
    covered = (
        struct.pack(">hi", attributes, batch.last_offset_delta)
        + struct.pack(">qq", batch.base_timestamp, batch.max_timestamp)
        + struct.pack(">qhi", batch.producer_id, batch.producer_epoch, batch.base_sequence)
        + struct.pack(">i", len(batch.records))
        + section
    )
    rest = struct.pack(">ib", batch.leader_epoch, 2) + struct.pack(">I", crc32c(covered)) + covered
    return struct.pack(">qi", batch.base_offset, len(rest)) + rest


def decode(data: bytes) -> list[Batch]:
    """Read whole batches, all of `data`. Compressed ones must be as eoslog writes them, and not zstd."""
    batches = []
    while data:
        base_offset, length = struct.unpack(">qi", data[:12])
        rest, data = data[12 : 12 + length], data[12 + length :]
        leader_epoch, magic, crc = struct.unpack(">ibI", rest[:9])
        if len(rest) != length or magic != 2 or crc != crc32c(rest[9:]):
            raise Broken("header")
        attributes, last = struct.unpack(">hi", rest[9:15])
        base_timestamp, max_timestamp = struct.unpack(">qq", rest[15:31])
        producer_id, producer_epoch, base_sequence, count = struct.unpack(">qhii", rest[31:49])
        batch = Batch(
            [], base_offset, leader_epoch, attributes & 7, bool(attributes & 8), bool(attributes & 16),
            bool(attributes & 32), bool(attributes & 64), base_timestamp, max_timestamp, producer_id,
            producer_epoch, base_sequence, last,
        )  # fmt: skip
        cursor = Cursor(UNWRAP[batch.codec](rest[49:]))
        batch.records = [decode_record(cursor, batch) for _ in range(count)]
        if cursor.pos != len(cursor.data):
            raise Broken("bytes behind the records")
        batches.append(batch)
    return batches


def decode_record(cursor: Cursor, batch: Batch) -> Rec:
    length = cursor.int()
    end = cursor.pos + length
    cursor.byte()
    timestamp = batch.base_timestamp + cursor.long()
    offset = batch.base_offset + cursor.int()
    key, value = take(cursor), take(cursor)
    headers = []
    count = cursor.int()
    if count < 0:
        raise Broken("negative count")
    for _ in range(count):
        name = cursor.bytes(cursor.int())
        headers.append((name.decode(errors="replace"), take(cursor)))
    if cursor.pos != end:
        raise Broken("record of another length")
    if batch.log_append_time:
        timestamp = batch.max_timestamp
    return Rec(key, value, timestamp, headers, offset)


def take(cursor: Cursor) -> bytes | None:
    length = cursor.int()
    return None if length == -1 else cursor.bytes(length)


# -- what a broker stamps ------------------------------------------------------------------------
# What a broker writes into a batch that it stores.


def stamp(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place; the CRC does not cover them."""
    stored = read_header(batch)._replace(base_offset=base_offset, leader_epoch=leader_epoch)
    batch[:HEADER_SIZE] = packed(stored)


# -- strategies ----------------------------------------------------------------------------------
# Strategies for records and batches, and what the codec's columns say, row by row.

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))

# Lengths on both sides of where a varint grows: 63/64 and 8191/8192 (zigzag doubles them).
sizes = st.integers(0, 12) | st.sampled_from([62, 63, 64, 65, 100, 8190, 8191, 8192])
blobs = st.none() | st.binary(max_size=20) | sizes.map(lambda size: b"%" * size)
texts = st.none() | st.text(max_size=20) | sizes.map(lambda size: "ü" * size)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)
times = st.integers(0, 2**41) | st.sampled_from([-1, 0, 1, 63, 64, 2**61, -(2**61)])


@st.composite
def records(draw: st.DrawFn, deltas: st.SearchStrategy[int]) -> Batch:
    """One batch as a producer or a compacting broker leaves it."""
    first = draw(st.integers(0, 2**40))
    base_time = draw(times)
    rows, offset = [], first
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(deltas)
        row_headers = draw(st.just([]) | headers)
        rows.append(Rec(draw(blobs), draw(blobs), base_time + draw(times | st.just(0)), row_headers, offset))
        offset += 1
    return Batch(
        rows,
        base_offset=first,
        codec=draw(st.integers(0, 4)),
        log_append_time=draw(st.booleans()),
        transactional=draw(st.booleans()),
        base_timestamp=base_time,
        max_timestamp=max(row.timestamp for row in rows),
        last_offset_delta=offset - 1 - first + draw(deltas),
    )


def rows_of(decoded: DecodedRecords) -> list[Rec]:
    lists = decoded.headers.to_pylist() if decoded.headers is not None else [[]] * len(decoded)
    columns = [
        column.to_pylist() for column in (decoded.key, decoded.value, decoded.timestamp, decoded.offset)
    ]
    return [
        Rec(key, value, timestamp, [(header["key"], header["value"]) for header in row_headers], offset)
        for key, value, timestamp, offset, row_headers in zip(*columns, lists, strict=True)
    ]


def read_back(batches: list[Batch]) -> list[Rec]:
    """The rows a reader must get from these batches."""
    return [
        Rec(r.key, r.value, wrap(b.max_timestamp if b.log_append_time else r.timestamp), r.headers, r.offset)
        for b in batches
        for r in b.records
    ]


def wrap(value: int) -> int:
    """As a 64-bit number."""
    return (value + 2**63) % 2**64 - 2**63


def with_right_crc(batch: bytes) -> bytes:
    """The batch with its CRC made to match, so that only its structure can give it away."""
    return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]


def header_column(rows: list[list[tuple[str, Any]] | None], kind: pa.DataType = HEADERS) -> pa.Array:
    as_structs = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(as_structs, kind)
