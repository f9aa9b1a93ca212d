"""What is a proof and what is none: states of coordinators, markers, and decisions that were hurt."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import finish, sink_transaction
from eoslog.connector.commit.decide import SourceOffsets, count
from eoslog.connector.commit.decision import Stored, decode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CommitFault,
    DecisionDamaged,
    DecisionGone,
    MarkersMissing,
    ParticipantsLost,
    SinkFenced,
    Unfinished,
)
from eoslog.connector.commit.finish import find_lost, is_aborted, lost_word
from eoslog.connector.commit.marker_proof import prove_last
from eoslog.connector.commit.move_decision import give_up
from eoslog.connector.commit.places import OpenThere, PartitionState, Seen
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Decided, Empty, Prepared, Report
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes
from tests.connector.commit.model_broker import TIMEOUT_MS

BOTH = pytest.mark.parametrize("tv", [1, 2])
SOURCE = SourceOffsets("dashboards", {("source", 0): (1, "")})
WROTE = Participant("sink/1.0/0/w.0", ProducerIdentity(7, 5))


def prepared(report: Report) -> Prepared:
    assert isinstance(report, Prepared)
    return report


def with_rows(report: Report) -> Prepared | Decided:
    assert not isinstance(report, Empty)
    return report


@pytest.mark.parametrize("state", ["PrepareAbort", "CompleteAbort"])
def test_which_abort_is_that_of_these_rows(state: str) -> None:
    """Its own, or its time-out's, which raises the epoch. A later one's says nothing of rows that may have
    been committed before it, nor does one of another producer id: they would be written again."""

    def proven(producer_id: int, epoch: int) -> bool:
        return is_aborted(c.Description(state, ProducerIdentity(producer_id, epoch), 60_000, 0), WROTE)

    assert [epoch for epoch in range(10) if proven(7, epoch)] == [5, 6]
    assert not any(proven(8, epoch) for epoch in range(10)), "the id expired, or its epochs ran out"


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "Dead"])
def test_what_is_no_abort(state: str) -> None:
    assert not is_aborted(c.Description(state, WROTE.identity, 60_000, 0), WROTE)
    assert not is_aborted(None, WROTE)


def test_a_decision_with_another_digit_is_damaged() -> None:
    """It reads as well as the right one, and names another transaction, batch or number of rows."""
    bench = Bench()
    bench.whole_batch(0)
    ((sequence, text),) = bench.broker.fetch("sink").chunks.values()  # type: ignore[union-attr]
    body = text.index("{")
    digits = [at for at, sign in enumerate(text) if sign.isdecimal() and at > body]
    assert len(digits) > 10
    for at in digits:
        other = "1" if text[at] != "1" else "2"
        with pytest.raises(DecisionDamaged, match="not whole"):
            decode(bench.sink, {0: (sequence, text[:at] + other + text[at + 1 :])})


def test_a_marker_that_is_sure_is_written_before_the_evidence_is_gone() -> None:
    """Lost on the partition of the user's group alone: the decision can be read, and acquiring the sink would
    destroy what tells how the transaction ended. Readers of the group would wait for ever."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.forget_markers("sink", ("dashboards",))
    bench.commit(reports, 0, SOURCE)
    assert set(bench.broker.held) == {"dashboards"}
    bench.commands.clear()
    away = c.Unknown("no answer")
    bench.intercept = lambda command: away if isinstance(command, c.WriteMarkers) else None
    for _ in range(2):
        with pytest.raises(MarkersMissing, match=r"the COMMIT marker could not be written: no answer"):
            bench.begin(1, completed=0)
    assert c.Acquire("sink") not in bench.commands
    bench.intercept = None
    bench.begin(1, completed=0)
    assert not bench.broker.held and bench.broker.groups["dashboards"] == SOURCE.offsets


def held_after_the_decision(bench: Bench, looks: list[bool]) -> Any:
    """A begin that rolls forward: whether one participant is held open, look for look; what was written."""
    reports = bench.whole_batch(0)
    held = (c.HeldBack(("out", 1), reports[1].participant, 0),)  # type: ignore[union-attr]
    left, written = iter(looks), list[c.WriteMarkers]()

    def answer(command: c.Command[Any]) -> Any:
        if isinstance(command, c.FindHeld):
            return held if next(left) else ()
        if isinstance(command, c.WriteMarkers):
            written.append(command)
        return None

    bench.intercept = answer
    bench.begin(0)
    assert not list(left), "looked too few times"
    return written


