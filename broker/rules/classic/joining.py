"""JoinGroup of a classic group: new and returning members, dynamic and static ones, and refusals."""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.rules.classic.classic_group_events import Join, JoinAnswer
from eoslog.broker.rules.classic.classic_group_state import (
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
)
from eoslog.broker.rules.classic.rebalance import ClassicGroupStep
from eoslog.protocol.errors import ErrorCode


def join(work: ClassicGroupStep, ticket: int, event: Join) -> None:
    """Admit a member or refuse it. The answer may come from a later step."""
    error = _refusal(work, event)
    if error is not ErrorCode.NONE:
        work.answer(ticket, JoinAnswer(error, event.member_id))
    elif not _accepts(work, event.member_id):
        work.remove(event.member_id)
        work.complete_if_all_joined()
        work.answer(ticket, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif event.member_id in work.group.pending:
        _add(work, ticket, event, event.member_id)
    elif event.member_id:
        _rejoin(work, ticket, event)
    elif event.instance_id is not None:
        _join_static(work, ticket, event)
    elif event.requires_known_id:
        work.group.pending[event.new_member_id] = work.now + event.session_timeout_ms
        work.answer(ticket, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, event.new_member_id))
    else:
        _add(work, ticket, event, event.new_member_id)


def validate_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """The error code if `member_id` (of the static member `instance_id`, if given) is not in the group."""
    if instance_id is not None:
        holder = group.static_member(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _refusal(work: ClassicGroupStep, event: Join) -> ErrorCode:
    """The error code for a join that must be refused in any state, or NONE."""
    group, settings = work.group, work.settings
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not group.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not shortest <= event.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if group.state is ClassicGroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not group.supports(event.protocol_type, event.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not event.member_id:
        return ErrorCode.NONE
    if event.member_id in group.pending:
        # Only dynamic members get an id before they join.
        return ErrorCode.NONE if event.instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
    return validate_member(group, event.member_id, event.instance_id)


def _accepts(work: ClassicGroupStep, member_id: str) -> bool:
    """Whether the group has room for this member. Members that are in or waiting keep their place."""
    group, limit = work.group, work.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING:
        joined = sum(1 for m in group.members.values() if m.join_ticket is not None)
        return joined < limit or (member is not None and member.join_ticket is not None)
    return member is not None or len(group.members) < limit


def _add(work: ClassicGroupStep, ticket: int, event: Join, member_id: str) -> None:
    """Add a member that was not in the group and park its join."""
    group = work.group
    if group.state is ClassicGroupState.PREPARING and group.initial:
        group.grew = True
    member = ClassicGroupMember(
        member_id=member_id,
        instance_id=event.instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
        protocols=event.protocols,
        join_ticket=ticket,
        # It cannot send heartbeats before it has an answer, so a longer limit applies until then.
        session_deadline=work.now + work.settings.new_member_join_timeout_ms,
        is_new=True,
    )
    work.add(member, event.protocol_type)
    work.rebalance_or_complete()


def _rejoin(work: ClassicGroupStep, ticket: int, event: Join) -> None:
    """A member of the group joins again: park it, or answer with the generation if nothing changes."""
    group = work.group
    member = group.members[event.member_id]
    unchanged = member.protocols == event.protocols
    leads = group.leader == event.member_id
    if (group.state is ClassicGroupState.COMPLETING and unchanged) or (
        group.state is ClassicGroupState.STABLE and unchanged and not leads
    ):
        work.answer(ticket, work.current(event.member_id))
        return
    # In all other cases the group rebalances; a leader asks for it on purpose (new partitions).
    _park(work, member, ticket, event)
    work.rebalance_or_complete()


def _join_static(work: ClassicGroupStep, ticket: int, event: Join) -> None:
    """A static member joins without an id: a first start, or a restart that takes over its place."""
    group = work.group
    old = group.static_member(event.instance_id or "")
    if old is None:
        _add(work, ticket, event, event.new_member_id)
        return
    led = group.leader == old.member_id
    fresh = work.replace_static(old, event.new_member_id)
    parked = _park(work, fresh, ticket, event)
    if group.state is ClassicGroupState.STABLE:
        if group.select_protocol() == group.protocol:
            _take_over(work, parked, ticket, event, leader=old.member_id if led else group.leader or "")
        else:
            work.rebalance_or_complete()
    elif group.state is ClassicGroupState.COMPLETING:
        # The leader may be computing an assignment for the old id right now.
        work.prepare()
    else:
        work.complete_if_all_joined()


def _take_over(
    work: ClassicGroupStep, member: ClassicGroupMember, ticket: int, event: Join, leader: str
) -> None:
    """Give a restarted static member its old assignment without a rebalance."""
    work.update(replace(member, join_ticket=None))
    work.persist = True
    answer = work.current(member.member_id)
    if event.can_skip_assignment:
        answer = replace(answer, skip_assignment=work.group.leader == member.member_id)
    else:
        # An older client that heard it leads would assign anew. Naming its old id as the leader
        # keeps it a follower.
        answer = replace(answer, leader=leader, members=())
    work.answer(ticket, answer)


def _park(work: ClassicGroupStep, member: ClassicGroupMember, ticket: int, event: Join) -> ClassicGroupMember:
    """Park a known member's join. If an earlier join of it still waits (the client retried), end that one."""
    if member.join_ticket is not None:
        work.answer(member.join_ticket, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    parked = replace(
        member,
        join_ticket=ticket,
        protocols=event.protocols,
        session_timeout_ms=event.session_timeout_ms,
        rebalance_timeout_ms=event.rebalance_timeout_ms,
    )
    work.update(parked)
    return parked
