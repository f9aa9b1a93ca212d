"""Records of `__consumer_offsets`: from groups and offsets to Kafka's keys and values, and back.

Key kinds 0 and 1 are an offset (OffsetCommitKey), 2 is a classic group (GroupMetadataKey); a record
without value deletes what its key names. Those of KIP-848 follow below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from eoslog.broker.coordinator.groups.committed_offsets import Committed
from eoslog.broker.coordinator.groups.consumer_group_state import (
    CurrentAssignment,
    CurrentFact,
    EpochFact,
    Fact,
    MemberFact,
    MemberProfile,
    MemberState,
    OldMetadataFact,
    Part,
    RegexFact,
    Resolved,
    TargetEpochFact,
    TargetFact,
)
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages import group_records as messages
from eoslog.protocol.messages.group_records import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from eoslog.protocol.plain_records import Record
from eoslog.protocol.schema import Given, ProtocolError, Schema
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupCurrentMemberAssignmentValueAssignedPartition,
        ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDraft,
        ConsumerGroupCurrentMemberAssignmentValueDraft,
        ConsumerGroupHeartbeatResponseTopicPartitionDraft,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupMemberMetadataValueDraft,
        ConsumerGroupRegularExpressionValueDraft,
        ConsumerGroupTargetAssignmentMemberValueTopicPartition,
        GroupMetadataValueDraft,
        GroupMetadataValueMember,
        GroupMetadataValueMemberDraft,
        OffsetCommitKeyDraft,
        OffsetCommitValueDraft,
    )

KeyValue = tuple[bytes, bytes | None]

_OFFSET_KEY, _GROUP_KEY = 1, 2
_OFFSET_KEYS = (0, 1)
_OFFSET_VALUE, _EXPIRING_VALUE, _GROUP_VALUE = 4, 1, 3


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """The content of an offset's record. `value` is None if it deletes the offset."""

    group_id: str
    place: TopicPartition
    value: Committed | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The content of a group's record. `group` is None if it deletes the group. Members have no deadlines."""

    group_id: str
    group: ClassicGroup | None


def encode_offset(group_id: str, place: TopicPartition, value: Committed) -> KeyValue:
    """Encode a committed offset."""
    body: OffsetCommitValueDraft = {
        "offset": value.offset,
        "leader_epoch": value.leader_epoch,
        "metadata": value.metadata,
        "commit_timestamp": value.commit_timestamp,
        "topic_id": value.topic_id,
    }
    key = encode_offset_tombstone(group_id, place)[0]
    if value.expire_timestamp == -1:
        return key, coordinator_records.encode(OFFSET_COMMIT_VALUE, _OFFSET_VALUE, body)
    # Only this version has a field for it.
    body["expire_timestamp"] = value.expire_timestamp
    return key, coordinator_records.encode(OFFSET_COMMIT_VALUE, _EXPIRING_VALUE, body)


def encode_offset_tombstone(group_id: str, place: TopicPartition) -> KeyValue:
    """Encode the deletion of a committed offset."""
    key: OffsetCommitKeyDraft = {"group": group_id, "topic": place[0], "partition": place[1]}
    return coordinator_records.encode(OFFSET_COMMIT_KEY, _OFFSET_KEY, key), None


def encode_group(group: ClassicGroup, state_timestamp: int) -> KeyValue:
    """Encode a group's metadata. `state_timestamp`: when it entered its state, ms since the epoch."""
    body: GroupMetadataValueDraft = {
        "protocol_type": group.protocol_type or "",
        "generation": group.generation,
        "protocol": group.protocol,
        "leader": group.leader,
        "current_state_timestamp": state_timestamp,
        "members": [_encode_member(member, group.protocol or "") for member in group.members.values()],
    }
    key = encode_group_tombstone(group.group_id)[0]
    return key, coordinator_records.encode(GROUP_METADATA_VALUE, _GROUP_VALUE, body)


def encode_group_tombstone(group_id: str) -> KeyValue:
    """Encode the deletion of a group."""
    return coordinator_records.encode(GROUP_METADATA_KEY, _GROUP_KEY, {"group": group_id}), None