def test_a_marker_that_comes_between_two_looks_is_not_written() -> None:
    """The first look may have been before it, and the coordinator's word after it."""
    assert held_after_the_decision(Bench(), [True, False]) == []


def test_a_marker_that_was_written_is_looked_for_once_more() -> None:
    (written,) = held_after_the_decision(Bench(), [True, True, False])
    assert written.commit


def test_a_marker_that_was_written_and_does_not_show_is_said() -> None:
    with pytest.raises(MarkersMissing, match="out-1 by sink/"):
        held_after_the_decision(Bench(), [True, True, True])


# -- the sink's own transaction, look for look ------------------------------------------------

UNSTABLE = c.Refused(int(ErrorCode.UNSTABLE_OFFSET_COMMIT), "pending")
STORED = Stored(1, {})
HELD = (c.HeldBack(("__consumer_offsets", 0), Participant("sink", ProducerIdentity(7, 4)), 0),)


def told(state: str, epoch: int = 5) -> dict[str, c.Description]:
    return {"sink": c.Description(state, ProducerIdentity(7, epoch), 60_000, 0)}


def looked(rules: c.Rules[Any], **answers: list[Any]) -> tuple[Any, list[c.WriteMarkers]]:
    """What rules come to when each kind of question is answered so, the last answer again and again; and the
    markers they write."""
    written: list[c.WriteMarkers] = []
    left = {name: list(each) for name, each in answers.items()}
    command = next(rules)
    try:
        while True:
            kind = type(command).__name__
            if isinstance(command, c.WriteMarkers):
                written.append(command)
            each = left.get(kind, [2 if kind == "TransactionVersion" else None])
            command = rules.send(each.pop(0) if len(each) > 1 else each[0])
    except StopIteration as done:
        return done.value, written


def test_markers_that_are_under_way_are_waited_for() -> None:
    found = looked(
        sink_transaction.ask_stored(Sink("sink"), None),
        FetchStored=[UNSTABLE, UNSTABLE, UNSTABLE, STORED],
        Describe=[told("PrepareCommit")],
        FindOwn=[HELD],
    )
    assert found == (STORED, [])


def test_a_lost_marker_that_is_not_sure_is_named_and_not_written() -> None:
    """The coordinator speaks of a later transaction."""
    with pytest.raises(MarkersMissing, match="does not say how exactly this transaction ended"):
        looked(
            sink_transaction.ask_stored(Sink("sink"), None),
            FetchStored=[UNSTABLE],
            Describe=[told("CompleteCommit", 9)],
            FindOwn=[HELD],
        )


def test_what_can_be_read_by_now_is_read() -> None:
    """Something else is held open, perhaps on the partition of another group."""
    found = looked(
        sink_transaction.ask_stored(Sink("sink"), None),
        FetchStored=[UNSTABLE, STORED],
        Describe=[told("CompleteCommit", 9)],
        FindOwn=[HELD],
    )
    assert found == (STORED, [])


@pytest.mark.parametrize(("prepared", "complete"), [("PrepareCommit", True), ("PrepareAbort", False)])
def test_a_start_waits_for_the_markers_that_are_on_their_way(prepared: str, complete: bool) -> None:
    """Only when they are written, as the coordinator says, one that does not show is lost."""
    _, (written,) = looked(
        sink_transaction.write_lost_markers(Sink("sink")),
        Describe=[told(prepared), told(prepared.replace("Prepare", "Complete"))],
        FindOwn=[HELD, HELD, ()],
    )
    assert (written.held, written.commit) == (HELD, complete)


def test_only_pending_offsets_are_waited_for() -> None:
    refused = c.Refused(int(ErrorCode.GROUP_AUTHORIZATION_FAILED), "not allowed")
    assert looked(sink_transaction.ask_stored(Sink("sink"), None), FetchStored=[refused, STORED]) == (
        refused,
        [],
    )


def test_of_what_is_held_only_what_is_sure_is_written() -> None:
    older = (c.HeldBack(("__consumer_offsets", 1), Participant("sink", ProducerIdentity(7, 2)), 0),)
    _, (written,) = looked(
        sink_transaction.write_lost_markers(Sink("sink")),
        Describe=[told("CompleteCommit")],
        FindOwn=[(*HELD, *older), older],
        FetchStored=[STORED],
    )
    assert written.held == HELD


