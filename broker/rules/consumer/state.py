"""A consumer group of KIP-848 as it is: its members, their assignments, its target, and its epochs.

The log holds facts (`consumer_facts`), and a group is what applying them in order makes of it. The rules
decide by making facts, which are written first and applied then; a restart applies them again. So the state
after a restart is the state before it, for there is no other way to change it.

Three epochs: the group's goes up with every change of who is in it or of what they read; the target's is the
group epoch a target assignment was made for; a member's is that of the target it has got to.
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
"""The epoch by which a member asks to come in, or to start over after it was fenced."""
LEAVE_EPOCH = -1
"""The epoch by which a member leaves."""
STATIC_LEAVE_EPOCH = -2
"""The epoch by which a static member leaves for a while; its place is kept till its session ends."""


class TopicInfo(NamedTuple):
    """A topic as groups see it."""

    name: str
    topic_id: bytes
    partitions: int


class Cluster(Protocol):
    """The topics there are."""

    @property
    def version(self) -> int:
        """A number that changes with them."""

    def topic(self, name: str) -> TopicInfo | None:
        """A topic by name."""

    def matching(self, regex: str) -> frozenset[str]:
        """The names of all topics that a regular expression, which must be valid, stands for."""


class GroupState(Enum):
    """State of a consumer group; the value is the name that describe and list show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member is on its way to the target, by its value in its record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """Who a member is and what it wants (ConsumerGroupMemberMetadataValue)."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """Where a member is (ConsumerGroupCurrentMemberAssignmentValue).

    `assigned` and `revoking` give for each partition the epoch at which the member got it.
    """

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Part, int] = field(default_factory=dict)
    revoking: Mapping[Part, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Member:
    """One member: who it is and where it is."""

    member_id: str
    profile: Profile = Profile()
    current: Current = Current()

    def reconciled_to(self, epoch: int) -> bool:
        """Tell whether it has got to the target of this epoch."""
        return self.current.state is MemberState.STABLE and self.current.epoch == epoch

    @property
    def owns(self) -> set[Part]:
        """What it may be reading: what it was given and what it has not given back yet."""
        return {*self.current.assigned, *self.current.revoking}


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics a regular expression stood for when it was last looked at."""

    topics: frozenset[str]
    version: int = 0
    timestamp: int = 0


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    """The refusal of one who is not in the group."""
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}")


@dataclass(slots=True)
class Group:
    """A consumer group. Changed by `consumer_facts.apply` alone."""

    group_id: str
    epoch: int = 1
    metadata_hash: int = 0
    target_epoch: int = 0
    target_timestamp: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, frozenset[Part]] = field(default_factory=dict)
    regexes: dict[str, Resolved] = field(default_factory=dict)
    owners: dict[Part, str] = field(default_factory=dict)
    """Who may be reading a partition now; follows from `members`."""
    instances: dict[str, str] = field(default_factory=dict)
    """The member that holds a static id; follows from `members`."""
    old_metadata: bool = False
    """True if there is a ConsumerGroupPartitionMetadata record, which brokers before 4.1 wrote."""
    seen_version: int = field(default=-1, compare=False)
    """The version of the cluster at which the topics subscribed to were last looked at. Not in the log."""

    def copy(self) -> Group:
        """A copy that can be changed without touching this group."""
        return replace(
            self,
            members=dict(self.members),
            targets=dict(self.targets),
            regexes=dict(self.regexes),
            owners=dict(self.owners),
            instances=dict(self.instances),
        )

    @property
    def state(self) -> GroupState:
        """The first of the states whose condition holds, in the order of this table."""
        conditions = (
            (GroupState.EMPTY, not self.members),
            (GroupState.ASSIGNING, self.epoch > self.target_epoch),
            (GroupState.STABLE, all(m.reconciled_to(self.target_epoch) for m in self.members.values())),
        )
        return next((state for state, holds in conditions if holds), GroupState.RECONCILING)

    def member(self, member_id: str) -> Member:
        """A member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise unknown_member(self.group_id, member_id)
        return found

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member that holds a static id now."""
        member_id = None if instance_id is None else self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target(self, member_id: str) -> frozenset[Part]:
        """What a member shall have in the end."""
        return self.targets.get(member_id, frozenset())

    def readers(self, regex: str) -> int:
        """How many members subscribe by this regular expression."""
        return sum(1 for member in self.members.values() if member.profile.regex == regex)

    def topics_of(self, profile: Profile) -> frozenset[str]:
        """The names of all topics that a member subscribes to; an unresolved expression stands for none."""
        resolved = self.regexes.get(profile.regex) if profile.regex else None
        return profile.topics if resolved is None else profile.topics | resolved.topics

    def subscribed(self) -> set[str]:
        """The names of all topics that any member subscribes to."""
        by_name = {name for member in self.members.values() for name in member.profile.topics}
        return by_name.union(*(resolved.topics for resolved in self.regexes.values()))
