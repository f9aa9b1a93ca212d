"""The coordinators' records against bytes put together by hand; what consumers embed, against kio.

No independent Python implementation has the records of `__transaction_state` and `__consumer_offsets`, so
their expected bytes are written out field by field.
"""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.consumer_protocol_assignment import v0 as assignment_v0
from kio.schema.consumer_protocol_assignment import v1 as assignment_v1
from kio.schema.consumer_protocol_assignment import v2 as assignment_v2
from kio.schema.consumer_protocol_assignment import v3 as assignment_v3
from kio.schema.consumer_protocol_subscription import v0 as subscription_v0
from kio.schema.consumer_protocol_subscription import v1 as subscription_v1
from kio.schema.consumer_protocol_subscription import v2 as subscription_v2
from kio.schema.consumer_protocol_subscription import v3 as subscription_v3

from eoslog.protocol.internal_topics.coordinator_records import (
    assigned_partitions,
    decode,
    encode,
    key_version,
)
from eoslog.protocol.messages.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from eoslog.protocol.messages.group_metadata import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from eoslog.protocol.messages.transaction_log import TRANSACTION_KEY, TRANSACTION_VALUE
from eoslog.protocol.schema import ProtocolError, Schema
from tests.protocol import kio_oracle as oracle

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        GroupMetadataValueDraft,
        GroupMetadataValueMemberDraft,
        TransactionLogValueDraft,
    )


def i8(value: int) -> bytes:
    return struct.pack(">b", value)


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def text(value: str) -> bytes:
    return i16(len(value)) + value.encode()