def test_what_cannot_be_told_of_another_group_does_not_stop_the_sink() -> None:
    """On transaction.version 1 a fresh start cannot tell; its own decision can be read."""
    bench = Bench(tv=1)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.forget_markers("sink", ("dashboards",))
    bench.commit(reports, 0, SOURCE)
    bench.whole_batch(1, completed=0)
    assert len(bench.broker.visible()) == 4


def test_a_coordinator_that_never_writes_its_markers_is_not_asked_for_ever() -> None:
    """Its partitions are held open: they are written, or it is said."""
    looks = 0

    def answer(command: c.Command[Any]) -> Any:
        nonlocal looks
        if isinstance(command, c.FindHeld):
            return (c.HeldBack(("out", 1), participant, 0),)
        if isinstance(command, c.Describe) and command.names == (participant.name,):
            looks += 1
            assert looks < 100
            return {participant.name: c.Description("PrepareCommit", participant.identity, 60_000, 0)}
        return None

    bench = Bench()
    participant = bench.whole_batch(0)[1].participant  # type: ignore[union-attr]
    bench.intercept = answer
    with pytest.raises(MarkersMissing, match="out-1"):
        bench.begin(0)
    assert looks > 1


@BOTH
def test_a_driver_that_lives_on_closes_what_readers_of_the_users_group_wait_for(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    bench.broker.forget_markers("sink", ("dashboards",))
    bench.commit(reports, 0, SOURCE)
    bench.run(prove_last(bench.sink, begun.identity))
    assert not bench.broker.held and bench.broker.groups["dashboards"] == SOURCE.offsets


# -- markers that are due ---------------------------------------------------------------------


def due(bench: Bench, looks: list[Any], *, living: bool = False) -> list[type[c.Command[Any]]]:
    """A begin behind a batch that Spark has noted, one of whose transactions is PrepareCommit for ever. What
    its partition says at each look; what was asked of brokers about it."""
    name, (producer_id, epoch) = prepared(bench.whole_batch(0)[1]).participant
    said = c.Description("PrepareCommit", ProducerIdentity(producer_id, epoch + 1), 0, 0, (("out", 1),))
    told = {
        "held": {("out", 1): PartitionState(0, {ProducerIdentity(producer_id, epoch): OpenThere(0)})},
        "closed": {("out", 1): PartitionState(0, {ProducerIdentity(7, 0): OpenThere(3)})},
        "not told": {("out", 1): PartitionState(0, None)},
    }
    left, asked = iter(looks), list[type[c.Command[Any]]]()

    def answer(command: c.Command[Any]) -> Any:
        asked.append(type(command))
        match command:
            case c.ListOngoing():
                return c.Listed((), (name,))
            case c.Describe(names) if names == (name,):
                return {name: said}
            case c.FindOpen(places):
                assert places == (("out", 1),)
                look = next(left)
                return told.get(look, look) if isinstance(look, str) else look
            case c.AwaitMarkers(names):
                return names
        return None

    bench.intercept = answer
    bench.begin(1, completed=0, run=bench.remembered if living else None)
    assert not list(left), "looked too few times"
    return [one for one in asked if one in (c.FindOpen, c.AwaitMarkers)]


@BOTH
@pytest.mark.parametrize("living", [True, False])
@pytest.mark.parametrize("look", ["held", "not told"])
def test_decided_rows_that_nobody_can_read_for_a_minute_stop_the_next_begin(
    tv: int, living: bool, look: str
) -> None:
    """Apache Kafka does not write a marker again that a topic has refused. Where leaders tell nothing, the
    coordinators are believed."""
    with pytest.raises(MarkersMissing, match=r"out-1 by sink/.*PrepareCommit.*restart the broker"):
        due(Bench(tv), [look] * (finish.LOOKS + 1), living=living)


@BOTH
def test_markers_that_come_within_a_minute_stop_nobody(tv: int) -> None:
    asked = due(Bench(tv), ["held", "held", "closed"])
    assert asked == [c.FindOpen, c.AwaitMarkers, c.FindOpen, c.AwaitMarkers, c.FindOpen]


@pytest.mark.parametrize("closed", ["closed", c.Refused(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "gone")])
def test_a_coordinator_that_does_not_know_of_written_markers_stops_nobody(closed: Any) -> None:
    """Somebody has written them in its place, or the topic is gone."""
    assert due(Bench(), [closed]) == [c.FindOpen]


def test_partitions_that_cannot_be_asked_for_due_markers_stop_the_begin() -> None:
    with pytest.raises(MarkersMissing, match="cannot be seen: away"):
        due(Bench(), [c.Unknown("away")])


def test_what_was_aborted_and_is_written_again_gets_no_commit_marker() -> None:
    """Its abort marker is missing on a partition, as once on Apache Kafka 4.3.1 after a start under load."""
    bench, written = Bench(), list[c.WriteMarkers]()
    aborted: Any = bench.whole_batch(0)[1]
    begun = bench.begin(0)
    held = (c.HeldBack(("out", 1), aborted.participant, 0),)

    def answer(command: c.Command[Any]) -> Any:
        if isinstance(command, c.FindHeld):
            return held if aborted.participant in command.participants else ()
        if isinstance(command, c.WriteMarkers):
            written.append(command)
        return None

    bench.intercept = answer
    bench.run(prove_last(bench.sink, begun.identity, [1]))
    assert [(one.held, one.commit) for one in written] == [(held, False)]


# -- sealing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [c.Refused(1, "not now"), c.Unknown("away")])
def test_whether_sealing_is_offered_must_be_known_where_it_is_demanded(answer: Any) -> None:
    bench = Bench(two_phase=TwoPhase.REQUIRE, keeps=True)
    bench.intercept = lambda command: (
        {name: answer for name, _ in command.participants} if isinstance(command, c.Seal) else None
    )
    with pytest.raises(CommitFault, match=f"cannot be found out: {answer}"):
        bench.begin(0)


@BOTH
def test_a_participant_that_cannot_be_sealed_is_not_decided(tv: int) -> None:
    """Refused for another reason than that nobody offers it."""
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    other = reports[1].participant.name  # type: ignore[union-attr]
    bench.intercept = lambda command: (
        bench._perform(command) | {other: c.Refused(1, "no room")} if isinstance(command, c.Seal) else None
    )
    with pytest.raises(BatchRefused, match="could not be kept open: no room"):
        bench.commit(reports, 0)
    bench.intercept = None
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
@pytest.mark.parametrize("lost", [c.Seal, c.End])
def test_a_takeover_without_an_answer_is_not_finished(tv: int, lost: type[c.Command[Any]]) -> None:
    """A seal came late, so the holder in the decision cannot end it; nor does it work out to take it over."""
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    for name in bench.open():
        bench.broker.keep(name)
    bench.commands.clear()

    def lose(command: c.Command[Any]) -> Any:
        sealed = any(isinstance(sent, c.Seal) for sent in bench.commands)
        return c.Unknown("no answer") if sealed and isinstance(command, lost) else None

    bench.intercept = lose
    with pytest.raises(Unfinished, match="2 of its transactions could not be committed yet"):
        bench.begin(0)
    bench.intercept = None
    bench.begin(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


# -- what is counted --------------------------------------------------------------------------


def test_a_short_time_out_leaves_a_quarter_in_hand() -> None:
    for left_ms, fit in ((1_900, False), (2_100, True)):
        bench = Bench()
        reports = bench.prepare_all(bench.begin(0))
        for name in bench.open():
            bench.broker.transactions[name].timeout_ms = 8_000
        bench.broker.now_ms += 8_000 - left_ms
        if fit:
            bench.commit(reports, 0)
        else:
            with pytest.raises(BatchRefused, match="of its 8000 ms left"):
                bench.commit(reports, 0)


def test_reports_of_another_sink_decide_nothing() -> None:
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0))
    bench.sink = Sink("other")
    with pytest.raises(CommitFault, match="do not belong together, or not to this batch"):
        bench.commit(reports, 0)


