"""Keys and values of the coordinators' own topics: an int16, then a message of that version.

The same form serves what consumers embed in JoinGroup and SyncGroup. For keys the int16 tells the kind of the
record (`key_version` reads it before a schema is chosen), for values it is the version of their layout.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from eoslog.protocol.messages.groups import CONSUMER_PROTOCOL_ASSIGNMENT
from eoslog.protocol.schema import Buffer, Given, ProtocolError, Schema

Read = TypeVar("Read")
Draft = TypeVar("Draft")

_VERSION = struct.Struct(">h")


def encode(schema: Schema[Read, Draft], version: int, value: Given[Draft]) -> bytes:
    """The version and the message as one piece of bytes. Raises ProtocolError as `Schema.write` does."""
    return b"".join([_VERSION.pack(version), *schema.write(version, value)])


def key_version(data: Buffer) -> int:
    """The int16 at the start of `data`."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"a coordinator's record has {len(data)} bytes, too few for its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode(schema: Schema[Read, Draft], data: Buffer) -> tuple[int, Read]:
    """The version and the message. ProtocolError for another version, for garbage and for bytes left over."""
    version = key_version(data)
    message, end = schema.read(version, data, _VERSION.size)
    if end != len(data):
        raise ProtocolError(f"{schema.name} v{version} leaves {len(data) - end} of {len(data)} bytes unread")
    return version, message


def assigned_partitions(protocol_type: str, assignment: Buffer) -> list[tuple[str, int]]:
    """What a classic group's member is to read, as DescribeGroups tells it: topics and partitions.

    Nothing where it is no consumer or has no assignment yet; other clients may put there what they like.
    """
    if protocol_type != "consumer" or not assignment:
        return []
    try:
        _, read = decode(CONSUMER_PROTOCOL_ASSIGNMENT, assignment)
    except ProtocolError:
        return []
    return [(topic["topic"], index) for topic in read["assigned_partitions"] for index in topic["partitions"]]


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java: s[0]*31^(n-1) + ... over UTF-16 code units, as a signed 32-bit int."""
    raw = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(raw) // 2}H", raw):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_of(key: str, partitions: int) -> int:
    """The partition of an internal topic, 0 <= p < `partitions`, that holds `key`: a transactional id in
    `__transaction_state`, a group id in `__consumer_offsets`. The rule is part of the on-disk format.

    Kafka takes the absolute value of the hash (0 for -2^31, which has none), not its low 31 bits.
    """
    value = java_string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % partitions
