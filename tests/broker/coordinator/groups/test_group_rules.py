"""The classic group's rules one by one: who is answered what, when, and in which state the group is then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eoslog.broker.coordinator.groups.classic_group import ClassicGroupStep, resume, step, touch
from eoslog.broker.coordinator.groups.classic_group_state import (
    PREDECESSORS,
    ClassicGroup,
    ClassicGroupSettings,
    ClassicGroupState,
    Event,
    HeartbeatAnswer,
    IllegalGroupTransition,
    JoinAnswer,
    SyncAnswer,
    Tick,
)
from eoslog.protocol.errors import ErrorCode as E
from tests.broker.coordinator.groups.groupkit import BOTH, ClassicBench, beat, join, leave, sync

S = ClassicGroupState


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_only_the_table_s_transitions_are_possible(
    before: ClassicGroupState, after: ClassicGroupState
) -> None:
    legal = {
        (S.EMPTY, S.PREPARING), (S.PREPARING, S.EMPTY), (S.PREPARING, S.COMPLETING),
        (S.COMPLETING, S.PREPARING), (S.COMPLETING, S.STABLE), (S.STABLE, S.PREPARING),
    } | {(state, S.DEAD) for state in S}  # fmt: skip
    work = ClassicGroupStep(ClassicGroup("g", state=before), 0, ClassicGroupSettings())
    if (before, after) in legal:
        work.transition(after)
        assert work.group.state is after
    else:
        with pytest.raises(IllegalGroupTransition, match="group g"):
            work.transition(after)
        assert work.group.state is before
    assert (before in PREDECESSORS[after]) == ((before, after) in legal)


def in_state(state: ClassicGroupState) -> ClassicBench:
    """A bench whose group of member "a" (leader) and "b" is in this state."""
    if state is S.EMPTY:
        return ClassicBench()
    bench = ClassicBench().stable("a", "b")
    if state is S.DEAD:
        bench.group = ClassicGroup("g", state=S.DEAD)
    if state in (S.PREPARING, S.COMPLETING):
        bench.do(join("a"))
    if state is S.COMPLETING:
        bench.do(join("b"))
        bench.group.generation = 1  # so that one table of events fits all states
    assert bench.group.state is state
    return bench


BEAT, SYNC, JOIN = beat("b"), sync("b"), join("b")
TABLE: list[tuple[ClassicGroupState, Event, E | None, ClassicGroupState]] = [
    (S.EMPTY, BEAT, E.UNKNOWN_MEMBER_ID, S.EMPTY),
    (S.EMPTY, SYNC, E.UNKNOWN_MEMBER_ID, S.EMPTY),
    (S.EMPTY, JOIN, E.UNKNOWN_MEMBER_ID, S.EMPTY),
    (S.EMPTY, join(), None, S.PREPARING),
    (S.EMPTY, join(requires_known_id=True), E.MEMBER_ID_REQUIRED, S.EMPTY),
    (S.PREPARING, BEAT, E.REBALANCE_IN_PROGRESS, S.PREPARING),
    (S.PREPARING, SYNC, E.REBALANCE_IN_PROGRESS, S.PREPARING),
    (S.PREPARING, JOIN, E.NONE, S.COMPLETING),
    (S.PREPARING, join(), None, S.PREPARING),
    (S.PREPARING, join("a"), None, S.PREPARING),
    (S.COMPLETING, BEAT, E.NONE, S.COMPLETING),
    (S.COMPLETING, SYNC, None, S.COMPLETING),
    (S.COMPLETING, sync("a"), E.NONE, S.STABLE),
    (S.COMPLETING, JOIN, E.NONE, S.COMPLETING),
    (S.COMPLETING, join("b", protocols=BOTH), None, S.PREPARING),
    (S.COMPLETING, join(), None, S.PREPARING),
    (S.STABLE, BEAT, E.NONE, S.STABLE),
    (S.STABLE, SYNC, E.NONE, S.STABLE),
    (S.STABLE, JOIN, E.NONE, S.STABLE),
    (S.STABLE, join("b", protocols=BOTH), None, S.PREPARING),
    (S.STABLE, join("a"), None, S.PREPARING),
    (S.STABLE, join(), None, S.PREPARING),
    (S.DEAD, BEAT, E.COORDINATOR_NOT_AVAILABLE, S.DEAD),
    (S.DEAD, SYNC, E.COORDINATOR_NOT_AVAILABLE, S.DEAD),
    (S.DEAD, JOIN, E.COORDINATOR_NOT_AVAILABLE, S.DEAD),
    (S.DEAD, join(), E.COORDINATOR_NOT_AVAILABLE, S.DEAD),
    *[(state, beat("x"), E.UNKNOWN_MEMBER_ID, state) for state in (S.PREPARING, S.COMPLETING, S.STABLE)],
    *[(state, beat("b", 7), E.ILLEGAL_GENERATION, state) for state in (S.PREPARING, S.COMPLETING, S.STABLE)],
    *[(state, sync("x"), E.UNKNOWN_MEMBER_ID, state) for state in (S.PREPARING, S.COMPLETING, S.STABLE)],
    *[(state, sync("b", 7), E.ILLEGAL_GENERATION, state) for state in (S.PREPARING, S.COMPLETING, S.STABLE)],
    *[(state, join("x"), E.UNKNOWN_MEMBER_ID, state) for state in (S.PREPARING, S.COMPLETING, S.STABLE)],
]


@pytest.mark.parametrize(("state", "event", "error", "after"), TABLE)
def test_each_state_answers_each_event_as_the_table_says(
    state: ClassicGroupState, event: Event, error: E | None, after: ClassicGroupState
) -> None:
    bench = in_state(state)
    before = bench.group
    ticket = bench.do(event)
    answer = bench.answers.get(ticket)
    if error is None:
        assert answer is None, "should be parked"
    else:
        assert isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer)
        assert answer.error is error
    assert bench.group.state is after
    if error not in (None, E.NONE, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED):
        assert bench.group == before, "a refused event changed the group"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_no_group_takes(change: dict[str, object], error: E) -> None:
    bench = ClassicBench()
    assert bench.joined(join(**change)).error is error  # type: ignore[arg-type]
    assert bench.group.vacant


@pytest.mark.parametrize("event", [join(), sync("a"), beat("a")])
def test_an_empty_group_id_is_invalid(event: Event) -> None:
    bench = ClassicBench(group=ClassicGroup(""))
    answer = bench.answers[bench.do(event)]
    assert isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer)
    assert answer.error is E.INVALID_GROUP_ID


def test_members_that_have_no_protocol_in_common_are_refused() -> None:
    bench = ClassicBench().stable("a")
    assert bench.joined(join(protocol_type="connect")).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert bench.joined(join(protocols=(("sticky", b""),))).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_for_its_delay_and_longer_if_members_come() -> None:
    bench = ClassicBench()
    first = bench.do(join(new="a"))
    bench.advance(2_999)
    second = bench.do(join(new="b"))
    bench.advance(3_000)
    assert first in bench.asked_at and second in bench.asked_at
    bench.advance(1)
    assert bench.join_answer(first).generation == bench.join_answer(second).generation == 1


def test_the_first_rebalance_is_not_extended_beyond_the_rebalance_time_out() -> None:
    bench = ClassicBench()
    first = bench.do(join(new="m0", rebalance_timeout_ms=10_000))
    for number in range(1, 15):
        bench.advance(1_000)
        if first in bench.asked_at:
            bench.do(join(new=f"m{number}", rebalance_timeout_ms=10_000))
    assert first in bench.answers


def test_the_leader_gets_the_members_and_the_others_do_not() -> None:
    bench = ClassicBench()
    tickets = {name: bench.do(join(new=name, protocols=((("range", name.encode()),)))) for name in "abc"}
    bench.advance(6_000)
    answers = {name: bench.join_answer(ticket) for name, ticket in tickets.items()}
    assert {answer.leader for answer in answers.values()} == {"a"}
    assert answers["a"].members == (("a", None, b"a"), ("b", None, b"b"), ("c", None, b"c"))
    assert answers["b"].members == answers["c"].members == ()
    assert {a.protocol for a in answers.values()} == {"range"}
    assert {a.protocol_type for a in answers.values()} == {"consumer"}


@pytest.mark.parametrize(
    ("preferences", "chosen"),
    [
        (["xy", "xy", "yx"], "x"),
        (["xy", "yx", "yx"], "y"),
        (["xyz", "zy"], "y"),
        (["yx"], "y"),
        (["xz", "zyx", "zx"], "z"),
    ],
)
def test_of_the_protocols_all_support_the_most_voted_wins(preferences: list[str], chosen: str) -> None:
    bench = ClassicBench()
    for number, names in enumerate(preferences):
        bench.do(join(new=f"m{number}", protocols=tuple((name, b"") for name in names)))
    bench.advance(12_000)
    assert bench.group.protocol == chosen


def test_syncs_wait_for_the_leader_and_get_their_assignments() -> None:
    bench = ClassicBench()
    for name in "abc":
        bench.do(join(new=name))
    bench.advance(9_000)
    follower = bench.do(sync("b"))
    assert follower in bench.asked_at
    leader = bench.synced(sync("a", assignments={"a": b"1", "b": b"2", "nobody": b"3"}))
    assert (leader.assignment, leader.protocol, leader.protocol_type) == (b"1", "range", "consumer")
    assert bench.sync_answer(follower).assignment == b"2"
    assert bench.group.state is S.STABLE
    assert bench.synced(sync("c")).assignment == b"", "not assigned anything"
    assert bench.persisted is not None
    assert [m.assignment for m in bench.persisted.members.values()] == [b"1", b"2", b""]


@pytest.mark.parametrize(
    "wrong", [{"protocol_type": "connect"}, {"protocol": "sticky"}], ids=["type", "name"]
)
def test_a_sync_that_names_another_protocol_is_refused(wrong: dict[str, str]) -> None:
    bench = ClassicBench().stable("a")
    event = replace(sync("a"), **wrong)  # type: ignore[arg-type]
    assert bench.synced(event).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert bench.synced(replace(event, protocol_type=None, protocol=None)).error is E.NONE


def test_a_rebalance_sends_waiting_syncs_back_to_join() -> None:
    bench = in_state(S.COMPLETING)
    waiting = bench.do(sync("b"))
    bench.do(join(new="c"))
    assert bench.sync_answer(waiting).error is E.REBALANCE_IN_PROGRESS
    assert bench.group.state is S.PREPARING


def test_members_that_do_not_join_again_in_time_are_left_out() -> None:
    bench = ClassicBench().stable("a", "b")
    third = bench.do(join(new="c"))
    for _ in range(12):
        bench.advance(4_999)
        assert bench.heard(beat("a")) == E.REBALANCE_IN_PROGRESS
        assert bench.heard(beat("b")) == E.REBALANCE_IN_PROGRESS
    assert third in bench.asked_at
    bench.advance(4_999)
    answer = bench.join_answer(third)
    assert (answer.generation, answer.leader, [m for m, _, _ in answer.members]) == (2, "c", ["c"])
    assert bench.heard(beat("a", 2)) == E.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_left_out() -> None:
    bench = ClassicBench()
    tickets = [bench.do(join(new=name)) for name in "ab"]
    bench.advance(6_000)
    assert all(ticket in bench.answers for ticket in tickets)
    waiting = bench.do(sync("b"))
    for _ in range(13):
        bench.heard(beat("a"))
        bench.advance(4_900)
    assert bench.sync_answer(waiting).error is E.REBALANCE_IN_PROGRESS
    assert "a" not in bench.group.members


def test_a_session_without_heartbeats_ends_and_the_rest_rebalances() -> None:
    bench = ClassicBench().stable("a", "b")
    bench.advance(9_000)
    assert bench.heard(beat("a")) == E.NONE
    bench.advance(1_000)
    assert list(bench.group.members) == ["a"]
    assert bench.heard(beat("a")) == E.REBALANCE_IN_PROGRESS
    assert bench.joined(join("a")).generation == 2


def test_all_sessions_ended_leaves_an_empty_group_on_record() -> None:
    bench = ClassicBench().stable("a", "b")
    bench.advance(120_000)
    assert bench.group.state is S.EMPTY
    assert bench.persisted == bench.group
    assert (bench.group.generation, bench.group.leader, bench.group.protocol) == (2, None, None)
    assert bench.group.next_deadline() is None


def test_a_parked_member_stays_alive_without_heartbeats() -> None:
    bench = ClassicBench().stable("a", "b")
    waiting = bench.do(join("a", rebalance_timeout_ms=60_000))
    for _ in range(8):
        bench.advance(5_000)
        bench.heard(beat("b"))
    assert waiting in bench.asked_at
    assert "a" in bench.group.members
    assert bench.joined(join("b")).generation == 2
    bench.advance(9_999)
    assert "a" in bench.group.members
    bench.advance(1)
    assert "a" not in bench.group.members, "its session starts again with the answer"


def test_an_accepted_commit_counts_as_a_heartbeat() -> None:
    bench = ClassicBench().stable("a")
    bench.advance(9_999)
    bench.group = touch(bench.group, "a", bench.now)
    bench.advance(9_999)
    assert bench.group.state is S.STABLE
    assert touch(bench.group, "nobody", bench.now) is bench.group


def test_known_member_id_first() -> None:
    bench = ClassicBench()
    told = bench.joined(join(new="a", requires_known_id=True))
    assert (told.error, told.member_id) == (E.MEMBER_ID_REQUIRED, "a")
    assert not bench.group.members
    waiting = bench.do(join("a"))
    bench.advance(3_000)
    assert bench.join_answer(waiting).member_id == "a"


def test_a_handed_out_id_lapses_and_holds_nobody_up_then() -> None:
    bench = ClassicBench().stable("a")
    bench.do(join(new="b", requires_known_id=True, session_timeout_ms=6_000))
    waiting = bench.do(join("a"))
    assert waiting in bench.asked_at, "the one that was promised a place may still come"
    bench.advance(6_000)
    assert bench.join_answer(waiting).generation == 2
    assert bench.joined(join("b")).error is E.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_is_dropped_after_its_own_time_out() -> None:
    bench = ClassicBench(
        settings=ClassicGroupSettings(new_member_join_timeout_ms=20_000, group_initial_rebalance_delay_ms=0)
    )
    bench.stable("a")
    gone = bench.do(join(new="b", rebalance_timeout_ms=300_000))
    for _ in range(4):
        bench.heard(beat("a"))
        bench.advance(5_000)
    answer = bench.join_answer(gone)
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "")


def test_leaving() -> None:
    bench = ClassicBench().stable("a", "b", "c")
    answer = bench.left(leave("b", "x"))
    assert answer.members == (("b", None, E.NONE), ("x", None, E.UNKNOWN_MEMBER_ID))
    assert bench.group.state is S.PREPARING
    assert "b" not in bench.group.members
    bench.left(leave("a", "c"))
    assert bench.state() is S.EMPTY
    assert bench.persisted == bench.group


def test_the_last_one_that_was_waited_for_leaves() -> None:
    bench = ClassicBench().stable("a", "b")
    waiting = bench.do(join("a"))
    bench.do(leave("b"))
    assert bench.join_answer(waiting).generation == 2


def test_leaving_with_a_parked_join_answers_it() -> None:
    bench = ClassicBench().stable("a", "b")
    waiting = bench.do(join("a"))
    bench.do(leave("a"))
    assert bench.join_answer(waiting).error is E.UNKNOWN_MEMBER_ID


def test_a_leave_of_strangers_changes_nothing() -> None:
    bench = ClassicBench().stable("a")
    before = bench.group
    bench.do(leave("x", ""))
    assert bench.group == before


def test_a_full_group_takes_no_more_but_keeps_its_members() -> None:
    bench = ClassicBench(
        settings=ClassicGroupSettings(group_max_size=2, group_initial_rebalance_delay_ms=0)
    ).stable("a", "b")
    assert bench.joined(join(new="c")).error is E.GROUP_MAX_SIZE_REACHED
    assert bench.group.state is S.STABLE
    bench.do(join("a"))
    assert bench.joined(join("b")).error is E.NONE


# Static members


def static(*names: str) -> ClassicBench:
    """A stable group of static members: instance "i-a" under id "a", and so on; the first leads."""
    bench = ClassicBench()
    for name in names:
        bench.do(join(new=name, instance=f"i-{name}"))
    bench.advance(3_000 * (1 + len(names)))
    for name in names[1:]:
        bench.do(sync(name, instance=f"i-{name}"))
    assignments = {name: name.encode() for name in names}
    bench.do(sync(names[0], instance=f"i-{names[0]}", assignments=assignments))
    assert bench.group.state is S.STABLE
    return bench


def test_a_static_member_needs_no_first_answer() -> None:
    bench = ClassicBench()
    waiting = bench.do(join(new="a", instance="i", requires_known_id=True))
    assert waiting in bench.asked_at
    assert bench.group.members["a"].instance_id == "i"


def test_a_restarted_static_member_gets_its_assignment_without_a_rebalance() -> None:
    bench = static("a", "b")
    bench.forget_what_is_persisted()
    answer = bench.joined(join(new="b2", instance="i-b", requires_known_id=True))
    assert (answer.error, answer.generation, answer.member_id) == (E.NONE, 1, "b2")
    assert bench.group.state is S.STABLE
    assert bench.synced(sync("b2", instance="i-b")).assignment == b"b"
    assert bench.persisted is not None and "b2" in bench.persisted.members
    assert bench.heard(beat("b", instance="i-b")) == E.FENCED_INSTANCE_ID
    assert bench.heard(beat("a", instance="i-a")) == E.NONE


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_restarted_static_leader_does_not_assign_anew(can_skip: bool) -> None:
    bench = static("a", "b")
    answer = bench.joined(join(new="a2", instance="i-a", can_skip_assignment=can_skip))
    assert bench.group.leader == "a2"
    if can_skip:
        assert (answer.leader, answer.skip_assignment) == ("a2", True)
        assert [m for m, _, _ in answer.members] == ["a2", "b"]
    else:
        assert (answer.leader, answer.skip_assignment, answer.members) == ("a", False, ())


def test_a_restarted_static_member_with_another_protocol_rebalances() -> None:
    bench = static("a")
    waiting = bench.do(join(new="a2", instance="i-a", protocols=BOTH[::-1]))
    assert bench.join_answer(waiting).generation == 2
    assert bench.group.protocol == "roundrobin"


def test_a_restart_in_the_sync_phase_starts_it_over() -> None:
    bench = static("a", "b")
    bench.do(join("a", instance="i-a"))
    bench.do(join("b", instance="i-b"))
    assert bench.group.state is S.COMPLETING
    old = bench.do(sync("b", 2, instance="i-b"))
    waiting = bench.do(join(new="b2", instance="i-b"))
    assert bench.sync_answer(old).error is E.FENCED_INSTANCE_ID
    assert bench.state() is S.PREPARING
    bench.do(join("a", instance="i-a"))
    assert bench.join_answer(waiting).generation == 3


def test_the_older_of_two_with_one_instance_id_is_fenced_while_it_waits() -> None:
    bench = static("a", "b")
    bench.do(leave("b"))
    old = bench.do(join("b", instance="i-b"))
    assert bench.join_answer(old).error is E.UNKNOWN_MEMBER_ID
    first = bench.do(join(new="c1", instance="i-c"))
    second = bench.do(join(new="c2", instance="i-c"))
    assert bench.join_answer(first).error is E.FENCED_INSTANCE_ID
    bench.do(join("a", instance="i-a"))
    assert bench.join_answer(second).error is E.NONE


def test_absent_static_members_stay_until_their_session_ends() -> None:
    bench = static("a", "b")
    waiting = bench.do(join("a", instance="i-a"))
    bench.advance(9_999)
    assert waiting in bench.asked_at
    bench.advance(1)
    assert bench.join_answer(waiting).generation == 2
    assert list(bench.group.members) == ["a"]


def test_static_members_leave_by_instance_id_if_an_administrator_says_so() -> None:
    bench = static("a", "b")
    event = replace(leave(), members=(("", "i-b"), ("", "i-x"), ("", None), ("a", "i-b"), ("x", "i-a")))
    errors = [error for _, _, error in bench.left(event).members]
    unknown = E.UNKNOWN_MEMBER_ID
    assert errors == [E.NONE, unknown, unknown, unknown, E.FENCED_INSTANCE_ID]
    assert list(bench.group.members) == ["a"]


def test_a_client_that_retries_its_join_or_sync_is_answered_on_the_new_one() -> None:
    bench = ClassicBench().stable("a", "b")
    first = bench.do(join("a"))
    second = bench.do(join("a"))
    assert bench.join_answer(first).error is E.REBALANCE_IN_PROGRESS
    bench.do(join("b"))
    assert bench.join_answer(second).generation == 2
    first, second = bench.do(sync("b", 2)), bench.do(sync("b", 2))
    assert bench.sync_answer(first).error is E.REBALANCE_IN_PROGRESS
    bench.do(sync("a", 2, assignments={"b": b"x"}))
    assert bench.sync_answer(second).assignment == b"x"


def test_members_read_back_from_the_log_have_a_whole_session_to_show_up() -> None:
    bench = ClassicBench().stable("a")
    assert bench.persisted is not None
    back = resume(bench.persisted, 1_000_000)
    assert back.next_deadline() == 1_010_000
    assert step(back, Tick(), -1, 1_009_999, bench.settings).group.state is S.STABLE
    assert step(back, Tick(), -1, 1_010_000, bench.settings).group.state is S.EMPTY
