"""Records of `__consumer_offsets` byte for byte as Kafka lays them out, and what other kinds become."""

from __future__ import annotations

import struct

import pytest

from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from eoslog.broker.coordinator.groups.committed_offsets import NO_TOPIC_ID, Committed
from eoslog.broker.coordinator.groups.group_records import (
    GroupRecord,
    OffsetRecord,
    decode,
    encode_group,
    encode_group_tombstone,
    encode_offset,
    encode_offset_tombstone,
)
from eoslog.protocol.plain_records import Record
from eoslog.protocol.schema import ProtocolError

TOPIC_ID = bytes(range(16))
VALUE = Committed(77, 3, "më", 1_700_000_000_000, 9, TOPIC_ID)
OFFSET_KEY = b"\0\1" + b"\0\1g" + b"\0\5topic" + b"\0\0\0\2"
GROUP_KEY = b"\0\2" + b"\0\1g"
MEMBER = ClassicGroupMember("m-1", "i", "c", "/h", 6000, 60000, (("range", b"sub"), ("x", b"y")), b"assigned")
GROUP = ClassicGroup("g", ClassicGroupState.STABLE, 4, "consumer", "range", "m-1", {"m-1": MEMBER})


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(9, 0, key, value, [])


def test_an_offset() -> None:
    key, value = encode_offset("g", ("topic", 2), VALUE)
    assert key == OFFSET_KEY
    assert value == (
        struct.pack(">hqi", 4, 77, 3)
        + b"\4m\xc3\xab"  # compact string: length + 1
        + struct.pack(">q", 1_700_000_000_000)
        + b"\1\0\x10"  # one tagged field: tag 0 of 16 bytes
        + TOPIC_ID
    )
    assert decode(record(key, value)) == OffsetRecord("g", ("topic", 2), VALUE)


def test_an_offset_as_older_kafka_wrote_it() -> None:
    value = struct.pack(">hqi", 3, 77, 3) + b"\0\3m\xc3\xab" + struct.pack(">q", 1_700_000_000_000)
    expected = Committed(77, 3, "më", 1_700_000_000_000, 9, NO_TOPIC_ID)
    assert decode(record(OFFSET_KEY, value)) == OffsetRecord("g", ("topic", 2), expected)
    assert decode(record(b"\0\0" + OFFSET_KEY[2:], value)) == OffsetRecord("g", ("topic", 2), expected)


def test_deletions() -> None:
    assert encode_offset_tombstone("g", ("topic", 2)) == (OFFSET_KEY, None)
    assert decode(record(OFFSET_KEY, None)) == OffsetRecord("g", ("topic", 2), None)
    assert encode_group_tombstone("g") == (GROUP_KEY, None)
    assert decode(record(GROUP_KEY, None)) == GroupRecord("g", None)


def test_a_group() -> None:
    key, value = encode_group(GROUP, 1_700_000_000_000)
    assert key == GROUP_KEY
    assert value == (
        b"\0\3" + b"\0\x08consumer" + struct.pack(">i", 4) + b"\0\5range" + b"\0\3m-1"
        + struct.pack(">q", 1_700_000_000_000) + struct.pack(">i", 1)
        + b"\0\3m-1" + b"\0\1i" + b"\0\1c" + b"\0\2/h" + struct.pack(">ii", 60000, 6000)
        + b"\0\0\0\3sub" + b"\0\0\0\x08assigned"
    )  # fmt: skip
    decoded = decode(record(key, value))
    assert isinstance(decoded, GroupRecord) and decoded.group is not None
    group = decoded.group
    assert (group.state, group.generation, group.protocol_type) == (ClassicGroupState.STABLE, 4, "consumer")
    assert (group.protocol, group.leader) == ("range", "m-1")
    only_chosen = (("range", b"sub"),)
    assert group.members == {
        "m-1": ClassicGroupMember("m-1", "i", "c", "/h", 6000, 60000, only_chosen, b"assigned"),
    }


def test_an_empty_group() -> None:
    key, value = encode_group(ClassicGroup("g", generation=5, protocol_type="consumer"), 1)
    null = b"\xff\xff"
    assert value == (
        b"\0\3" + b"\0\x08consumer" + struct.pack(">i", 5) + null + null + struct.pack(">qi", 1, 0)
    )
    assert decode(record(key, value)) == GroupRecord(
        "g", ClassicGroup("g", generation=5, protocol_type="consumer")
    )


def test_a_group_of_before_rebalance_time_outs() -> None:
    value = (
        b"\0\0" + b"\0\x08consumer" + struct.pack(">i", 4) + b"\0\5range" + b"\0\3m-1" + struct.pack(">i", 1)
        + b"\0\3m-1" + b"\0\1c" + b"\0\2/h" + struct.pack(">i", 6000) + b"\0\0\0\3sub" + b"\0\0\0\0"
    )  # fmt: skip
    decoded = decode(record(GROUP_KEY, value))
    assert isinstance(decoded, GroupRecord) and decoded.group is not None
    assert decoded.group.members["m-1"].rebalance_timeout_ms == 6000


def test_other_kinds_and_garbage() -> None:
    assert decode(record(b"\0\3" + b"\0\1g", b"\0\0whatever")) is None
    for key, value in [
        (None, b""),
        (b"\0", b""),
        (OFFSET_KEY[:-1], None),
        (OFFSET_KEY + b"\0", None),
        (OFFSET_KEY, b"\0\x09"),
        (OFFSET_KEY, b"\0\4\0\0"),
        (GROUP_KEY, b""),
    ]:
        with pytest.raises(ProtocolError):
            decode(record(key, value))
