"""A classic consumer group: its states, its members, and the legal transitions as a table.

Data and simple queries. Deadlines are milliseconds of a monotonic clock, which the caller reads.

Sources: Apache Kafka's classic group protocol with KIP-394 (member id required), KIP-345 (static
members), KIP-559 (protocol type and name in answers), KIP-814 (skip assignment).

The events that reach it and its answers follow. A `ticket` is a number that the caller gives to a request.
The answer comes back under that number, from the same step or a later one (joins and syncs are parked until
the group can answer them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from eoslog.protocol.errors import ErrorCode

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in its order of preference: (name, metadata)."""


class ClassicGroupState(Enum):
    """State of a classic group; the value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.PREPARING: frozenset(
        {ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING, ClassicGroupState.STABLE}
    ),
    ClassicGroupState.COMPLETING: frozenset({ClassicGroupState.PREPARING}),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.COMPLETING}),
    ClassicGroupState.DEAD: frozenset(ClassicGroupState),
}
"""For each state, the states that may precede it."""


class IllegalGroupTransition(AssertionError):
    """A rule made a transition that PREDECESSORS does not have: a bug in the rules."""


@dataclass(frozen=True, slots=True)
class ClassicGroupSettings:
    """The broker's options that the rules need, under Kafka's names with dots as underscores."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class ClassicGroupMember:
    """One member. `join_ticket` and `sync_ticket` name the request that still waits for its answer."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    session_deadline: int | None = None
    is_new: bool = False
    """True until its first join is answered: until then it has no id for heartbeats."""

    def metadata(self, protocol: str) -> bytes:
        """Return this member's metadata for `protocol`, empty if it does not name it."""
        return dict(self.protocols).get(protocol, b"")

    @property
    def parked(self) -> bool:
        """True while a join or sync of it waits here. This counts as a heartbeat, but not for new members."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


@dataclass(slots=True)
class ClassicGroup:
    """A classic group. Events work on a copy and never change the group they were given."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Ids that were given out with MEMBER_ID_REQUIRED and have not joined yet, and when they expire."""
    pending_sync: frozenset[str] = frozenset()
    """Members of this generation that have not asked for their assignment yet."""
    join_deadline: int | None = None
    sync_deadline: int | None = None
    initial: bool = False
    """True in the first rebalance after Empty, which waits for its delay even if all have joined."""
    initial_remaining_ms: int = 0
    grew: bool = False
    """True if a member joined during the initial delay, which is extended then."""
    state_since: int = field(default=-1, compare=False)
    """When it entered its state (ms since the epoch), -1 if unknown; the caller sets it."""

    def copy(self) -> ClassicGroup:
        """A copy that can be changed without changing this group."""
        return replace(self, members=dict(self.members), pending=dict(self.pending))

    @property
    def vacant(self) -> bool:
        """True if nothing is lost with the group: no generation yet, and no members present or expected."""
        return self.state is ClassicGroupState.EMPTY and self.generation == 0 and not self.pending

    def static_member(self, instance_id: str) -> ClassicGroupMember | None:
        """The member that holds `instance_id` now."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def all_joined(self) -> bool:
        """True if every member has joined and no given-out id is still expected."""
        return not self.pending and all(m.join_ticket is not None for m in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance time-out among the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def candidates(self) -> set[str]:
        """Return the protocols that every member supports."""
        counts = Counter(name for m in self.members.values() for name in {name for name, _ in m.protocols})
        return {name for name, count in counts.items() if count == len(self.members)}

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Tell whether a member with these protocols can be in the group with the others."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(protocols)
        common = self.candidates()
        return any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all members support; the most votes win."""
        common = self.candidates()
        votes = Counter(next(n for n, _ in m.protocols if n in common) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def next_deadline(self) -> int | None:
        """The earliest time at which a Tick would have an effect."""
        times: Iterable[int | None] = (
            self.join_deadline,
            self.sync_deadline,
            *self.pending.values(),
            *(m.session_deadline for m in self.members.values()),
        )
        return min((t for t in times if t is not None), default=None)


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup. `new_member_id` is the id to use if the group must assign one."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    new_member_id: str
    requires_known_id: bool = True
    """True from version 4 (KIP-394): an unknown dynamic member first gets an id, then joins again."""
    can_skip_assignment: bool = False
    """True from version 9 (KIP-814): the leader understands skip_assignment."""


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup. `protocol_type` and `protocol` are None before version 5."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of one member."""

    member_id: str
    instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup: (member id, group instance id) of each leaving member; id empty = by instance id."""

    members: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: check the deadlines."""


Request = Join | Sync | Heartbeat | Leave
Event = Request | Tick


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """Answer to a join; the leader gets `members`: (member id, group instance id, metadata)."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """Answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Answer to a heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class LeaveAnswer:
    """Answer to a leave: (member id, group instance id, error) in the order of the request."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[tuple[str, str | None, ErrorCode], ...] = ()


Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer | LeaveAnswer

ANSWER_TO: dict[type[Request], type[Answer]] = {
    Join: JoinAnswer,
    Sync: SyncAnswer,
    Heartbeat: HeartbeatAnswer,
    Leave: LeaveAnswer,
}
"""The type of answer to each request."""


@dataclass(frozen=True, slots=True)
class ClassicGroupResult:
    """The result of a step. If `persist`, write the group's metadata before any effect is visible."""

    group: ClassicGroup
    answers: tuple[tuple[int, Answer], ...] = ()
    persist: bool = False
