"""Any order of joins, syncs, heartbeats, leaves, passing time and restarts: what always holds of a group.

Every parked request is answered in bounded time, one member leads a generation and it alone is asked to
assign, generations only go up, no two members hold one static id, a refused request changes nothing, and
what is on record is what a restart brings back.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eoslog.broker.coordinator.groups.classic_group import resume
from eoslog.broker.coordinator.groups.classic_group_state import (
    ClassicGroup,
    ClassicGroupSettings,
    ClassicGroupState,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    Leave,
    Sync,
    SyncAnswer,
)
from eoslog.broker.coordinator.groups.group_records import GroupRecord, decode, encode_group
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import Record
from tests.broker.coordinator.groups.groupkit import ClassicBench, beat, join, sync

LONGEST_MS = 60_000
"""The longest rebalance time-out in these runs, and so the longest any request may be parked."""

PROTOCOLS = (
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"3")),
    (("sticky", b"3"), ("range", b"2")),
    (("sticky", b"4"),),
)
PICK = st.integers(0, 99)
SELDOM = st.sampled_from([False] * 5 + [True])
CHANGES_NOTHING = {
    E.UNKNOWN_MEMBER_ID,
    E.ILLEGAL_GENERATION,
    E.FENCED_INSTANCE_ID,
    E.INCONSISTENT_GROUP_PROTOCOL,
    E.INVALID_SESSION_TIMEOUT,
    E.COORDINATOR_NOT_AVAILABLE,
}


class GroupMachine(RuleBasedStateMachine):
    @initialize(delay=st.sampled_from([0, 500, 3_000]), size=st.sampled_from([3, 100]))
    def begin(self, delay: int, size: int) -> None:
        self.bench = ClassicBench(
            ClassicGroupSettings(group_initial_rebalance_delay_ms=delay, group_max_size=size)
        )
        self.generation = 0
        self.assigners: dict[int, str] = {}
        self.names: list[str] = []
        self.on_record: ClassicGroup | None = None

    def apply(self, event: Event) -> int:
        """Apply an event and check what must hold of this one step."""
        bench, before = self.bench, self.bench.group
        ticket = bench.do(event)
        after, answer = bench.group, bench.answers.get(ticket)
        self.on_record = bench.persisted
        if isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer) and answer.error in CHANGES_NOTHING:
            assert after == before, f"{event} was refused with {answer.error.name} and changed the group"
        if after.state is ClassicGroupState.STABLE and before.state is not ClassicGroupState.STABLE:
            assert isinstance(event, Sync) and event.member_id == before.leader
            assert bench.persisted == after, "stable, but not on record"
        if after.state is ClassicGroupState.EMPTY and before.state is not ClassicGroupState.EMPTY:
            assert bench.persisted == after
        if isinstance(event, Heartbeat) and isinstance(answer, HeartbeatAnswer) and answer.error is E.NONE:
            assert event.member_id in before.members and event.generation == before.generation
        return ticket

    @rule(
        instance=st.sampled_from([None, None, None, "i1", "i2"]),
        protocols=st.sampled_from(PROTOCOLS),
        known_first=st.booleans(),
        can_skip=st.booleans(),
        session=st.sampled_from([6_000, 10_000, 45_000]),
        rebalance=st.sampled_from([1_000, 20_000, LONGEST_MS]),
    )
    def new_member(
        self,
        instance: str | None,
        protocols: tuple[tuple[str, bytes], ...],
        known_first: bool,
        can_skip: bool,
        session: int,
        rebalance: int,
    ) -> None:
        name = f"m{len(self.names)}"
        self.names.append(name)
        event = join(
            new=name,
            instance=instance,
            protocols=protocols,
            requires_known_id=known_first,
            can_skip_assignment=can_skip,
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
        )
        self.apply(event)

    def who(self, pick: int) -> str:
        """One that is in the group or expected, mostly; now and then one that once heard of an id."""
        group = self.bench.group
        present = [*group.members, *group.pending]
        choice = present if present and pick % 5 else self.names or ["nobody"]
        return choice[pick % len(choice)]

    def instance_of(self, member: str, lies: bool) -> str | None:
        known = self.bench.group.members.get(member)
        if lies:
            return "i1"
        return None if known is None else known.instance_id

    @rule(pick=PICK, protocols=st.sampled_from(PROTOCOLS), same=st.booleans(), lies=SELDOM)
    def join_again(self, pick: int, protocols: tuple[tuple[str, bytes], ...], same: bool, lies: bool) -> None:
        member = self.who(pick)
        known = self.bench.group.members.get(member)
        event = join(member, instance=self.instance_of(member, lies), protocols=protocols)
        if known is not None and same:
            event = replace(event, protocols=known.protocols)
        self.apply(event)

    @rule(pick=PICK, old=SELDOM, lies=SELDOM)
    def sync_one(self, pick: int, old: bool, lies: bool) -> None:
        self.ask_for_assignment(self.who(pick), old, lies)

    def ask_for_assignment(self, member: str, old: bool, lies: bool) -> None:
        group = self.bench.group
        assignments = {m: m.encode() for m in group.members}
        event = sync(member, group.generation - old, self.instance_of(member, lies), assignments)
        self.apply(replace(event, protocol_type=None, protocol=None))

    @rule()
    def all_behave(self) -> None:
        """Everybody does what a good client would do next, so that runs reach Stable often."""
        for expected in list(self.bench.group.pending):
            self.apply(join(expected, session_timeout_ms=45_000))
        if self.bench.group.initial:
            self.bench.advance(3_000)
        for member in list(self.bench.group.members.values()):
            group = self.bench.group
            if group.state is ClassicGroupState.PREPARING and member.join_ticket is None:
                again = join(member.member_id, instance=member.instance_id, protocols=member.protocols)
                self.apply(replace(again, rebalance_timeout_ms=member.rebalance_timeout_ms))
        group = self.bench.group
        if group.state is ClassicGroupState.COMPLETING:
            for member in list(group.members.values()):
                self.ask_for_assignment(member.member_id, old=False, lies=False)

    @rule(pick=PICK, old=SELDOM, lies=SELDOM)
    def heartbeat(self, pick: int, old: bool, lies: bool) -> None:
        member = self.who(pick)
        self.apply(beat(member, self.bench.group.generation - old, self.instance_of(member, lies)))

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        member = self.who(pick)
        self.apply(Leave(((member, None),)))
        assert member not in self.bench.group.members
        assert member not in self.bench.group.pending

    @rule(instance=st.sampled_from(["i1", "i2"]))
    def leave_by_instance(self, instance: str) -> None:
        self.apply(Leave((("", instance),)))
        assert self.bench.group.static_member(instance) is None

    @rule(ms=st.integers(1, 15_000))
    def time_passes(self, ms: int) -> None:
        self.bench.advance(ms)
        self.on_record = self.bench.persisted

    @rule()
    def broker_restarts(self) -> None:
        """Only what is on record is left, and the connections with their parked requests are gone."""
        bench = self.bench
        bench.asked_at.clear()
        bench.group = ClassicGroup("g")
        if self.on_record is not None:
            key, value = encode_group(self.on_record, 1)
            record = decode(Record(0, 0, key, value, []))
            assert isinstance(record, GroupRecord) and record.group is not None
            kept, group = self.on_record, record.group
            assert (group.state, group.generation, group.leader) == (kept.state, kept.generation, kept.leader)
            for name, member in kept.members.items():
                same = group.members[name]
                assert (same.assignment, same.instance_id) == (member.assignment, member.instance_id)
                assert same.metadata(group.protocol or "") == member.metadata(kept.protocol or "")
            bench.group = resume(group, bench.now)
        self.generation = bench.group.generation
        self.assigners.clear()

    @invariant()
    def parked_requests_are_answered_in_time(self) -> None:
        bench = self.bench
        late = {t: bench.now - at for t, at in bench.asked_at.items() if bench.now - at > LONGEST_MS}
        assert not late, f"still parked after ms: {late}"
        group = bench.group
        parked = {t for m in group.members.values() for t in (m.join_ticket, m.sync_ticket) if t is not None}
        assert set(bench.asked_at) == parked, "a request is neither answered nor parked"

    @invariant()
    def one_leads(self) -> None:
        group = self.bench.group
        if group.members:
            assert group.leader in group.members
            common = group.candidates()
            assert common, "the members have no protocol in common"
            if group.state in (ClassicGroupState.COMPLETING, ClassicGroupState.STABLE):
                assert group.protocol in common
        elif group.state is not ClassicGroupState.PREPARING:
            assert group.leader is None
        for ticket, answer in self.bench.answers.items():
            if isinstance(answer, JoinAnswer) and answer.members and not answer.skip_assignment:
                holder = self.assigners.setdefault(answer.generation, answer.member_id)
                assert holder == answer.member_id, f"ticket {ticket}: a second one is asked to assign"
        self.bench.answers.clear()

    @invariant()
    def generations_only_go_up(self) -> None:
        assert self.bench.group.generation >= self.generation
        self.generation = self.bench.group.generation

    @invariant()
    def static_ids_are_held_once(self) -> None:
        held = [m.instance_id for m in self.bench.group.members.values() if m.instance_id is not None]
        assert len(held) == len(set(held))

    @invariant()
    def states_and_members_agree(self) -> None:
        group = self.bench.group
        if group.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD):
            assert not group.members
        elif group.state is not ClassicGroupState.PREPARING:
            assert group.members
        assert (group.join_deadline is not None) == (group.state is ClassicGroupState.PREPARING)
        for member in group.members.values():
            assert member.join_ticket is None or group.state is ClassicGroupState.PREPARING
            assert member.sync_ticket is None or group.state is ClassicGroupState.COMPLETING
            assert member.session_deadline is not None or member.parked, "nobody watches over this member"

    def teardown(self) -> None:
        """Left alone, everything is answered and everybody is gone."""
        if hasattr(self, "bench"):
            self.bench.advance(20 * LONGEST_MS)
            assert not self.bench.asked_at
            assert self.bench.group.state is ClassicGroupState.EMPTY
            assert not self.bench.group.pending


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=200, stateful_step_count=50, deadline=None, derandomize=True
)
