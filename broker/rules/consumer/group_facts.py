"""Facts about consumer groups (KIP-848): the content of records in `__consumer_offsets`, and their effect.

There is a class for each kind of record (ConsumerGroup...Key and Value). A fact whose value is None is a
tombstone and removes what its key names. The rules make facts in Kafka's order: a member's tombstones are
current assignment, target, member; a group's last tombstone is that of its epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from eoslog.broker.rules.consumer.consumer_group_state import (
    LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
    CurrentAssignment,
    MemberProfile,
    Part,
    Resolved,
)


@dataclass(frozen=True, slots=True)
class EpochFact:
    """The group's epoch, and a hash of the topics it was made for. Without an epoch the group is deleted."""

    epoch: int | None
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class OldMetadataFact:
    """A ConsumerGroupPartitionMetadata record of older brokers exists, or is removed."""

    present: bool


@dataclass(frozen=True, slots=True)
class MemberFact:
    """Who a member is and what it wants."""

    member_id: str
    profile: MemberProfile | None


@dataclass(frozen=True, slots=True)
class TargetEpochFact:
    """The group epoch for which the target assignment was made, and when (ms since the epoch)."""

    epoch: int | None
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class TargetFact:
    """The target assignment of a member."""

    member_id: str
    parts: frozenset[Part] | None


@dataclass(frozen=True, slots=True)
class CurrentFact:
    """The current assignment of a member."""

    member_id: str
    current: CurrentAssignment | None


@dataclass(frozen=True, slots=True)
class RegexFact:
    """The topics that a regular expression matches."""

    regex: str
    resolved: Resolved | None


Fact = EpochFact | OldMetadataFact | MemberFact | TargetEpochFact | TargetFact | CurrentFact | RegexFact

T = TypeVar("T")

_GONE = CurrentAssignment(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)


def ends_group(fact: Fact) -> bool:
    """Whether this fact deletes the group."""
    return isinstance(fact, EpochFact) and fact.epoch is None


def makes_group(fact: Fact) -> bool:
    """Whether this fact creates a group that does not exist. A tombstone does not."""
    if isinstance(fact, EpochFact | TargetEpochFact):
        return fact.epoch is not None
    if isinstance(fact, OldMetadataFact):
        return fact.present
    return _value(fact) is not None


def _value(fact: MemberFact | TargetFact | CurrentFact | RegexFact) -> object:
    if isinstance(fact, MemberFact):
        return fact.profile
    if isinstance(fact, TargetFact):
        return fact.parts
    return fact.current if isinstance(fact, CurrentFact) else fact.resolved


def apply(group: ConsumerGroup, fact: Fact) -> None:
    """Apply one fact to `group`."""
    if isinstance(fact, EpochFact):
        group.epoch, group.metadata_hash = fact.epoch or 1, fact.metadata_hash
    elif isinstance(fact, OldMetadataFact):
        group.old_metadata = fact.present
    elif isinstance(fact, TargetEpochFact):
        group.target_epoch = 0 if fact.epoch is None else fact.epoch
        group.target_timestamp = fact.timestamp
    elif isinstance(fact, TargetFact):
        _put(group.targets, fact.member_id, fact.parts)
    elif isinstance(fact, RegexFact):
        _put(group.regexes, fact.regex, fact.resolved)
    elif isinstance(fact, MemberFact):
        _apply_profile(group, fact)
    else:
        _apply_current(group, fact)


def _put(table: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _apply_profile(group: ConsumerGroup, fact: MemberFact) -> None:
    old = group.members.get(fact.member_id)
    held = None if old is None else old.profile.instance_id
    if held is not None and group.instances.get(held) == fact.member_id:
        del group.instances[held]
    if fact.profile is None:
        if old is not None:
            _release(group, old)
            del group.members[fact.member_id]
        return
    group.members[fact.member_id] = replace(old or ConsumerGroupMember(fact.member_id), profile=fact.profile)
    if fact.profile.instance_id is not None:
        group.instances[fact.profile.instance_id] = fact.member_id


def _apply_current(group: ConsumerGroup, fact: CurrentFact) -> None:
    old = group.members.get(fact.member_id)
    if old is None and fact.current is None:
        return
    if old is not None:
        _release(group, old)
    member = replace(old or ConsumerGroupMember(fact.member_id), current=fact.current or _GONE)
    group.members[fact.member_id] = member
    for part in member.owns:
        group.owners[part] = member.member_id


def _release(group: ConsumerGroup, member: ConsumerGroupMember) -> None:
    for part in member.owns:
        if group.owners.get(part) == member.member_id:
            del group.owners[part]