def compact(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def tag(number: int, content: bytes) -> bytes:
    return bytes([number, len(content)]) + content


TRANSACTION: TransactionLogValueDraft = {
    "producer_id": 4000,
    "previous_producer_id": -1,
    "next_producer_id": -1,
    "producer_epoch": 7,
    "next_producer_epoch": -1,
    "transaction_timeout_ms": 60_000,
    "transaction_status": 1,
    "transaction_partitions": [{"topic": "flights", "partition_ids": [0, 2]}],
    "transaction_last_update_timestamp_ms": 1_700_000_000_123,
    "transaction_start_timestamp_ms": 1_700_000_000_001,
    "client_transaction_version": 0,
    "together": [],
}
TRANSACTION_START = i64(4000) + i16(7) + i32(60_000) + i8(1)
TIMES = i64(1_700_000_000_123) + i64(1_700_000_000_001)
CLASSIC_PARTITIONS = i32(1) + text("flights") + i32(2) + i32(0) + i32(2)
COMPACT_PARTITIONS = b"\x02" + compact(b"flights") + b"\x03" + i32(0) + i32(2) + b"\0"
TV2 = {
    "previous_producer_id": 4000,
    "next_producer_id": 5,
    "next_producer_epoch": 1,
    "client_transaction_version": 2,
}

OFFSET_KEY = {"group": "g", "topic": "t", "partition": 5}
OFFSET = {
    "offset": 42,
    "leader_epoch": -1,
    "metadata": "decided",
    "commit_timestamp": 1_700_000_000_123,
    "expire_timestamp": -1,
    "topic_id": bytes(16),
}
TOPIC_ID = bytes(range(16))

MEMBER: GroupMetadataValueMemberDraft = {
    "member_id": "m-1",
    "group_instance_id": None,
    "client_id": "c",
    "client_host": "/127.0.0.1",
    "rebalance_timeout": 300_000,
    "session_timeout": 45_000,
    "subscription": b"sub",
    "assignment": b"",
}
GROUP: GroupMetadataValueDraft = {
    "protocol_type": "consumer",
    "generation": 3,
    "protocol": "range",
    "leader": None,
    "current_state_timestamp": 99,
    "members": [MEMBER],
}

GOLDEN = [
    (TRANSACTION_KEY, 0, {"transactional_id": "q-1"}, text("q-1")),
    (TRANSACTION_VALUE, 0, TRANSACTION, TRANSACTION_START + CLASSIC_PARTITIONS + TIMES),
    (
        TRANSACTION_VALUE,
        0,
        TRANSACTION | {"transaction_partitions": None},
        TRANSACTION_START + i32(-1) + TIMES,
    ),
    (TRANSACTION_VALUE, 1, TRANSACTION, TRANSACTION_START + COMPACT_PARTITIONS + TIMES + b"\0"),
    (
        TRANSACTION_VALUE,
        1,
        TRANSACTION | TV2 | {"transaction_partitions": None},
        TRANSACTION_START
        + b"\0"
        + TIMES
        + b"\x04"
        + tag(0, i64(4000))
        + tag(1, i64(5))
        + tag(2, i16(2))
        + tag(3, i16(1)),
    ),
    *[
        (OFFSET_COMMIT_KEY, version, OFFSET_KEY, text("g") + text("t") + i32(5))
        for version in (0, 1)
    ],
    (OFFSET_COMMIT_VALUE, 0, OFFSET, i64(42) + text("decided") + i64(1_700_000_000_123)),
    (
        OFFSET_COMMIT_VALUE,
        1,
        OFFSET | {"expire_timestamp": 9},
        i64(42) + text("decided") + i64(1_700_000_000_123) + i64(9),
    ),
    (OFFSET_COMMIT_VALUE, 2, OFFSET, i64(42) + text("decided") + i64(1_700_000_000_123)),
    (
        OFFSET_COMMIT_VALUE,
        3,
        OFFSET | {"leader_epoch": 6},
        i64(42) + i32(6) + text("decided") + i64(1_700_000_000_123),
    ),
    (
        OFFSET_COMMIT_VALUE,
        4,
        OFFSET | {"topic_id": TOPIC_ID},
        i64(42) + i32(-1) + compact(b"decided") + i64(1_700_000_000_123) + b"\x01" + tag(0, TOPIC_ID),
    ),
    (GROUP_METADATA_KEY, 2, {"group": "g"}, text("g")),
    (
        GROUP_METADATA_VALUE,
        3,
        GROUP,
        text("consumer") + i32(3) + text("range") + i16(-1) + i64(99) + i32(1)
        + text("m-1") + i16(-1) + text("c") + text("/127.0.0.1") + i32(300_000) + i32(45_000)
        + i32(3) + b"sub" + i32(0),
    ),
    (
        GROUP_METADATA_VALUE,
        4,
        GROUP,
        compact(b"consumer") + i32(3) + compact(b"range") + b"\0" + i64(99) + b"\x02"
        + compact(b"m-1") + b"\0" + compact(b"c") + compact(b"/127.0.0.1") + i32(300_000) + i32(45_000)
        + compact(b"sub") + compact(b"") + b"\0" + b"\0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "version", "value", "expected"), GOLDEN, ids=lambda each: str(each)[:40] if each else ""
)
def test_records_byte_by_byte(schema: Schema, version: int, value: dict[str, Any], expected: bytes) -> None:
    data = encode(schema, version, value)
    assert data == i16(version) + expected
    assert key_version(data) == version
    assert decode(schema, data) == (version, value)
    for cut in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(schema, data[:cut])
    with pytest.raises(ProtocolError, match="unread"):
        decode(schema, data + b"\0")


def test_old_group_records_lack_what_came_later() -> None:
    version, value = decode(GROUP_METADATA_VALUE, encode(GROUP_METADATA_VALUE, 0, GROUP))
    member = MEMBER | {"rebalance_timeout": -1}
    assert (version, value) == (0, GROUP | {"current_state_timestamp": -1, "members": [member]})


def test_another_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match="OffsetCommitKey has versions 0 to 1, not 2"):
        decode(OFFSET_COMMIT_KEY, encode(GROUP_METADATA_KEY, 2, {"group": "g"}))
    with pytest.raises(ProtocolError, match="TransactionLogValue has versions 0 to 1, not 2"):
        decode(TRANSACTION_VALUE, i16(2) + bytes(40))


def test_a_version_that_cannot_say_it_all_is_refused() -> None:
    with pytest.raises(ProtocolError, match="client_transaction_version"):
        encode(TRANSACTION_VALUE, 0, {**TRANSACTION, "client_transaction_version": 2})


EMBEDDED = [
    (CONSUMER_PROTOCOL_SUBSCRIPTION, version, module.ConsumerProtocolSubscription)
    for version, module in enumerate((subscription_v0, subscription_v1, subscription_v2, subscription_v3))
] + [
    (CONSUMER_PROTOCOL_ASSIGNMENT, version, module.ConsumerProtocolAssignment)
    for version, module in enumerate((assignment_v0, assignment_v1, assignment_v2, assignment_v3))
]


@pytest.mark.parametrize(("schema", "version", "entity_type"), EMBEDDED)
def test_what_consumers_embed(schema: Schema, version: int, entity_type: type[Any]) -> None:
    rng = random.Random(version)
    for _ in range(25):
        value = oracle.random_value(entity_type, rng)
        theirs = i16(version) + oracle.encode(oracle.to_entity(entity_type, value))
        message = oracle.to_ours(entity_type, value, schema.struct, version)
        assert encode(schema, version, message) == theirs
        assert decode(schema, theirs) == (version, message)


def test_what_a_member_is_to_read_is_told_of_consumers_only() -> None:
    told = encode(CONSUMER_PROTOCOL_ASSIGNMENT, 1, {
        "assigned_partitions": [{"topic": "t", "partitions": [2, 0]}, {"topic": "u", "partitions": [1]}],
        "user_data": b"mine",
    })  # fmt: skip
    assert assigned_partitions("consumer", told) == [("t", 2), ("t", 0), ("u", 1)]
    assert assigned_partitions("connect", told) == assigned_partitions("consumer", b"") == []
    for garbage in (b"x", told[:-1], told + b"x", b"anything that another client puts there"):
        assert assigned_partitions("consumer", garbage) == []