def test_tasks_that_wrote_to_two_topics_of_one_name_decide_nothing() -> None:
    """The topic was deleted and created again between them: rows of one are gone with the old one."""
    bench = Bench()
    first, second = map(prepared, bench.prepare_all(bench.begin(0)))
    one = replace(first, topic_ids=(("out", "old"),))
    for topics, fit in (((("out", "new"),), False), ((("out", "old"), ("more", "x")), True)):
        reports: list[Report] = [one, replace(second, topic_ids=topics)]
        if fit:
            bench.commit(reports, 0)
        else:
            with pytest.raises(BatchRefused, match="topic out was deleted and created again"):
                bench.commit(reports, 0)


def test_rows_and_checksums_are_recorded_of_all_tasks_or_of_none() -> None:
    """A later replay is compared with them, partition for partition."""
    bench = Bench()
    first, second = map(prepared, bench.prepare_all(bench.begin(0)))
    summed = replace(first, checksum=7)
    assert count(bench.sink, [summed, second], 0)[5:7] == ((1, 1), ())
    both = [summed, replace(second, checksum=8)]
    assert count(bench.sink, both, 0)[5:7] == ((1, 1), (7, 8))
    odd: list[Report] = [first, Empty(first.stamp, 4)]
    assert count(bench.sink, odd, 0)[5:7] == ((), ())


