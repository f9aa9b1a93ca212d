"""Records of `__consumer_offsets` that keep consumer groups (KIP-848): facts to keys and values, and back.

Key kinds: 3 the group's epoch; 4 topics as brokers before 4.1 kept them (only ever deleted here); 5 a member;
6 the epoch of the target assignment; 7 a member's target assignment; 8 its current assignment; 16 a regular
expression. A record without value deletes what its key names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from eoslog.broker.rules.consumer.facts import (
    CurrentFact,
    EpochFact,
    Fact,
    MemberFact,
    OldMetadataFact,
    RegexFact,
    TargetEpochFact,
    TargetFact,
)
from eoslog.broker.rules.consumer.state import Current, MemberState, Part, Profile, Resolved
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages import consumer_group_metadata as messages
from eoslog.protocol.plain_records import Record
from eoslog.protocol.schema import Message, ProtocolError, Schema

KeyValue = tuple[bytes, bytes | None]

_EPOCH, _OLD_METADATA, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX = 3, 4, 5, 6, 7, 8, 16

_SCHEMAS: dict[int, tuple[Schema, Schema]] = {
    _EPOCH: (messages.CONSUMER_GROUP_METADATA_KEY, messages.CONSUMER_GROUP_METADATA_VALUE),
    _OLD_METADATA: (
        messages.CONSUMER_GROUP_PARTITION_METADATA_KEY,
        messages.CONSUMER_GROUP_PARTITION_METADATA_VALUE,
    ),
    _MEMBER: (messages.CONSUMER_GROUP_MEMBER_METADATA_KEY, messages.CONSUMER_GROUP_MEMBER_METADATA_VALUE),
    _TARGET_EPOCH: (
        messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY,
        messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE,
    ),
    _TARGET: (
        messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY,
        messages.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE,
    ),
    _CURRENT: (
        messages.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY,
        messages.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE,
    ),
    _REGEX: (
        messages.CONSUMER_GROUP_REGULAR_EXPRESSION_KEY,
        messages.CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE,
    ),
}
KINDS = frozenset(_SCHEMAS)
"""The kinds of keys that `decode` understands."""


def encode(group_id: str, fact: Fact) -> KeyValue:
    """Encode a fact about a group."""
    kind, names, value = _parts_of(fact)
    key_schema, value_schema = _SCHEMAS[kind]
    key = coordinator_records.encode(key_schema, kind, {"group_id": group_id, **names})
    return key, None if value is None else coordinator_records.encode(value_schema, 0, value)


def decode(record: Record) -> tuple[str, Fact]:
    """Decode a record of one of `KINDS`: the group and the fact. Raises ProtocolError."""
    key = record.key or b""
    kind = coordinator_records.key_version(key)
    key_schema, value_schema = _SCHEMAS[kind]
    _, names = coordinator_records.decode(key_schema, key)
    value = None if record.value is None else coordinator_records.decode(value_schema, record.value)[1]
    return names["group_id"], _READERS[kind](names, value)


def _parts_of(fact: Fact) -> tuple[int, Message, Message | None]:
    """The kind of a fact's record, the fields of its key other than the group, and its value."""
    if isinstance(fact, EpochFact):
        epoch = {"epoch": fact.epoch, "metadata_hash": fact.metadata_hash}
        return _EPOCH, {}, None if fact.epoch is None else epoch
    if isinstance(fact, TargetEpochFact):
        target = {"assignment_epoch": fact.epoch, "assignment_timestamp": fact.timestamp}
        return _TARGET_EPOCH, {}, None if fact.epoch is None else target
    if isinstance(fact, OldMetadataFact):
        return _OLD_METADATA, {}, {"topics": []} if fact.present else None
    if isinstance(fact, RegexFact):
        return _REGEX, {"regular_expression": fact.regex}, _write_resolved(fact.resolved)
    member = {"member_id": fact.member_id}
    if isinstance(fact, MemberFact):
        return _MEMBER, member, _write_profile(fact.profile)
    if isinstance(fact, CurrentFact):
        return _CURRENT, member, _write_current(fact.current)
    parts = None if fact.parts is None else {"topic_partitions": write_parts(fact.parts)}
    return _TARGET, member, parts