def _encode_member(member: ClassicGroupMember, protocol: str) -> GroupMetadataValueMemberDraft:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "rebalance_timeout": member.rebalance_timeout_ms,
        "session_timeout": member.session_timeout_ms,
        "subscription": member.metadata(protocol),
        "assignment": member.assignment,
    }


def decode(record: Record) -> OffsetRecord | GroupRecord | None:
    """Decode a record. None if it is of a kind that is not written here. Raises ProtocolError."""
    key = record.key or b""
    kind = coordinator_records.key_version(key)
    if kind in _OFFSET_KEYS:
        return _decode_offset(key, record)
    if kind == _GROUP_KEY:
        return _decode_group(key, record)
    return None


def _decode_offset(key: bytes, record: Record) -> OffsetRecord:
    _, names = coordinator_records.decode(OFFSET_COMMIT_KEY, key)
    value = None
    if record.value is not None:
        _, body = coordinator_records.decode(OFFSET_COMMIT_VALUE, record.value)
        value = Committed(
            offset=body["offset"],
            leader_epoch=body["leader_epoch"],
            metadata=body["metadata"],
            commit_timestamp=body["commit_timestamp"],
            record_offset=record.offset,
            topic_id=body["topic_id"],
            expire_timestamp=body["expire_timestamp"],
        )
    return OffsetRecord(names["group"], (names["topic"], names["partition"]), value)


def _decode_group(key: bytes, record: Record) -> GroupRecord:
    _, names = coordinator_records.decode(GROUP_METADATA_KEY, key)
    group_id = names["group"]
    if record.value is None:
        return GroupRecord(group_id, None)
    _, body = coordinator_records.decode(GROUP_METADATA_VALUE, record.value)
    protocol = body["protocol"]
    members = [_decode_member(member, protocol or "") for member in body["members"]]
    group = ClassicGroup(
        group_id=group_id,
        state=ClassicGroupState.STABLE if members else ClassicGroupState.EMPTY,
        generation=body["generation"],
        protocol_type=body["protocol_type"] or None,
        protocol=protocol,
        leader=body["leader"] or None,
        state_since=body["current_state_timestamp"],
        members={member.member_id: member for member in members},
    )
    return GroupRecord(group_id, group)


def _decode_member(body: GroupMetadataValueMember, protocol: str) -> ClassicGroupMember:
    rebalance_timeout = body["rebalance_timeout"]
    return ClassicGroupMember(
        member_id=body["member_id"],
        instance_id=body["group_instance_id"],
        client_id=body["client_id"],
        client_host=body["client_host"],
        session_timeout_ms=body["session_timeout"],
        rebalance_timeout_ms=body["session_timeout"] if rebalance_timeout == -1 else rebalance_timeout,
        protocols=((protocol, bytes(body["subscription"])),),
        assignment=bytes(body["assignment"]),
    )


# -- consumer records ------------------------------------------------------------------------------
# Records of `__consumer_offsets` that keep consumer groups (KIP-848): facts to keys and values, and back.
#
# Key kinds: 3 the group's epoch; 4 topics as brokers before 4.1 kept them (only ever deleted here); 5 a
# member; 6 the epoch of the target assignment; 7 a member's target assignment; 8 its current assignment; 16
# a regular expression. A record without value deletes what its key names.


KeyRead = TypeVar("KeyRead")
KeyDraft = TypeVar("KeyDraft")
ValueRead = TypeVar("ValueRead")
ValueDraft = TypeVar("ValueDraft")


class _Kind(NamedTuple, Generic[KeyRead, KeyDraft, ValueRead, ValueDraft]):
    """A kind of record: the int16 before its key, and what key and value are."""

    number: int
    key: Schema[KeyRead, KeyDraft]
    value: Schema[ValueRead, ValueDraft]

    def written(self, key: Given[KeyDraft], value: Given[ValueDraft] | None) -> KeyValue:
        """A record of this kind."""
        body = None if value is None else coordinator_records.encode(self.value, 0, value)
        return coordinator_records.encode(self.key, self.number, key), body

    def read(self, key: bytes, value: bytes | None) -> tuple[KeyRead, ValueRead | None]:
        """What a record of this kind says. Raises ProtocolError."""
        body = None if value is None else coordinator_records.decode(self.value, value)[1]
        return coordinator_records.decode(self.key, key)[1], body


