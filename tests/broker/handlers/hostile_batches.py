"""Batches that no honest client sends: every field of a batch with every kind of value that does not fit."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from eoslog.protocol import compression
from eoslog.protocol.batch import crc32c
from eoslog.protocol.plain_records import write_varint

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def sized(part: bytes | None) -> bytes:
    return write_varint(-1) if part is None else write_varint(len(part)) + part


def record(
    number: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    delta: int = 0,
    headers: bytes = b"\0",
    attributes: int = 0,
) -> bytes:
    body = bytes([attributes]) + write_varint(delta) + write_varint(number)
    body += sized(key) + sized(value) + headers
    return write_varint(len(body)) + body


def batch(
    section: bytes | Sequence[bytes], now: int, codec: int = 0, squeeze: bool = True, **fields: Any
) -> bytes:
    """A batch of this records section, whose header says what `fields` say; the CRC fits unless given."""
    count = 1 if isinstance(section, bytes) else len(section)
    plain = section if isinstance(section, bytes) else b"".join(section)
    packed = compression.compress(codec, [plain]) if codec in (1, 2, 3, 4) and squeeze else plain
    said = {
        "base_offset": 0, "length": 49 + len(packed), "leader_epoch": -1, "magic": 2, "crc": 0,
        "attributes": codec, "last_offset_delta": count - 1, "base_timestamp": now, "max_timestamp": now,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "count": count,
    } | fields  # fmt: skip
    made = bytearray(HEADER.pack(*(said[name] for name in FIELDS)) + packed)
    if "crc" not in fields:
        made[17:21] = struct.pack(">I", crc32c([bytes(made[21:])]))
    return bytes(made)


def table(now: int) -> dict[str, bytes]:
    """Batches of two records by what is wrong with them."""
    two = [record(0), record(1)]
    found = {
        "base offset 3": batch(two, now, base_offset=3),
        "base offset -1": batch(two, now, base_offset=-1),
        "length 0": batch(two, now, length=0),
        "length too small": batch(two, now, length=48),
        "length negative": batch(two, now, length=-49),
        "length too large": batch(two, now, length=500),
        "length cuts a record": batch(two, now, length=49 + 12),
        "cut header": batch(two, now)[:40],
        "cut body": batch(two, now)[:-1],
        "two batches": batch(two, now) * 2,
        "magic 0": batch(two, now, magic=0),
        "magic 1": batch(two, now, magic=1),
        "magic 3": batch(two, now, magic=3),
        "magic -1": batch(two, now, magic=-1),
        "crc": batch(two, now, crc=1),
        "delta too small": batch(two, now, last_offset_delta=0),
        "delta too large": batch(two, now, last_offset_delta=7),
        "delta negative": batch(two, now, last_offset_delta=-1),
        "delta and count 0": batch(two, now, last_offset_delta=-1, count=0),
        "count negative": batch(two, now, last_offset_delta=-4, count=-3),
        "count too large": batch(two, now, last_offset_delta=2, count=3),
        "count too small": batch(two, now, last_offset_delta=0, count=1),
        "count huge": batch(two, now, last_offset_delta=2**31 - 2, count=2**31 - 1),
        "no records": batch(b"", now, last_offset_delta=-1, count=0),
        "no bytes of one record": batch(b"", now),
        "control": batch(two, now, attributes=CONTROL),
        "transactional without a producer": batch(two, now, attributes=TRANSACTIONAL),
        "producer without sequence": batch(two, now, producer_id=77, producer_epoch=0),
        "codec 5": batch(two, now, codec=5),
        "codec 6": batch(two, now, codec=6),
        "codec 7": batch(two, now, codec=7),
        "an hour and more ahead": batch(two, now + 3_700_000),
        "a record ahead": batch([record(0), record(1, delta=3_700_000)], now),
        "offsets 0, 0": batch([record(0), record(0)], now),
        "offsets 1, 0": batch([record(1), record(0)], now),
        "offsets 0, 2": batch([record(0), record(2)], now),
        "offsets 0, -1": batch([record(0), record(-1)], now),
        "length of a record": batch(b"\x7e" + two[0][1:] + two[1], now, last_offset_delta=1, count=2),
        "negative length of a record": batch(b"\x01" + two[0][1:], now),
        "key length -2": batch([two[0], write_varint(7) + b"\0\0\x02\x03\x02v\0"], now),
        "value length -2": batch([two[0], write_varint(7) + b"\0\0\x02\x02k\x03\0"], now),
        "value runs over": batch([two[0], write_varint(8) + b"\0\0\x02\x02k\x40v\0"], now),
        "bytes after a record's end": batch([two[0], write_varint(9) + b"\0\0\x02\x02k\x02v\0\0"], now),
        "negative count of headers": batch([two[0], record(1, headers=b"\x01")], now),
        "headers without bytes": batch([two[0], record(1, headers=b"\x02")], now),
        "header without a key": batch([two[0], record(1, headers=b"\x02\x01\x01")], now),
        "header runs over": batch([two[0], record(1, headers=b"\x02\x40h\x01")], now),
        "garbage": batch(b"garbage", now),
        "records and garbage": batch(b"".join(two) + b"garbage", now, last_offset_delta=1, count=2),
    }  # fmt: skip
    for codec in (1, 2, 3, 4):
        name = compression.NAMES[codec]
        found |= {
            f"{name}: garbage": batch(b"garbage" * 9, now, codec, squeeze=False),
            f"{name}: nothing": batch(b"", now, codec, squeeze=False),
            f"{name}: garbage, compressed": batch(b"garbage", now, codec),
            f"{name}: cut": batch(
                compression.compress(codec, two)[:-5], now, codec, False, last_offset_delta=1, count=2
            ),
            f"{name}: count too large": batch(two, now, codec, last_offset_delta=2, count=3),
            f"{name}: count too small": batch(two, now, codec, last_offset_delta=0, count=1),
            f"{name}: offsets 0, 0": batch([record(0), record(0)], now, codec),
            f"{name}: not compressed": batch(two, now, codec, squeeze=False),
            f"{name}: header without a key": batch([two[0], record(1, headers=b"\x02\x01\x01")], now, codec),
        }  # fmt: skip
    found["shape changes: offsets 0, 0"] = batch([record(0), record(0, value=b"longer")], now)
    return found


def told_wrongly(now: int) -> dict[str, tuple[bytes, int]]:
    """Batches that are taken, whose headers say what their records do not; with the true largest time."""
    early, late = record(0, delta=-5000), record(1, delta=2000)
    odd = record(2, value=b"longer", delta=-7000)
    return {
        "as it is": (batch([early, late], now, max_timestamp=now + 2000), now + 2000),
        "the last message's": (
            batch([record(0, delta=2000), record(1, delta=-9000)], now, max_timestamp=now - 9000), now + 2000
        ),
        "-1": (batch([early, late], now, max_timestamp=-1), now + 2000),
        "too small": (batch([early, late], now, max_timestamp=now - 10**9), now + 2000),
        "too large": (batch([early, late], now, max_timestamp=now + 10**12), now + 2000),
        "largest": (batch([early, late], now, max_timestamp=2**63 - 1), now + 2000),
        "uneven records": (batch([early, late, odd], now, max_timestamp=-1), now + 2000),
        "no times": (batch([record(0), record(1)], -1, max_timestamp=now), -1),
        "before 1970": (batch([record(0), record(1)], -10**6, max_timestamp=now), -1),
        "gzip": (batch([early, late], now, 1, max_timestamp=-1), now + 2000),
        "snappy": (batch([early, late], now, 2, max_timestamp=-1), now + 2000),
        "lz4": (batch([early, late], now, 3, max_timestamp=-1), now + 2000),
        "zstd": (batch([early, late], now, 4, max_timestamp=-1), now + 2000),
        "log append time": (
            batch([early, late], now, attributes=LOG_APPEND_TIME, max_timestamp=now - 10**6), now + 2000
        ),
        "delete horizon": (
            batch([early, late], now, attributes=DELETE_HORIZON, max_timestamp=now), now + 2000
        ),
        "unknown attributes": (batch([early, late], now, attributes=0x7F80, max_timestamp=now), now + 2000),
        "leader epoch": (batch([early, late], now, leader_epoch=99, max_timestamp=now + 2000), now + 2000),
        "attributes of a record": (
            batch([record(0, attributes=0xFF, delta=2000), late], now, max_timestamp=now), now + 2000
        ),
    }  # fmt: skip
