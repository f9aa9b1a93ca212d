"""The state of a consumer group (KIP-848): its members, their assignments, its target, and its epochs.

The log holds facts, and a group is the result of applying them in order. A rule decides by making facts,
which are first written and then applied; a restart applies them again. There is no other way to change a
group, so the state after a restart is the state before it.

There are three epochs. The group's increases when its members or their topics change. The target's is the
group epoch that the target assignment was made for. A member's is that of the target it has reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from eoslog.protocol.errors import ErrorCode, KafkaError

Part = tuple[bytes, int]
"""A partition: (topic id, index)."""

JOIN_EPOCH = 0
"""The epoch with which a member joins, or starts over after it was fenced."""
LEAVE_EPOCH = -1
"""The epoch with which a member leaves."""
STATIC_LEAVE_EPOCH = -2
"""The epoch with which a static member leaves for a while; it keeps its place until its session ends."""


class TopicImage(NamedTuple):
    """A topic, as far as groups need it."""

    name: str
    topic_id: bytes
    partitions: int


class MetadataImage(Protocol):
    """The topics of the cluster."""

    @property
    def version(self) -> int:
        """A number that changes whenever they do."""

    def topic(self, name: str) -> TopicImage | None:
        """A topic by name."""

    def matching(self, regex: str) -> frozenset[str]:
        """The names of all topics that a valid regular expression matches."""


class ConsumerGroupState(Enum):
    """State of a consumer group; the value is the name that describe and list show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """A member's progress towards the target; the value is that in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class MemberProfile:
    """A member's client and subscription (ConsumerGroupMemberMetadataValue)."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """A member's current assignment (ConsumerGroupCurrentMemberAssignmentValue).

    `assigned` and `revoking` map each partition to the epoch at which the member got it.
    """

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Part, int] = field(default_factory=dict)
    revoking: Mapping[Part, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One member: its profile and its current assignment."""

    member_id: str
    profile: MemberProfile = MemberProfile()
    current: CurrentAssignment = CurrentAssignment()

    def reconciled_to(self, epoch: int) -> bool:
        """Whether it has reached the target of this epoch."""
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch

    @property
    def owns(self) -> set[Part]:
        """The partitions it may be reading: assigned ones, and those it has not given back yet."""
        return {*self.current.assigned, *self.current.revoking}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression matched when it was last resolved."""

    topics: frozenset[str]
    version: int = 0
    timestamp: int = 0


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    """The error for a member that is not in the group."""
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}")


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group. Only `apply` changes it."""

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    target_epoch: int = 0
    target_timestamp: int = 0
    members: dict[str, ConsumerGroupMember] = field(default_factory=dict)
    targets: dict[str, frozenset[Part]] = field(default_factory=dict)
    regexes: dict[str, Resolved] = field(default_factory=dict)
    owners: dict[Part, str] = field(default_factory=dict)
    """The member that may be reading a partition now; derived from `members`."""
    instances: dict[str, str] = field(default_factory=dict)
    """The member that holds a static id; derived from `members`."""
    old_metadata: bool = False
    """True if there is a ConsumerGroupPartitionMetadata record, which brokers before 4.1 wrote."""
    seen_version: int = field(default=-1, compare=False)
    """The cluster's version when the subscribed topics were last checked. Not in the log."""

    def copy(self) -> ConsumerGroup:
        """A copy that can be changed without changing this group."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            owners=dict(self.owners),
            instances=dict(self.instances),
        )

    @property
    def state(self) -> ConsumerGroupState:
        """The first of the states whose condition holds, in the order of this table."""
        conditions = (
            (ConsumerGroupState.EMPTY, not self.members),
            (ConsumerGroupState.ASSIGNING, self.epoch > self.target_epoch),
            (
                ConsumerGroupState.STABLE,
                all(m.reconciled_to(self.target_epoch) for m in self.members.values()),
            ),
        )
        return next((state for state, holds in conditions if holds), ConsumerGroupState.RECONCILING)

    def member(self, member_id: str) -> ConsumerGroupMember:
        """A member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise unknown_member(self.group_id, member_id)
        return found

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member that holds a static id now."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> frozenset[Part]:
        """The target assignment of a member."""
        return self.targets.get(member_id, frozenset())

    def readers(self, regex: str) -> int:
        """How many members subscribe with this regular expression."""
        return sum(1 for member in self.members.values() if member.profile.regex == regex)

    def topics_of(self, profile: MemberProfile) -> frozenset[str]:
        """The names of all topics that a member subscribes to; an unresolved expression matches none."""
        resolved = self.regexes.get(profile.regex) if profile.regex else None
        return profile.topics if resolved is None else profile.topics | resolved.topics

    def subscribed(self) -> set[str]:
        """The names of all topics that any member subscribes to."""
        by_name = {name for member in self.members.values() for name in member.profile.topics}
        return by_name.union(*(resolved.topics for resolved in self.regexes.values()))