def _write_resolved(resolved: Resolved | None) -> Message | None:
    if resolved is None:
        return None
    topics = sorted(resolved.topics)
    return {"topics": topics, "version": resolved.version, "timestamp": resolved.timestamp}


def _write_profile(profile: Profile | None) -> Message | None:
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


def _write_current(current: Current | None) -> Message | None:
    if current is None:
        return None
    return {
        "member_epoch": current.epoch,
        "previous_member_epoch": current.previous_epoch,
        "state": int(current.state),
        "assigned_partitions": _write_epochs(current.assigned),
        "partitions_pending_revocation": _write_epochs(current.revoking),
    }


def write_parts(parts: Iterable[Part]) -> list[Message]:
    """Partitions by topic, sorted, as records, heartbeats and descriptions have them."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(parts):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]


def _write_epochs(parts: Mapping[Part, int]) -> list[Message]:
    topics = write_parts(parts)
    for topic in topics:
        topic["assignment_epochs"] = [parts[topic["topic_id"], index] for index in topic["partitions"]]
    return topics


def _read_parts(topics: Iterable[Message]) -> frozenset[Part]:
    return frozenset((bytes(topic["topic_id"]), index) for topic in topics for index in topic["partitions"])


def _read_epochs(topics: Iterable[Message], epoch: int) -> dict[Part, int]:
    """Brokers before 4.3 wrote no epoch for each partition; the member's epoch is used instead."""
    parts: dict[Part, int] = {}
    for topic in topics:
        epochs = topic["assignment_epochs"] or [epoch] * len(topic["partitions"])
        pairs = zip(topic["partitions"], epochs, strict=True)
        parts.update({(bytes(topic["topic_id"]), index): since for index, since in pairs})
    return parts


def _read_epoch(names: Message, value: Message | None) -> Fact:
    return EpochFact(None) if value is None else EpochFact(value["epoch"], value["metadata_hash"])


def _read_old_metadata(names: Message, value: Message | None) -> Fact:
    return OldMetadataFact(value is not None)


def _read_member(names: Message, value: Message | None) -> Fact:
    if value is None:
        return MemberFact(names["member_id"], None)
    profile = Profile(
        instance_id=value["instance_id"],
        rack_id=value["rack_id"],
        client_id=value["client_id"],
        client_host=value["client_host"],
        topics=frozenset(value["subscribed_topic_names"]),
        regex=value["subscribed_topic_regex"] or "",
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        assignor=value["server_assignor"],
    )
    return MemberFact(names["member_id"], profile)


def _read_target_epoch(names: Message, value: Message | None) -> Fact:
    if value is None:
        return TargetEpochFact(None)
    return TargetEpochFact(value["assignment_epoch"], value["assignment_timestamp"])


def _read_target(names: Message, value: Message | None) -> Fact:
    return TargetFact(names["member_id"], None if value is None else _read_parts(value["topic_partitions"]))


def _read_current(names: Message, value: Message | None) -> Fact:
    if value is None:
        return CurrentFact(names["member_id"], None)
    try:
        state = MemberState(value["state"])
    except ValueError as error:
        raise ProtocolError(
            f"member {names['member_id']} is in the unknown state {value['state']}"
        ) from error
    epoch = value["member_epoch"]
    current = Current(
        epoch=epoch,
        previous_epoch=value["previous_member_epoch"],
        state=state,
        assigned=_read_epochs(value["assigned_partitions"], epoch),
        revoking=_read_epochs(value["partitions_pending_revocation"], epoch),
    )
    return CurrentFact(names["member_id"], current)


def _read_regex(names: Message, value: Message | None) -> Fact:
    regex = names["regular_expression"]
    if value is None:
        return RegexFact(regex, None)
    resolved = Resolved(frozenset(value["topics"]), value["version"], value["timestamp"])
    return RegexFact(regex, resolved)


_READERS: dict[int, Callable[[Message, Message | None], Fact]] = {
    _EPOCH: _read_epoch,
    _OLD_METADATA: _read_old_metadata,
    _MEMBER: _read_member,
    _TARGET_EPOCH: _read_target_epoch,
    _TARGET: _read_target,
    _CURRENT: _read_current,
    _REGEX: _read_regex,
}
