"""Events that reach a classic group, and the answers it gives. Data only.

A `ticket` is a number that the caller gives to a request. The answer comes back under that number, from
the same step or a later one (joins and syncs are parked until the group can answer them).
"""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.rules.classic.classic_group_state import ClassicGroup, Protocols
from eoslog.protocol.errors import ErrorCode


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
