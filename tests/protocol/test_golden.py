"""Every message at every version, the coordinators' records too, against kio and bytes made by hand."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from dataclasses import MISSING
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

from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.fields import OWN_TAGS, Array, Struct, default_source
from eoslog.protocol.internal_topics.coordinator_records import (
    assigned_partitions,
    decode,
    encode,
    key_version,
)
from eoslog.protocol.messages.group_records import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from eoslog.protocol.messages.groups import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from eoslog.protocol.messages.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from eoslog.protocol.schema import ProtocolError, Schema
from tests.protocol import kio_oracle as oracle

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        GroupMetadataValueDraft,
        GroupMetadataValueMemberDraft,
        TransactionLogValueDraft,
    )


# -- messages ------------------------------------------------------------------------------------
# Every message at every version against kio, both ways, with generated values.

ROUNDS = 25


def cases() -> Iterator[Any]:
    for api in APIS.values():
        for kind, schema in (("request", api.request), ("response", api.response)):
            for version in range(schema.versions.first, schema.versions.last + 1):
                yield pytest.param(api.key, kind, schema, version, id=f"{schema.name}-v{version}")


every_message = pytest.mark.parametrize(("key", "kind", "schema", "version"), list(cases()))


def plain(value: Any) -> Any:
    """Views of records as bytes, so that whole messages compare."""
    match value:
        case memoryview():
            return bytes(value)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


def joined(schema: Schema, version: int, message: dict[str, Any]) -> bytes:
    return b"".join(schema.write(version, message))


@every_message
def test_bytes_and_values_agree_with_kio(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    entity_type = oracle.payload_type(key, kind, version)
    rng = random.Random(zlib.crc32(f"{schema.name} {version}".encode()))
    for _ in range(ROUNDS):
        value = oracle.random_value(entity_type, rng)
        theirs = oracle.encode(oracle.to_entity(entity_type, value))
        message = oracle.to_ours(entity_type, value, schema.struct, version)

        ours = joined(schema, version, message)
        assert ours == theirs, "our bytes are their bytes"
        decoded, end = schema.read(version, theirs)
        assert end == len(theirs)
        assert plain(decoded) == message, "our reading of their bytes is the value"
        reading = oracle.from_entity(oracle.decode(entity_type, ours))
        assert reading == value, "their reading of our bytes is the value"


@every_message
def test_an_unset_message_has_kios_defaults(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    entity_type = oracle.payload_type(key, kind, version)
    unset, _ = schema.read(version, joined(schema, version, {}))
    assert unset == {field.name: eval(default_source(field)) for field in schema.struct.fields}
    compare_defaults(entity_type, schema.struct, version)


def compare_defaults(entity_type: type[Any], struct: Struct, version: int) -> None:
    fields = {field.name: field for field in oracle.fields_of(entity_type)}
    for name, ours in oracle.our_names(entity_type, struct, version).items():
        theirs = fields[name]
        assert theirs.tag == ours.tag
        if theirs.nested is not None:
            inner = ours.type.of if isinstance(ours.type, Array) else ours.type
            assert isinstance(inner, Struct)
            compare_defaults(theirs.nested, inner, version)
        elif theirs.default is not MISSING:
            assert oracle.to_plain(theirs, theirs.default) == ours.default, f"default of {ours.name}"
        if not (theirs.kafka_type in ("uuid", "datetime_i64") and not theirs.is_array):
            assert theirs.nullable == (version in ours.nullable), f"nullability of {ours.name}"


OWN: list[tuple[ApiKey, str, dict[str, Any]]] = [
    (ApiKey.API_VERSIONS, "response", {"ends_together": True}),
    (
        ApiKey.END_TXN,
        "request",
        {"together": [{"transactional_id": "x", "producer_id": 7, "producer_epoch": 1}]},
    ),
    (ApiKey.END_TXN, "response", {"together": [{"transactional_id": "x", "error_code": 90}]}),
]


@pytest.mark.parametrize(("key", "kind", "own"), OWN)
def test_who_does_not_know_what_is_our_own_reads_the_rest(
    key: ApiKey, kind: str, own: dict[str, Any]
) -> None:
    """By tagged fields with numbers that Kafka will not come to."""
    api = APIS[key]
    schema, version = api.request if kind == "request" else api.response, api.max_version
    kafkas = [field for field in schema.struct.fields if (field.tag or 0) < OWN_TAGS]
    theirs = Schema(schema.name, f"0-{version}", flexible=schema.flexible_from, fields=kafkas)
    entity_type = oracle.payload_type(key, kind, version)
    value = oracle.random_value(entity_type, random.Random(1))
    message = oracle.to_ours(entity_type, value, theirs.struct, version)
    data = joined(schema, version, message | own)
    assert len(data) > len(joined(theirs, version, message))
    assert theirs.read(version, data) == (message, len(data))
    (name,) = own
    assert plain(schema.read(version, data)[0][name])


@every_message
def test_flexible_from_kios_version(key: ApiKey, kind: str, schema: Schema, version: int) -> None:
    assert oracle.payload_type(key, kind, version).__flexible__ == schema.is_flexible(version)


def test_every_served_version_has_a_message() -> None:
    for api in APIS.values():
        for schema in (api.request, api.response):
            assert schema.versions.first <= api.min_version <= api.max_version <= schema.versions.last
        assert api.request.flexible_from == api.response.flexible_from == api.flexible_from


# -- the coordinators' records -------------------------------------------------------------------
# The coordinators' records against bytes put together by hand; what consumers embed, against kio.
#
# No independent Python implementation has the records of `__transaction_state` and `__consumer_offsets`, so
# their expected bytes are written out field by field.


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
