"""What a classic consumer group is: its states, its members, and the legal transitions as a table.

Data and small questions about it, no events (those are in `classic_group`). Deadlines are
milliseconds of a monotonic clock; nothing here knows where that clock is.

Sources: Apache Kafka's classic group protocol with KIP-394 (member id required), KIP-345 (static
members), KIP-559 (protocol type and name in answers), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

Protocols = tuple[tuple[str, bytes], ...]
"""A member's protocols in the order it prefers them: (name, metadata)."""


class GroupState(Enum):
    """State of a classic group; the value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


PREDECESSORS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING}),
    GroupState.PREPARING: frozenset({GroupState.EMPTY, GroupState.COMPLETING, GroupState.STABLE}),
    GroupState.COMPLETING: frozenset({GroupState.PREPARING}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING}),
    GroupState.DEAD: frozenset(GroupState),
}
"""For each state, the states it may be entered from."""


class IllegalTransition(AssertionError):
    """A rule tried to move a group along an edge that PREDECESSORS does not have: a bug of ours."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The broker's options that the rules need, under Kafka's names with dots as underscores."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    new_member_join_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Member:
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
    """True until its first join is answered: it has no id to send heartbeats with yet."""

    def metadata(self, protocol: str) -> bytes:
        """Return this member's metadata for `protocol`, empty if it does not name it."""
        return dict(self.protocols).get(protocol, b"")

    @property
    def parked(self) -> bool:
        """True while a join or sync of it waits here, which counts as a heartbeat (not for new members)."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)


@dataclass(slots=True)
class Group:
    """A classic group. Events work on a copy and never change the group they were given."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: dict[str, int] = field(default_factory=dict)
    """Ids handed out with MEMBER_ID_REQUIRED that have not joined yet, and when they lapse."""
    pending_sync: frozenset[str] = frozenset()
    """Members of this generation that have not asked for their assignment yet."""
    join_deadline: int | None = None
    sync_deadline: int | None = None
    initial: bool = False
    """True in the first rebalance after Empty: it waits for its delay even if all have joined."""
    initial_remaining_ms: int = 0
    grew: bool = False
    """True if a member came during the initial delay, which then is extended."""
    state_since: int = field(default=-1, compare=False)
    """When it came to its state (ms since the epoch), -1 if nobody knows; set by who knows the time."""

    def copy(self) -> Group:
        """Return a copy that can be changed without touching this group."""
        return replace(self, members=dict(self.members), pending=dict(self.pending))

    @property
    def vacant(self) -> bool:
        """True if forgetting the group would lose nothing: never had a generation, nobody is in or coming."""
        return self.state is GroupState.EMPTY and self.generation == 0 and not self.pending

    def static_member(self, instance_id: str) -> Member | None:
        """Return the member that holds `instance_id` now."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def all_joined(self) -> bool:
        """True if every member has sent its join and no handed-out id is still expected."""
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
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        if not self.members:
            return bool(protocols)
        common = self.candidates()
        return any(name in common for name, _ in protocols)

    def select_protocol(self) -> str:
        """Let every member vote for the first of its protocols that all support; most votes win."""
        common = self.candidates()
        votes = Counter(next(n for n, _ in m.protocols if n in common) for m in self.members.values())
        return votes.most_common(1)[0][0]

    def next_deadline(self) -> int | None:
        """Return the earliest time at which a tick would have something to look at."""
        times: Iterable[int | None] = (
            self.join_deadline,
            self.sync_deadline,
            *self.pending.values(),
            *(m.session_deadline for m in self.members.values()),
        )
        return min((t for t in times if t is not None), default=None)
