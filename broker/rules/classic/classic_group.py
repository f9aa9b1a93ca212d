"""The classic group's state machine: one pure function from (group, event, time) to what follows.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable, with rebalances back to
    PreparingRebalance; the table is `classic_group_state.PREDECESSORS`.

The caller first writes what the outcome says, then replaces the group by the outcome's, then sends the
answers. Refused events change nothing.
"""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.rules.classic.classic_group_events import (
    ClassicGroupResult,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    Join,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
)
from eoslog.broker.rules.classic.classic_group_state import (
    ClassicGroup,
    ClassicGroupSettings,
    ClassicGroupState,
)
from eoslog.broker.rules.classic.joining import join, validate_member
from eoslog.broker.rules.classic.rebalance import ClassicGroupStep
from eoslog.protocol.errors import ErrorCode

NO_TICKET = -1
"""The ticket of a Tick, which is not a request."""


def step(
    group: ClassicGroup, event: Event, ticket: int, now: int, settings: ClassicGroupSettings
) -> ClassicGroupResult:
    """Apply one event at `now` (monotonic ms). A group that does not exist is a new `Group(id)`."""
    work = ClassicGroupStep(group, now, settings)
    if isinstance(event, Join):
        join(work, ticket, event)
    elif isinstance(event, Sync):
        _sync(work, ticket, event)
    elif isinstance(event, Heartbeat):
        _heartbeat(work, ticket, event)
    elif isinstance(event, Leave):
        _leave(work, ticket, event)
    else:
        _tick(work)
    return work.outcome()


def resume(group: ClassicGroup, now: int) -> ClassicGroup:
    """Start the sessions of a group that was read from the log: its members may still be alive."""
    resumed = group.copy()
    for key, member in group.members.items():
        resumed.members[key] = replace(member, session_deadline=now + member.session_timeout_ms)
    return resumed


def touch(group: ClassicGroup, member_id: str, now: int) -> ClassicGroup:
    """Count an accepted offset commit of `member_id` as a heartbeat, as Kafka does."""
    if (
        group.state not in (ClassicGroupState.STABLE, ClassicGroupState.PREPARING)
        or member_id not in group.members
    ):
        return group
    touched = group.copy()
    member = touched.members[member_id]
    touched.members[member_id] = replace(member, session_deadline=now + member.session_timeout_ms)
    return touched


def _validate(group: ClassicGroup, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
    """The error code for a request of a member in a generation, or NONE."""
    if not group.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = validate_member(group, member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _sync(work: ClassicGroupStep, ticket: int, event: Sync) -> None:
    group = work.group
    error = _validate(group, event.member_id, event.instance_id, event.generation)
    if error is ErrorCode.NONE and (
        (event.protocol_type is not None and event.protocol_type != group.protocol_type)
        or (event.protocol is not None and event.protocol != group.protocol)
    ):
        error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if error is ErrorCode.NONE and group.state is ClassicGroupState.PREPARING:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    if error is not ErrorCode.NONE:
        work.answer(ticket, SyncAnswer(error))
        return
    work.synced(event.member_id)
    member = group.members[event.member_id]
    if group.state is ClassicGroupState.STABLE:
        work.answer(ticket, SyncAnswer(error, group.protocol_type, group.protocol, member.assignment))
        return
    if member.sync_ticket is not None:
        # The client has retried and waits for this answer now.
        work.answer(member.sync_ticket, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    work.update(replace(member, sync_ticket=ticket))
    if group.leader == event.member_id:
        work.assign(event.assignments)


def _heartbeat(work: ClassicGroupStep, ticket: int, event: Heartbeat) -> None:
    group = work.group
    error = _validate(group, event.member_id, event.instance_id, event.generation)
    if error is ErrorCode.NONE:
        member = group.members[event.member_id]
        work.update(replace(member, session_deadline=work.now + member.session_timeout_ms))
        if group.state is ClassicGroupState.PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    work.answer(ticket, HeartbeatAnswer(error))


def _leave(work: ClassicGroupStep, ticket: int, event: Leave) -> None:
    group = work.group
    if not group.group_id:
        work.answer(ticket, LeaveAnswer(ErrorCode.INVALID_GROUP_ID))
        return
    if group.state is ClassicGroupState.DEAD:
        work.answer(ticket, LeaveAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    results = tuple((m, i, _leave_one(work, m, i)) for m, i in event.members)
    work.answer(ticket, LeaveAnswer(members=results))
    if any(error is ErrorCode.NONE for _, _, error in results):
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
            work.prepare()
        else:
            work.complete_if_all_joined()


def _leave_one(work: ClassicGroupStep, member_id: str, instance_id: str | None) -> ErrorCode:
    """Remove one member. Without a member id, an administrator names it by its instance id."""
    group = work.group
    if not member_id:
        holder = group.static_member(instance_id) if instance_id is not None else None
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder.member_id
    elif member_id not in group.pending:
        error = validate_member(group, member_id, instance_id)
        if error is not ErrorCode.NONE:
            return error
    work.remove(member_id)
    return ErrorCode.NONE


def _tick(work: ClassicGroupStep) -> None:
    """Apply every deadline that has passed: sessions first, then the phases that these may end."""
    group, now = work.group, work.now
    for member_id, deadline in list(group.pending.items()):
        if deadline <= now:
            _expire(work, member_id)
    for member_id in list(group.members):
        # Looked up again: an earlier expiry may have ended a phase, which restarts sessions.
        member = group.members.get(member_id)
        if member is None or member.session_deadline is None or member.session_deadline > now:
            continue
        if member.parked:
            # It counts as alive while it waits here; its session restarts with the answer.
            work.update(replace(member, session_deadline=None))
        else:
            _expire(work, member_id)
    if group.sync_deadline is not None and group.sync_deadline <= now:
        late = group.pending_sync
        group.sync_deadline = None
        for member_id in late:
            work.remove(member_id)
        if late:
            work.prepare()
    if group.join_deadline is not None and group.join_deadline <= now:
        work.join_deadline_passed()


def _expire(work: ClassicGroupStep, member_id: str) -> None:
    """Remove a member whose session has ended, and continue without it."""
    group = work.group
    was_member = member_id in group.members
    work.remove(member_id)
    if was_member and group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING):
        work.prepare()
    elif group.state is ClassicGroupState.PREPARING and group.all_joined():
        work.complete_join()