@BOTH
def test_a_loss_that_was_not_expected_has_no_checksums_to_compare(tv: int) -> None:
    bench = Bench(tv, on_lost=OnLost.REPLAY)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.broker.expire(reports[1].participant.name)  # type: ignore[union-attr]
    again: list[Report] = [
        replace(with_rows(report), checksum=5) for report in bench.prepare_all(bench.begin(0))
    ]
    bench.commit(again, 0)
    assert sorted(bench.broker.visible()) == ["q0p0", "q0p1"]


@BOTH
def test_tasks_that_found_a_decision_which_is_gone_by_now_stop_the_query(tv: int) -> None:
    """The group was deleted in between: what it decided cannot be finished, and not be written again."""
    bench = Bench(tv)
    bench.whole_batch(0)
    reports = bench.prepare_all(bench.begin(0))
    bench.broker.groups.clear()
    with pytest.raises(DecisionGone, match="tasks found it decided"):
        bench.commit(reports, 0)


@BOTH
def test_so_does_a_replay_of_what_is_gone_by_now(tv: int) -> None:
    bench = Bench(tv, on_lost=OnLost.REPLAY)
    reports = bench.prepare_all(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    for name in bench.open():
        bench.broker.expire(name)
    again = bench.prepare_all(bench.begin(0))
    bench.broker.groups.clear()
    with pytest.raises(DecisionGone, match="tasks found it decided"):
        bench.commit(again, 0)
    assert bench.broker.visible() == []


@BOTH
def test_a_commit_clears_nothing_of_a_newer_driver(tv: int) -> None:
    """It has begun, and its tasks have written, just before this one looks for what its losers left."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))

    def replace_the_driver(command: c.Command[Any]) -> None:
        if isinstance(command, c.ListOngoing):
            bench.intercept = None
            bench.newer = bench.prepare_all(bench.begin(1))  # type: ignore[attr-defined]

    bench.intercept = replace_the_driver
    bench.commit(reports, 0)
    assert len(bench.open()) == 2
    bench.commit(bench.newer, 1)  # type: ignore[attr-defined]
    assert len(bench.broker.visible()) == 4


def test_a_commit_leaves_what_comes_late_under_a_decided_name() -> None:
    """As begin does: aborted, it would look as if the decided rows had been."""
    bench = Bench(tv=1)
    reports = bench.prepare_all(bench.begin(0))
    winner = reports[0].participant.name  # type: ignore[union-attr]

    def late(command: c.Command[Any]) -> None:
        if isinstance(command, c.ListOngoing):
            bench.intercept = None
            bench.broker.transactions[winner].state = "Ongoing"

    bench.intercept = late
    bench.commit(reports, 0)
    assert bench.open() == (winner,)


@BOTH
def test_a_commit_that_is_refused_is_no_decision(tv: int) -> None:
    """Another driver has acquired the sink, which aborted what was staged, right before the commit point."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))

    def take_over(command: c.Command[Any]) -> None:
        if decides(command):
            bench.intercept = None
            bench.broker.init("sink")

    bench.intercept = take_over
    with pytest.raises(SinkFenced):
        bench.commit(reports, 0)
    assert bench.broker.visible() == []


@BOTH
@pytest.mark.parametrize("away", [c.Seal, c.Describe, c.StageOffsets])
@pytest.mark.parametrize("answer", [c.Unknown("away"), c.Refused(1, "not now")])
def test_what_cannot_be_asked_before_the_decision_refuses_the_batch(tv: int, away: type, answer: Any) -> None:
    bench = Bench(tv, keeps=True)
    reports = bench.prepare_all(bench.begin(0))

    def lose(command: c.Command[Any]) -> Any:
        if isinstance(command, away):
            bench.intercept = None
            return answer
        return None

    bench.intercept = lose
    with pytest.raises(BatchRefused, match=f"batch 0 of query q was not decided: .*{answer}"):
        bench.commit(reports, 0)
    assert bench.open() == () and not any(map(decides, bench.commands))
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


def committed_where(bench: Bench, state: Callable[[ProducerIdentity], Any]) -> None:
    """A batch whose task 0 has its rows from offset 5 on in out-0, the last one under sequence number 6,
    where the leader says this."""
    begun = bench.begin(0)
    first, second = map(prepared, bench.prepare_all(begun))
    reports: list[Report] = [
        replace(first, first_rows=(5,), last_sequences=(6,)),
        replace(second, first_rows=(-1,)),
    ]

    def answer(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.FindOpen):
            return None
        said = state(first.participant.identity)
        return {place: said for place in command.places} if isinstance(said, PartitionState) else said

    bench.intercept = answer
    bench.commit(reports, 0)


@BOTH
@pytest.mark.parametrize(
    "state",
    [
        lambda who: PartitionState(
            0, {who: OpenThere(5, 6), who._replace(epoch=who.epoch + 1): OpenThere(9)}
        ),
        lambda who: PartitionState(5, {who: OpenThere(3)}),
        lambda who: PartitionState(-1, None),
    ],
    ids=["open", "open since before", "nothing is told"],
)
def test_rows_that_are_open_where_they_were_written_are_decided(tv: int, state: Any) -> None:
    bench = Bench(tv)
    committed_where(bench, state)
    assert bench.broker.visible() == ["q0p0", "q0p1"]
    looks = [command for command in bench.commands if isinstance(command, (c.AskOpen, c.FindOpen))]
    assert [command.places for command in looks] == [(("out", 0),)] * 2


@BOTH
@pytest.mark.parametrize(
    ("state", "why"),
    [
        (lambda who: PartitionState(0, {}), r"out-0 has no open transaction of \S+, and its rows begin at 5"),
        (
            lambda who: PartitionState(0, {who: OpenThere(6, 6)}),
            r"no open transaction of \S+ before 6, and its rows begin at 5",
        ),
        (
            lambda who: PartitionState(0, {who._replace(epoch=who.epoch + 1): OpenThere(5, 6)}),
            "no open transaction",
        ),
        (
            lambda who: PartitionState(6, {who: OpenThere(5, 6)}),
            "out-0 begins at 6, and rows were written from 5 on",
        ),
        (
            lambda who: PartitionState(0, {who: OpenThere(5, 4)}),
            r"out-0 has lost the last 2 rows of \S+, which it had acknowledged",
        ),
        (lambda who: PartitionState(6, None), "out-0 begins at 6"),
        (lambda who: c.Refused(3, "no such topic"), "could not be looked up: no such topic"),
        (lambda who: c.Unknown("no answer"), "could not be looked up: no answer"),
    ],
    ids=["ended", "half-way", "another epoch", "deleted", "cut", "deleted, unread", "refused", "unknown"],
)
def test_rows_that_are_gone_from_their_partition_are_not_decided(tv: int, state: Any, why: str) -> None:
    """Their coordinator says that the transaction is open, and would commit it."""
    bench = Bench(tv)
    with pytest.raises(
        BatchRefused, match=f"batch 0 of query q was not decided.*{why}.*tart the query again"
    ):
        committed_where(bench, state)
    assert bench.open() == () and not any(map(decides, bench.commands))
    bench.intercept = None
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@BOTH
@pytest.mark.parametrize("group", ["sink", "user"])
def test_offsets_that_are_pending_no_more_are_not_decided(tv: int, group: str) -> None:
    """Somebody has ended the sink's own transaction on a group's partition: its commit would not show."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))

    def end(command: c.Command[Any]) -> None:
        if isinstance(command, c.AskOpen):
            bench.broker.transactions["sink"].offsets.pop(group)

    bench.intercept = end
    with pytest.raises(BatchRefused, match=f"not decided.*no offsets of group {group} are about to be commi"):
        bench.commit(reports, 0, SourceOffsets("user", {("in", 0): (7, "")}))
    assert bench.open() == () and not any(map(decides, bench.commands))
    bench.intercept = None
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


def killed_after_the_decision(bench: Bench, seen: dict[int, Seen]) -> tuple[ProducerIdentity, ...]:
    """Two tasks have written to out-0 and out-1. The log shows this of each place that is asked for."""
    begun = bench.begin(0)
    both = (("out", 0), ("out", 1))
    reports: list[Report] = [
        replace(prepared(report), written=both, last_rows=((5 * n + 5, 1), (9 * n + 9, 1)), checksum=n)
        for n, report in enumerate(bench.prepare_all(begun))
    ]
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    who = tuple(prepared(report).participant.identity for report in reports)

    def answer(command: c.Command[Any]) -> Any:
        if isinstance(command, c.LookAt):
            return {place: seen[place.offset] for place in command.places}
        return None

    bench.intercept = answer
    return who


OF_WINNERS = {5: Seen.COMMITTED, 9: Seen.COMMITTED, 10: Seen.COMMITTED, 18: Seen.COMMITTED}


@BOTH
@pytest.mark.parametrize("how", [Seen.COMMITTED, Seen.HIDDEN, Seen.REMOVED])
def test_a_recovery_looks_whether_the_log_has_the_rows(tv: int, how: Seen) -> None:
    """What cannot be seen any more was seen by readers, or may have been."""
    bench = Bench(tv, two_phase=TwoPhase.NEVER)
    killed_after_the_decision(bench, OF_WINNERS | {18: how})
    assert bench.begin(0).is_decided
    looked_at = [
        place for command in bench.commands if isinstance(command, c.LookAt) for place in command.places
    ]
    assert [place.offset for place in looked_at] == [10, 9, 18]
    assert isinstance(bench.commands[-1], (c.ListOngoing, c.Describe, c.LookAt))


@BOTH
@pytest.mark.parametrize("on_lost", OnLost)
def test_a_winner_that_was_aborted_on_one_partition_is_lost_and_not_written_again(
    tv: int, on_lost: OnLost
) -> None:
    """Its other rows are visible: to write all again would double them."""
    bench = Bench(tv, two_phase=TwoPhase.NEVER, on_lost=on_lost)
    killed_after_the_decision(bench, OF_WINNERS | {18: Seen.ABORTED})
    for _ in range(2):
        with pytest.raises(
            ParticipantsLost, match=r"partitions \[1\] are lost.* on out-1 \(up to offset 18\)"
        ):
            bench.begin(0)
    assert sorted(bench.broker.visible()) == ["q0p0", "q0p1"]


@BOTH
@pytest.mark.parametrize("on_lost", OnLost)
def test_what_the_log_shows_as_committed_was_not_lost_to_a_time_out(tv: int, on_lost: OnLost) -> None:
    """A power cut has taken the end of the coordinator's log, not that of the rows: it aborts in time-out."""
    bench = Bench(tv, two_phase=TwoPhase.NEVER, on_lost=on_lost)
    killed_after_the_decision(bench, OF_WINNERS)
    last = decode(bench.sink, bench.broker.fetch("sink").chunks)  # type: ignore[union-attr]
    assert last is not None
    for participant in last.participants:
        bench.broker.abort(*participant)
    begun = bench.begin(0)
    assert begun.is_decided and not begun.lost and bench.run(find_lost(last)) == ""


@BOTH
def test_a_winner_that_was_aborted_on_all_partitions_is_written_again(tv: int) -> None:
    """The model's cluster has committed it: what counts is what is written again."""
    bench = Bench(tv, two_phase=TwoPhase.NEVER, on_lost=OnLost.REPLAY)
    killed_after_the_decision(bench, OF_WINNERS | {10: Seen.ABORTED, 18: Seen.ABORTED})
    begun = bench.begin(0)
    assert begun.lost == (1,)
    stopping = Bench(tv, two_phase=TwoPhase.NEVER)
    killed_after_the_decision(stopping, OF_WINNERS | {10: Seen.ABORTED, 18: Seen.ABORTED})
    with pytest.raises(ParticipantsLost, match=r"Start the query again with on.lost.transaction=replay"):
        stopping.begin(0)


def log_of(bench: Bench, state: Any) -> None:
    """What the leaders say from now on, when a recovery asks them."""
    looks = bench.intercept

    def answer(command: c.Command[Any]) -> Any:
        if isinstance(command, c.FindOpen):
            return (
                state if isinstance(state, (c.Refused, c.Unknown)) else {p: state[p] for p in command.places}
            )
        return looks(command) if looks else None

    bench.intercept = answer


@BOTH
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_a_winner_of_which_rows_were_deleted_unread_is_lost_and_not_committed(
    tv: int, keeps: bool, told: bool
) -> None:
    """Of its first rows, where leaders tell them; else of its last ones. The other winner is committed."""
    bench = Bench(tv, keeps=keeps)
    first, second = killed_after_the_decision(bench, OF_WINNERS)
    whole, cut = PartitionState(0, {}), PartitionState(3, {first: OpenThere(1), second: OpenThere(6)})
    state = {("out", 0): cut, ("out", 1): whole} if told else {("out", 0): PartitionState(-1, None)}
    log_of(bench, state | ({} if told else {("out", 1): PartitionState(10, None)}))
    at = "out-0 begins at 3, and rows were at 1" if told else "out-1 begins at 10, and rows were at 9"
    for _ in range(2):
        with pytest.raises(ParticipantsLost, match=rf"1 rows of its partitions \[0\] are lost.*\({at}\)"):
            bench.begin(0)
        assert bench.broker.visible() == ["q0p1"]
        last = decode(bench.sink, bench.broker.fetch("sink").chunks)  # type: ignore[union-attr]
        assert last is not None and at in bench.run(find_lost(last))
    bench.run(give_up(bench.sink, {lost_word(Batch("q", 0))}))
    assert bench.open() == () and bench.begin(0).is_decided and bench.broker.visible() == ["q0p1"]


@BOTH
@pytest.mark.parametrize(
    "state", [PartitionState(5, {}), PartitionState(-1, None)], ids=["there", "not told"]
)
def test_a_winner_whose_rows_are_there_is_committed(tv: int, state: PartitionState) -> None:
    bench = Bench(tv)
    killed_after_the_decision(bench, OF_WINNERS)
    log_of(bench, {("out", 0): state, ("out", 1): state})
    assert bench.begin(0).is_decided and sorted(bench.broker.visible()) == ["q0p0", "q0p1"]


@BOTH
def test_nobody_commits_what_cannot_be_looked_at(tv: int) -> None:
    """But for a topic that is not there: then its rows are gone, which the start says."""
    bench = Bench(tv)
    killed_after_the_decision(bench, OF_WINNERS)
    log_of(bench, c.Unknown("no answer"))
    with pytest.raises(Unfinished, match="cannot be seen whether the log has its rows: no answer"):
        bench.begin(0)
    assert bench.broker.visible() == []
    log_of(bench, c.Refused(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such topic"))
    assert bench.begin(0).is_decided


@BOTH
def test_a_log_that_cannot_be_looked_at_does_not_pass_for_whole(tv: int) -> None:
    bench = Bench(tv, two_phase=TwoPhase.NEVER)
    killed_after_the_decision(bench, OF_WINNERS)
    away = c.Unknown("no answer")
    bench.intercept = lambda command: away if isinstance(command, c.LookAt) else None
    with pytest.raises(Unfinished, match="cannot be seen whether the log has its rows: no answer"):
        bench.begin(0)


@BOTH
@pytest.mark.parametrize("keeps", [True, False])
def test_a_decision_that_did_not_arrive_is_not_the_one_before(tv: int, keeps: bool) -> None:
    """No answer to the commit, and what the group holds is the decision of the last batch."""
    bench = Bench(tv, keeps=keeps)
    bench.whole_batch(0)
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))

    def lose(command: c.Command[Any]) -> Any:
        if not decides(command):
            return None
        bench.intercept = None
        bench.broker.now_ms += TIMEOUT_MS
        bench.broker.expire("sink")
        return {"sink": c.Unknown("no answer")}

    bench.intercept = lose
    with pytest.raises(BatchRefused, match=r"batch 1 of query q was not decided: .* timed out after 900000"):
        bench.commit(reports, 1)
    assert bench.open() == () and bench.broker.visible() == ["q0p0", "q0p1"]
    bench.whole_batch(1)
    assert len(bench.broker.visible()) == 4


@BOTH
def test_a_decision_that_did_not_arrive_before_newer_ones_is_another_drivers_sink(tv: int) -> None:
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))

    def lose(command: c.Command[Any]) -> Any:
        if not decides(command):
            return None
        bench.intercept = None
        for batch_id in range(2):
            bench.whole_batch(batch_id)
        return {"sink": c.Unknown("no answer")}

    bench.intercept = lose
    with pytest.raises(SinkFenced, match="it has decided batch 1 of query q since"):
        bench.commit(reports, 0)
    assert len(bench.broker.visible()) == 4