_EPOCH = _Kind(3, messages.CONSUMER_GROUP_METADATA_KEY, messages.CONSUMER_GROUP_METADATA_VALUE)
_OLD_METADATA = _Kind(
    4, messages.CONSUMER_GROUP_PARTITION_METADATA_KEY, messages.CONSUMER_GROUP_PARTITION_METADATA_VALUE
)
_MEMBER = _Kind(5, messages.CONSUMER_GROUP_MEMBER_METADATA_KEY, messages.CONSUMER_GROUP_MEMBER_METADATA_VALUE)
_TARGET_EPOCH = _Kind(
    6,
    messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
    messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
)
_TARGET = _Kind(
    7,
    messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
    messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
)
_CURRENT = _Kind(
    8,
    messages.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
    messages.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
)
_REGEX = _Kind(
    16, messages.CONSUMER_GROUP_REGULAR_EXPRESSION_KEY, messages.CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE
)


def encode_fact(group_id: str, fact: Fact) -> KeyValue:
    """Encode a fact about a group."""
    if isinstance(fact, EpochFact):
        epoch, metadata_hash = fact.epoch, fact.metadata_hash
        return _EPOCH.written(
            {"group_id": group_id},
            None if epoch is None else {"epoch": epoch, "metadata_hash": metadata_hash},
        )
    if isinstance(fact, TargetEpochFact):
        epoch, timestamp = fact.epoch, fact.timestamp
        return _TARGET_EPOCH.written(
            {"group_id": group_id},
            None if epoch is None else {"assignment_epoch": epoch, "assignment_timestamp": timestamp},
        )
    if isinstance(fact, OldMetadataFact):
        return _OLD_METADATA.written({"group_id": group_id}, {"topics": []} if fact.present else None)
    if isinstance(fact, RegexFact):
        return _REGEX.written(
            {"group_id": group_id, "regular_expression": fact.regex}, _write_resolved(fact.resolved)
        )
    return _encode_of_member(group_id, fact)


def _encode_of_member(group_id: str, fact: MemberFact | CurrentFact | TargetFact) -> KeyValue:
    if isinstance(fact, MemberFact):
        return _MEMBER.written(
            {"group_id": group_id, "member_id": fact.member_id}, _write_profile(fact.profile)
        )
    if isinstance(fact, CurrentFact):
        return _CURRENT.written(
            {"group_id": group_id, "member_id": fact.member_id}, _write_current(fact.current)
        )
    parts = None if fact.parts is None else write_parts(fact.parts)
    return _TARGET.written(
        {"group_id": group_id, "member_id": fact.member_id},
        None if parts is None else {"topic_partitions": parts},
    )


def decode_fact(record: Record) -> tuple[str, Fact]:
    """Decode a record of one of `KINDS`: the group and the fact. Raises ProtocolError."""
    key = record.key or b""
    return _READERS[coordinator_records.key_version(key)](key, record.value)


def _write_resolved(resolved: Resolved | None) -> ConsumerGroupRegularExpressionValueDraft | None:
    if resolved is None:
        return None
    topics = sorted(resolved.topics)
    return {"topics": topics, "version": resolved.version, "timestamp": resolved.timestamp}


def _write_profile(profile: MemberProfile | None) -> ConsumerGroupMemberMetadataValueDraft | None:
    if profile is None:
        return None
    return {
        "instance_id": profile.instance_id,
        "rack_id": profile.rack_id,
        "client_id": profile.client_id,
        "client_host": profile.client_host,
        "subscribed_topic_names": sorted(profile.topics),
        "subscribed_topic_regex": profile.regex,
        "rebalance_timeout_ms": profile.rebalance_timeout_ms,
        "server_assignor": profile.assignor,
    }


def _write_current(
    current: CurrentAssignment | None,
) -> ConsumerGroupCurrentMemberAssignmentValueDraft | None:
    if current is None:
        return None
    return {
        "member_epoch": current.epoch,
        "previous_member_epoch": current.previous_epoch,
        "state": int(current.state),
        "assigned_partitions": _write_epochs(current.assigned),
        "partitions_pending_revocation": _write_epochs(current.revoking),
    }


