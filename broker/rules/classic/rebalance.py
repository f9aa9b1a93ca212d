"""The rebalance of a classic group: its members, the end of the join phase, the leader, the answers.

`ClassicGroupStep` is one step in progress: a copy of the group that the event's rules change, the answers,
and whether a record must be written. The original group does not change.
"""

from __future__ import annotations

from dataclasses import replace

from eoslog.broker.rules.classic.classic_group_events import (
    Answer,
    ClassicGroupResult,
    JoinAnswer,
    SyncAnswer,
)
from eoslog.broker.rules.classic.classic_group_state import (
    PREDECESSORS,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupSettings,
    ClassicGroupState,
    IllegalGroupTransition,
)
from eoslog.protocol.errors import ErrorCode

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
