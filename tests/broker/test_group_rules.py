"""The classic group's rules one by one: who is answered what, when, and in which state the group is then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eoslog.broker.rules.classic.events import Event, HeartbeatAnswer, JoinAnswer, SyncAnswer, Tick
from eoslog.broker.rules.classic.group import resume, step, touch
from eoslog.broker.rules.classic.rebalance import Work
from eoslog.broker.rules.classic.state import PREDECESSORS, Group, GroupState, IllegalTransition, Settings
from eoslog.protocol.errors import ErrorCode as E
from tests.broker.group_events import BOTH, World, beat, join, leave, sync

S = GroupState


@pytest.mark.parametrize("before", S)
@pytest.mark.parametrize("after", S)
def test_only_the_table_s_transitions_are_possible(before: GroupState, after: GroupState) -> None:
    legal = {
        (S.EMPTY, S.PREPARING), (S.PREPARING, S.EMPTY), (S.PREPARING, S.COMPLETING),
        (S.COMPLETING, S.PREPARING), (S.COMPLETING, S.STABLE), (S.STABLE, S.PREPARING),
    } | {(state, S.DEAD) for state in S}  # fmt: skip
    work = Work(Group("g", state=before), 0, Settings())
    if (before, after) in legal:
        work.transition(after)
        assert work.group.state is after
    else:
        with pytest.raises(IllegalTransition, match="group g"):
            work.transition(after)
        assert work.group.state is before
    assert (before in PREDECESSORS[after]) == ((before, after) in legal)


def in_state(state: GroupState) -> World:
    """A world whose group of member "a" (leader) and "b" is in this state."""
    if state is S.EMPTY:
        return World()
    world = World().stable("a", "b")
    if state is S.DEAD:
        world.group = Group("g", state=S.DEAD)
    if state in (S.PREPARING, S.COMPLETING):
        world.do(join("a"))
    if state is S.COMPLETING:
        world.do(join("b"))
        world.group.generation = 1  # so that one table of events fits all states
    assert world.group.state is state
    return world


BEAT, SYNC, JOIN = beat("b"), sync("b"), join("b")
TABLE: list[tuple[GroupState, Event, E | None, GroupState]] = [
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
    state: GroupState, event: Event, error: E | None, after: GroupState
) -> None:
    world = in_state(state)
    before = world.group
    ticket = world.do(event)
    answer = world.answers.get(ticket)
    if error is None:
        assert answer is None, "should be parked"
    else:
        assert isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer)
        assert answer.error is error
    assert world.group.state is after
    if error not in (None, E.NONE, E.REBALANCE_IN_PROGRESS, E.MEMBER_ID_REQUIRED):
        assert world.group == before, "a refused event changed the group"


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
    world = World()
    assert world.joined(join(**change)).error is error  # type: ignore[arg-type]
    assert world.group.vacant


@pytest.mark.parametrize("event", [join(), sync("a"), beat("a")])
def test_an_empty_group_id_is_invalid(event: Event) -> None:
    world = World(group=Group(""))
    answer = world.answers[world.do(event)]
    assert isinstance(answer, JoinAnswer | SyncAnswer | HeartbeatAnswer)
    assert answer.error is E.INVALID_GROUP_ID


def test_members_that_have_no_protocol_in_common_are_refused() -> None:
    world = World().stable("a")
    assert world.joined(join(protocol_type="connect")).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(join(protocols=(("sticky", b""),))).error is E.INCONSISTENT_GROUP_PROTOCOL


def test_the_first_rebalance_waits_for_its_delay_and_longer_if_members_come() -> None:
    world = World()
    first = world.do(join(new="a"))
    world.advance(2_999)
    second = world.do(join(new="b"))
    world.advance(3_000)
    assert first in world.asked_at and second in world.asked_at
    world.advance(1)
    assert world.join_answer(first).generation == world.join_answer(second).generation == 1


def test_the_first_rebalance_is_not_extended_beyond_the_rebalance_time_out() -> None:
    world = World()
    first = world.do(join(new="m0", rebalance_timeout_ms=10_000))
    for number in range(1, 15):
        world.advance(1_000)
        if first in world.asked_at:
            world.do(join(new=f"m{number}", rebalance_timeout_ms=10_000))
    assert first in world.answers


def test_the_leader_gets_the_members_and_the_others_do_not() -> None:
    world = World()
    tickets = {name: world.do(join(new=name, protocols=((("range", name.encode()),)))) for name in "abc"}
    world.advance(6_000)
    answers = {name: world.join_answer(ticket) for name, ticket in tickets.items()}
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
    world = World()
    for number, names in enumerate(preferences):
        world.do(join(new=f"m{number}", protocols=tuple((name, b"") for name in names)))
    world.advance(12_000)
    assert world.group.protocol == chosen


def test_syncs_wait_for_the_leader_and_get_their_assignments() -> None:
    world = World()
    for name in "abc":
        world.do(join(new=name))
    world.advance(9_000)
    follower = world.do(sync("b"))
    assert follower in world.asked_at
    leader = world.synced(sync("a", assignments={"a": b"1", "b": b"2", "nobody": b"3"}))
    assert (leader.assignment, leader.protocol, leader.protocol_type) == (b"1", "range", "consumer")
    assert world.sync_answer(follower).assignment == b"2"
    assert world.group.state is S.STABLE
    assert world.synced(sync("c")).assignment == b"", "not assigned anything"
    assert world.persisted is not None
    assert [m.assignment for m in world.persisted.members.values()] == [b"1", b"2", b""]


@pytest.mark.parametrize(
    "wrong", [{"protocol_type": "connect"}, {"protocol": "sticky"}], ids=["type", "name"]
)
def test_a_sync_that_names_another_protocol_is_refused(wrong: dict[str, str]) -> None:
    world = World().stable("a")
    event = replace(sync("a"), **wrong)  # type: ignore[arg-type]
    assert world.synced(event).error is E.INCONSISTENT_GROUP_PROTOCOL
    assert world.synced(replace(event, protocol_type=None, protocol=None)).error is E.NONE


def test_a_rebalance_sends_waiting_syncs_back_to_join() -> None:
    world = in_state(S.COMPLETING)
    waiting = world.do(sync("b"))
    world.do(join(new="c"))
    assert world.sync_answer(waiting).error is E.REBALANCE_IN_PROGRESS
    assert world.group.state is S.PREPARING


def test_members_that_do_not_join_again_in_time_are_left_out() -> None:
    world = World().stable("a", "b")
    third = world.do(join(new="c"))
    for _ in range(12):
        world.advance(4_999)
        assert world.heard(beat("a")) == E.REBALANCE_IN_PROGRESS
        assert world.heard(beat("b")) == E.REBALANCE_IN_PROGRESS
    assert third in world.asked_at
    world.advance(4_999)
    answer = world.join_answer(third)
    assert (answer.generation, answer.leader, [m for m, _, _ in answer.members]) == (2, "c", ["c"])
    assert world.heard(beat("a", 2)) == E.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_left_out() -> None:
    world = World()
    tickets = [world.do(join(new=name)) for name in "ab"]
    world.advance(6_000)
    assert all(ticket in world.answers for ticket in tickets)
    waiting = world.do(sync("b"))
    for _ in range(13):
        world.heard(beat("a"))
        world.advance(4_900)
    assert world.sync_answer(waiting).error is E.REBALANCE_IN_PROGRESS
    assert "a" not in world.group.members


def test_a_session_without_heartbeats_ends_and_the_rest_rebalances() -> None:
    world = World().stable("a", "b")
    world.advance(9_000)
    assert world.heard(beat("a")) == E.NONE
    world.advance(1_000)
    assert list(world.group.members) == ["a"]
    assert world.heard(beat("a")) == E.REBALANCE_IN_PROGRESS
    assert world.joined(join("a")).generation == 2


def test_all_sessions_ended_leaves_an_empty_group_on_record() -> None:
    world = World().stable("a", "b")
    world.advance(120_000)
    assert world.group.state is S.EMPTY
    assert world.persisted == world.group
    assert (world.group.generation, world.group.leader, world.group.protocol) == (2, None, None)
    assert world.group.next_deadline() is None


def test_a_parked_member_stays_alive_without_heartbeats() -> None:
    world = World().stable("a", "b")
    waiting = world.do(join("a", rebalance_timeout_ms=60_000))
    for _ in range(8):
        world.advance(5_000)
        world.heard(beat("b"))
    assert waiting in world.asked_at
    assert "a" in world.group.members
    assert world.joined(join("b")).generation == 2
    world.advance(9_999)
    assert "a" in world.group.members
    world.advance(1)
    assert "a" not in world.group.members, "its session starts again with the answer"


def test_an_accepted_commit_counts_as_a_heartbeat() -> None:
    world = World().stable("a")
    world.advance(9_999)
    world.group = touch(world.group, "a", world.now)
    world.advance(9_999)
    assert world.group.state is S.STABLE
    assert touch(world.group, "nobody", world.now) is world.group


def test_known_member_id_first() -> None:
    world = World()
    told = world.joined(join(new="a", requires_known_id=True))
    assert (told.error, told.member_id) == (E.MEMBER_ID_REQUIRED, "a")
    assert not world.group.members
    waiting = world.do(join("a"))
    world.advance(3_000)
    assert world.join_answer(waiting).member_id == "a"


def test_a_handed_out_id_lapses_and_holds_nobody_up_then() -> None:
    world = World().stable("a")
    world.do(join(new="b", requires_known_id=True, session_timeout_ms=6_000))
    waiting = world.do(join("a"))
    assert waiting in world.asked_at, "the one that was promised a place may still come"
    world.advance(6_000)
    assert world.join_answer(waiting).generation == 2
    assert world.joined(join("b")).error is E.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_is_dropped_after_its_own_time_out() -> None:
    world = World(settings=Settings(new_member_join_timeout_ms=20_000, group_initial_rebalance_delay_ms=0))
    world.stable("a")
    gone = world.do(join(new="b", rebalance_timeout_ms=300_000))
    for _ in range(4):
        world.heard(beat("a"))
        world.advance(5_000)
    answer = world.join_answer(gone)
    assert (answer.error, answer.member_id) == (E.UNKNOWN_MEMBER_ID, "")


def test_leaving() -> None:
    world = World().stable("a", "b", "c")
    answer = world.left(leave("b", "x"))
    assert answer.members == (("b", None, E.NONE), ("x", None, E.UNKNOWN_MEMBER_ID))
    assert world.group.state is S.PREPARING
    assert "b" not in world.group.members
    world.left(leave("a", "c"))
    assert world.state() is S.EMPTY
    assert world.persisted == world.group


def test_the_last_one_that_was_waited_for_leaves() -> None:
    world = World().stable("a", "b")
    waiting = world.do(join("a"))
    world.do(leave("b"))
    assert world.join_answer(waiting).generation == 2


def test_leaving_with_a_parked_join_answers_it() -> None:
    world = World().stable("a", "b")
    waiting = world.do(join("a"))
    world.do(leave("a"))
    assert world.join_answer(waiting).error is E.UNKNOWN_MEMBER_ID


def test_a_leave_of_strangers_changes_nothing() -> None:
    world = World().stable("a")
    before = world.group
    world.do(leave("x", ""))
    assert world.group == before


def test_a_full_group_takes_no_more_but_keeps_its_members() -> None:
    world = World(settings=Settings(group_max_size=2, group_initial_rebalance_delay_ms=0)).stable("a", "b")
    assert world.joined(join(new="c")).error is E.GROUP_MAX_SIZE_REACHED
    assert world.group.state is S.STABLE
    world.do(join("a"))
    assert world.joined(join("b")).error is E.NONE


# Static members


def static(*names: str) -> World:
    """A stable group of static members: instance "i-a" under id "a", and so on; the first leads."""
    world = World()
    for name in names:
        world.do(join(new=name, instance=f"i-{name}"))
    world.advance(3_000 * (1 + len(names)))
    for name in names[1:]:
        world.do(sync(name, instance=f"i-{name}"))
    assignments = {name: name.encode() for name in names}
    world.do(sync(names[0], instance=f"i-{names[0]}", assignments=assignments))
    assert world.group.state is S.STABLE
    return world


def test_a_static_member_needs_no_first_answer() -> None:
    world = World()
    waiting = world.do(join(new="a", instance="i", requires_known_id=True))
    assert waiting in world.asked_at
    assert world.group.members["a"].instance_id == "i"


def test_a_restarted_static_member_gets_its_assignment_without_a_rebalance() -> None:
    world = static("a", "b")
    world.forget_what_is_persisted()
    answer = world.joined(join(new="b2", instance="i-b", requires_known_id=True))
    assert (answer.error, answer.generation, answer.member_id) == (E.NONE, 1, "b2")
    assert world.group.state is S.STABLE
    assert world.synced(sync("b2", instance="i-b")).assignment == b"b"
    assert world.persisted is not None and "b2" in world.persisted.members
    assert world.heard(beat("b", instance="i-b")) == E.FENCED_INSTANCE_ID
    assert world.heard(beat("a", instance="i-a")) == E.NONE


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_restarted_static_leader_does_not_assign_anew(can_skip: bool) -> None:
    world = static("a", "b")
    answer = world.joined(join(new="a2", instance="i-a", can_skip_assignment=can_skip))
    assert world.group.leader == "a2"
    if can_skip:
        assert (answer.leader, answer.skip_assignment) == ("a2", True)
        assert [m for m, _, _ in answer.members] == ["a2", "b"]
    else:
        assert (answer.leader, answer.skip_assignment, answer.members) == ("a", False, ())


def test_a_restarted_static_member_with_another_protocol_rebalances() -> None:
    world = static("a")
    waiting = world.do(join(new="a2", instance="i-a", protocols=BOTH[::-1]))
    assert world.join_answer(waiting).generation == 2
    assert world.group.protocol == "roundrobin"


def test_a_restart_in_the_sync_phase_starts_it_over() -> None:
    world = static("a", "b")
    world.do(join("a", instance="i-a"))
    world.do(join("b", instance="i-b"))
    assert world.group.state is S.COMPLETING
    old = world.do(sync("b", 2, instance="i-b"))
    waiting = world.do(join(new="b2", instance="i-b"))
    assert world.sync_answer(old).error is E.FENCED_INSTANCE_ID
    assert world.state() is S.PREPARING
    world.do(join("a", instance="i-a"))
    assert world.join_answer(waiting).generation == 3


def test_the_older_of_two_with_one_instance_id_is_fenced_while_it_waits() -> None:
    world = static("a", "b")
    world.do(leave("b"))
    old = world.do(join("b", instance="i-b"))
    assert world.join_answer(old).error is E.UNKNOWN_MEMBER_ID
    first = world.do(join(new="c1", instance="i-c"))
    second = world.do(join(new="c2", instance="i-c"))
    assert world.join_answer(first).error is E.FENCED_INSTANCE_ID
    world.do(join("a", instance="i-a"))
    assert world.join_answer(second).error is E.NONE


def test_absent_static_members_stay_until_their_session_ends() -> None:
    world = static("a", "b")
    waiting = world.do(join("a", instance="i-a"))
    world.advance(9_999)
    assert waiting in world.asked_at
    world.advance(1)
    assert world.join_answer(waiting).generation == 2
    assert list(world.group.members) == ["a"]


def test_static_members_leave_by_instance_id_if_an_administrator_says_so() -> None:
    world = static("a", "b")
    event = replace(leave(), members=(("", "i-b"), ("", "i-x"), ("", None), ("a", "i-b"), ("x", "i-a")))
    errors = [error for _, _, error in world.left(event).members]
    unknown = E.UNKNOWN_MEMBER_ID
    assert errors == [E.NONE, unknown, unknown, unknown, E.FENCED_INSTANCE_ID]
    assert list(world.group.members) == ["a"]


def test_a_client_that_retries_its_join_or_sync_is_answered_on_the_new_one() -> None:
    world = World().stable("a", "b")
    first = world.do(join("a"))
    second = world.do(join("a"))
    assert world.join_answer(first).error is E.REBALANCE_IN_PROGRESS
    world.do(join("b"))
    assert world.join_answer(second).generation == 2
    first, second = world.do(sync("b", 2)), world.do(sync("b", 2))
    assert world.sync_answer(first).error is E.REBALANCE_IN_PROGRESS
    world.do(sync("a", 2, assignments={"b": b"x"}))
    assert world.sync_answer(second).assignment == b"x"


def test_members_read_back_from_the_log_have_a_whole_session_to_show_up() -> None:
    world = World().stable("a")
    assert world.persisted is not None
    back = resume(world.persisted, 1_000_000)
    assert back.next_deadline() == 1_010_000
    assert step(back, Tick(), -1, 1_009_999, world.settings).group.state is S.STABLE
    assert step(back, Tick(), -1, 1_010_000, world.settings).group.state is S.EMPTY
