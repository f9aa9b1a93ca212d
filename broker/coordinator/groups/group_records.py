"""Records of `__consumer_offsets`: from groups and offsets to Kafka's keys and values, and back.

Key kinds 0 and 1 are an offset (OffsetCommitKey), 2 is a classic group (GroupMetadataKey); a record
without value deletes what its key names. The other kinds that are served are in `consumer_records`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from eoslog.broker.coordinator.groups.committed_offsets import Committed
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.group_records import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
)
from eoslog.protocol.plain_records import Record
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
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
