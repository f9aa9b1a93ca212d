"""The classic group's state machine: one pure function from (group, event, time) to what follows.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable, with rebalances back to
    PreparingRebalance; the table is `classic_group_state.PREDECESSORS`.

The caller first writes what the outcome says, then replaces the group by the outcome's, then sends the
answers. Refused events change nothing.

Joins come after the other events, then the rebalance: the end of the join phase, the leader, the answers.
`ClassicGroupStep` is one step in progress: a copy of the group that the event's rules change, the answers,
and whether a record must be written. The original group does not change.
"""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.coordinator.groups.classic_group_state import (
    PREDECESSORS,
    Answer,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupResult,
    ClassicGroupSettings,
    ClassicGroupState,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    IllegalGroupTransition,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    Sync,
    SyncAnswer,
)
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


SHORTEST_WAIT_MS = 1_000
"""The least time before a join phase without any member is checked again."""


class ClassicGroupStep:
    """One step in progress on a copy of `group` at time `now` (monotonic ms)."""

    def __init__(self, group: ClassicGroup, now: int, settings: ClassicGroupSettings) -> None:
        self.group = group.copy()
        self.now = now
        self.settings = settings
        self.answers: list[tuple[int, Answer]] = []
        self.persist = False

    def outcome(self) -> ClassicGroupResult:
        """The result of the step."""
        return ClassicGroupResult(self.group, tuple(self.answers), self.persist)

    def answer(self, ticket: int, answer: Answer) -> None:
        """Answer the request `ticket`."""
        self.answers.append((ticket, answer))

    def transition(self, state: ClassicGroupState) -> None:
        """Enter `state`; raises IllegalTransition if the table has no such edge."""
        if self.group.state not in PREDECESSORS[state]:
            raise IllegalGroupTransition(
                f"group {self.group.group_id}: {self.group.state} may not become {state}"
            )
        self.group.state = state

    # Members

    def add(self, member: ClassicGroupMember, protocol_type: str) -> None:
        """Add a member; the first one makes itself leader and sets the group's protocol type."""
        group = self.group
        if not group.members:
            group.protocol_type = protocol_type
        if group.leader is None:
            group.leader = member.member_id
        group.pending.pop(member.member_id, None)
        group.members[member.member_id] = member

    def update(self, member: ClassicGroupMember) -> None:
        """Replace a member by its changed copy."""
        self.group.members[member.member_id] = member

    def remove(self, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member or a handed-out id, and answer its parked requests with `error`."""
        group = self.group
        group.pending.pop(member_id, None)
        group.pending_sync -= {member_id}
        member = group.members.pop(member_id, None)
        if member is None:
            return
        self._refuse_parked(member, error)
        if group.leader == member_id:
            group.leader = next(iter(group.members), None)

    def replace_static(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        """Give a static member's place to `member_id`; fence requests that still wait under the old id."""
        group = self.group
        self._refuse_parked(old, ErrorCode.FENCED_INSTANCE_ID)
        fresh = replace(
            old,
            member_id=member_id,
            join_ticket=None,
            sync_ticket=None,
            session_deadline=self.now + old.session_timeout_ms,
            is_new=False,
        )
        # The new id takes the old one's place in the order of members.
        group.members = {
            fresh.member_id if m is old else key: fresh if m is old else m for key, m in group.members.items()
        }
        if group.leader == old.member_id:
            group.leader = member_id
        if old.member_id in group.pending_sync:
            group.pending_sync = group.pending_sync - {old.member_id} | {member_id}
        return fresh

    def _refuse_parked(self, member: ClassicGroupMember, error: ErrorCode) -> None:
        # An unknown member must start over without an id: it may never have received its new one.
        known_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        if member.join_ticket is not None:
            self.answer(member.join_ticket, JoinAnswer(error, known_id))
        if member.sync_ticket is not None:
            self.answer(member.sync_ticket, SyncAnswer(error))

    # The join phase

    def rebalance_or_complete(self) -> None:
        """Start a rebalance or, during one, check whether the join phase can end."""
        if self.group.state in PREDECESSORS[ClassicGroupState.PREPARING]:
            self.prepare()
        else:
            self.complete_if_all_joined()

    def prepare(self) -> None:
        """Start a rebalance: members that wait for an assignment must join again."""
        group = self.group
        if group.state is ClassicGroupState.COMPLETING:
            self._refuse_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync = frozenset()
        group.sync_deadline = None
        group.initial = group.state is ClassicGroupState.EMPTY
        self.transition(ClassicGroupState.PREPARING)
        if group.initial:
            delay = self.settings.group_initial_rebalance_delay_ms
            group.grew = False
            group.join_deadline = self.now + delay
            group.initial_remaining_ms = max(group.rebalance_timeout_ms() - delay, 0)
        elif group.all_joined():
            self.complete_join()
        else:
            group.join_deadline = self.now + group.rebalance_timeout_ms()

    def complete_if_all_joined(self) -> None:
        """End the join phase if all members have joined. The initial rebalance always waits for its delay."""
        group = self.group
        if group.state is ClassicGroupState.PREPARING and not group.initial and group.all_joined():
            self.complete_join()

    def join_deadline_passed(self) -> None:
        """End the join phase, or extend the initial one if a member has joined meanwhile and time remains."""
        group = self.group
        delay = min(self.settings.group_initial_rebalance_delay_ms, group.initial_remaining_ms)
        if not (group.initial and group.grew and delay):
            self.complete_join()
            return
        group.grew = False
        group.join_deadline = self.now + delay
        group.initial_remaining_ms -= delay

    def complete_join(self) -> None:
        """End the join phase: remove dynamic members that did not join, and begin the next generation.

        If only absent static members remain, nobody could lead. Then the phase continues until they return or
        their sessions end.
        """
        group = self.group
        group.join_deadline = None
        for member in list(group.members.values()):
            if member.join_ticket is None and member.instance_id is None:
                self.remove(member.member_id)
        if group.members and not self._elect():
            group.join_deadline = self.now + max(group.rebalance_timeout_ms(), SHORTEST_WAIT_MS)
            return
        group.initial = False
        group.generation += 1
        if group.members:
            self._begin_generation()
        else:
            group.protocol = None
            self.transition(ClassicGroupState.EMPTY)
            self.persist = True

    def _elect(self) -> bool:
        """Keep the leader if it has joined, else choose the first member that has. False if nobody has."""
        group = self.group
        joined = [m.member_id for m in group.members.values() if m.join_ticket is not None]
        if group.leader not in joined and joined:
            group.leader = joined[0]
        return bool(joined)

    def _begin_generation(self) -> None:
        group = self.group
        group.protocol = group.select_protocol()
        self.transition(ClassicGroupState.COMPLETING)
        group.sync_deadline = self.now + group.rebalance_timeout_ms()
        group.pending_sync = frozenset(group.members)
        for member in list(group.members.values()):
            if member.join_ticket is not None:
                self.answer(member.join_ticket, self.current(member.member_id))
            self.update(
                replace(
                    member,
                    join_ticket=None,
                    is_new=False,
                    session_deadline=self.now + member.session_timeout_ms,
                )
            )

    def current(self, member_id: str, skip_assignment: bool = False) -> JoinAnswer:
        """The join answer that describes the current generation to `member_id`."""
        group = self.group
        members: tuple[tuple[str, str | None, bytes], ...] = ()
        if group.leader == member_id:
            name = group.protocol or ""
            members = tuple((m.member_id, m.instance_id, m.metadata(name)) for m in group.members.values())
        return JoinAnswer(
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            leader=group.leader or "",
            members=members,
            skip_assignment=skip_assignment,
        )

    # The sync phase

    def synced(self, member_id: str) -> None:
        """Note that a member has asked for its assignment. When all have, stop the deadline for it."""
        group = self.group
        group.pending_sync -= {member_id}
        if not group.pending_sync:
            group.sync_deadline = None

    def assign(self, assignments: dict[str, bytes]) -> None:
        """Store the leader's assignments, answer every parked sync, and become Stable."""
        group = self.group
        for member in list(group.members.values()):
            assignment = assignments.get(member.member_id, b"")
            if member.sync_ticket is None:
                self.update(replace(member, assignment=assignment))
                continue
            answer = SyncAnswer(ErrorCode.NONE, group.protocol_type, group.protocol, assignment)
            self.answer(member.sync_ticket, answer)
            deadline = self.now + member.session_timeout_ms
            self.update(replace(member, assignment=assignment, sync_ticket=None, session_deadline=deadline))
        self.transition(ClassicGroupState.STABLE)
        self.persist = True

    def _refuse_syncs(self, error: ErrorCode) -> None:
        for member in list(self.group.members.values()):
            deadline = member.session_deadline
            if member.sync_ticket is not None:
                self.answer(member.sync_ticket, SyncAnswer(error))
                deadline = self.now + member.session_timeout_ms
            self.update(replace(member, assignment=b"", sync_ticket=None, session_deadline=deadline))