def write_parts(parts: Iterable[Part]) -> list[ConsumerGroupHeartbeatResponseTopicPartitionDraft]:
    """Partitions by topic, sorted, as records, heartbeats and descriptions have them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(parts):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]


def _write_epochs(
    parts: Mapping[Part, int],
) -> list[ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDraft]:
    return [
        {**topic, "assignment_epochs": [parts[topic["topic_id"], index] for index in topic["partitions"]]}
        for topic in write_parts(parts)
    ]


def _read_parts(topics: Iterable[ConsumerGroupTargetAssignmentMemberValueTopicPartition]) -> frozenset[Part]:
    return frozenset((bytes(topic["topic_id"]), index) for topic in topics for index in topic["partitions"])


def _read_epochs(
    topics: Iterable[ConsumerGroupCurrentMemberAssignmentValueAssignedPartition], epoch: int
) -> dict[Part, int]:
    """Brokers before 4.3 wrote no epoch for each partition; the member's epoch is used instead."""
    parts: dict[Part, int] = {}
    for topic in topics:
        epochs = topic["assignment_epochs"] or [epoch] * len(topic["partitions"])
        pairs = zip(topic["partitions"], epochs, strict=True)
        parts.update({(bytes(topic["topic_id"]), index): since for index, since in pairs})
    return parts


def _read_epoch(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _EPOCH.read(key, value)
    fact = EpochFact(None) if body is None else EpochFact(body["epoch"], body["metadata_hash"])
    return names["group_id"], fact


def _read_old_metadata(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _OLD_METADATA.read(key, value)
    return names["group_id"], OldMetadataFact(body is not None)


def _read_member(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _MEMBER.read(key, value)
    return names["group_id"], MemberFact(names["member_id"], None if body is None else _profile(body))


def _profile(body: ConsumerGroupMemberMetadataValue) -> MemberProfile:
    return MemberProfile(
        instance_id=body["instance_id"],
        rack_id=body["rack_id"],
        client_id=body["client_id"],
        client_host=body["client_host"],
        topics=frozenset(body["subscribed_topic_names"]),
        regex=body["subscribed_topic_regex"] or "",
        rebalance_timeout_ms=body["rebalance_timeout_ms"],
        assignor=body["server_assignor"],
    )


def _read_target_epoch(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _TARGET_EPOCH.read(key, value)
    if body is None:
        return names["group_id"], TargetEpochFact(None)
    return names["group_id"], TargetEpochFact(body["assignment_epoch"], body["assignment_timestamp"])


def _read_target(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _TARGET.read(key, value)
    parts = None if body is None else _read_parts(body["topic_partitions"])
    return names["group_id"], TargetFact(names["member_id"], parts)


def _read_current(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _CURRENT.read(key, value)
    member_id = names["member_id"]
    return names["group_id"], CurrentFact(member_id, None if body is None else _current(member_id, body))


def _current(member_id: str, body: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    try:
        state = MemberState(body["state"])
    except ValueError as error:
        raise ProtocolError(f"member {member_id} is in the unknown state {body['state']}") from error
    epoch = body["member_epoch"]
    return CurrentAssignment(
        epoch=epoch,
        previous_epoch=body["previous_member_epoch"],
        state=state,
        assigned=_read_epochs(body["assigned_partitions"], epoch),
        revoking=_read_epochs(body["partitions_pending_revocation"], epoch),
    )


def _read_regex(key: bytes, value: bytes | None) -> tuple[str, Fact]:
    names, body = _REGEX.read(key, value)
    resolved = None
    if body is not None:
        resolved = Resolved(frozenset(body["topics"]), body["version"], body["timestamp"])
    return names["group_id"], RegexFact(names["regular_expression"], resolved)


_READERS: dict[int, Callable[[bytes, bytes | None], tuple[str, Fact]]] = {
    _EPOCH.number: _read_epoch,
    _OLD_METADATA.number: _read_old_metadata,
    _MEMBER.number: _read_member,
    _TARGET_EPOCH.number: _read_target_epoch,
    _TARGET.number: _read_target,
    _CURRENT.number: _read_current,
    _REGEX.number: _read_regex,
}
FACT_KINDS = frozenset(_READERS)
"""The kinds of keys that `decode` understands."""
