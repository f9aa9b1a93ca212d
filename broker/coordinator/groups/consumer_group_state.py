"""The state of a consumer group (KIP-848), and the patterns that its members subscribe to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from types import ModuleType

# -- subscription regex ----------------------------------------------------------------------------
# Subscriptions by regular expression (KIP-848): RE2's dialect, as in Kafka, matched against whole names.
#
# RE2 takes time linear in the text for every expression, so no client can stop the broker with one.


def _re2() -> ModuleType:
    import re2  # only a broker that serves needs it: see `load`

    module: ModuleType = re2
    return module


def load() -> None:
    """Import RE2, so that no group has to wait for it later."""
    _re2()


@lru_cache(maxsize=64)
def _compiled(regex: str) -> Any:
    options = _re2().Options()
    options.log_errors = False
    return _re2().compile(regex, options)


def check_regex(regex: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION unless `regex` is one."""
    try:
        _compiled(regex)
    except _re2().error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{regex!r} is not a valid regular expression: {error}"
        ) from error


def matching(regex: str, names: Iterable[str]) -> frozenset[str]:
    """The `names` that `regex`, a valid expression, matches."""
    pattern = _compiled(regex)
    return frozenset(name for name in names if pattern.fullmatch(name) is not None)


# -- consumer group state --------------------------------------------------------------------------
# The state of a consumer group (KIP-848): its members, their assignments, its target, and its epochs.
#
# The log holds facts, and a group is the result of applying them in order. A rule decides by making facts,
# which are first written and then applied; a restart applies them again. There is no other way to change a
# group, so the state after a restart is the state before it.
#
# There are three epochs. The group's increases when its members or their topics change. The target's is the
# group epoch that the target assignment was made for. A member's is that of the target it has reached.
#
# A fact is the content of a record in `__consumer_offsets`. There is a class for each kind of record
# (ConsumerGroup...Key and Value). A fact whose value is None is a tombstone and removes what its key names.
# The rules make facts in Kafka's order: a member's tombstones are current assignment, target, member; a
# group's last tombstone is that of its epoch.


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


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """The options that the rules need, for one group, under Kafka's names with dots as underscores."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first one is the default."""


@dataclass(frozen=True, slots=True)
class Now:
    """The time by both clocks, in ms: `monotonic` for deadlines, `wall` (since the epoch) for records."""

    monotonic: int
    wall: int


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    """ConsumerGroupHeartbeat. A field is None where the request omits it because nothing changed."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: frozenset[Part] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def complete(self) -> bool:
        """True if it has every field; then the answer must have every field too."""
        says_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and says_topics and self.owned is not None


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatAnswer:
    """Answer to a heartbeat; `assignment` is None if the member already has it."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assignment: frozenset[Part] | None = None


class Timer(Enum):
    """The deadlines that a member can have."""

    SESSION = "its session ended"
    REBALANCE = "it did not give its partitions back in time"


Deadlines = dict[tuple[Timer, str], int | None]
"""By timer and member id: the deadline (monotonic ms), or None to stop it."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupResult:
    """The result of a step: write `facts`, then replace the group by `group`, set `deadlines`, and answer."""

    group: ConsumerGroup
    facts: tuple[Fact, ...] = ()
    deadlines: Deadlines = field(default_factory=dict)


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
