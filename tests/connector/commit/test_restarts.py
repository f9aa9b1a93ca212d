"""What a start of the sink has to make of the last decision and of what is left over, one story each."""

from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted
from eoslog.connector.commit.decision import ANCHOR, decode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CommitFault,
    ParticipantsLost,
    SinkFenced,
)
from eoslog.connector.commit.finish import lost_to
from eoslog.connector.commit.leave_sink import fence, leave
from eoslog.connector.commit.prepare import Task, judge
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Left, Start
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, finishes

BOTH = pytest.mark.parametrize("tv", [1, 2])
ROWS = ["q0p0", "q0p1"]


def decided_and_dead(tv: int = 2, query: str = "q") -> Bench:
    """Batch 0 is decided, none of its participants is committed, and the driver is gone."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0, query))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    return bench


LEFT = Left("word", "another", "next", 0, 1795780000)


def left_in(bench: Bench) -> Left | None:
    stored = bench.broker.fetch("sink")
    assert not isinstance(stored, (c.Refused, c.Unknown))
    last = decode(bench.sink, stored.chunks)
    assert last is not None
    return last.left


def test_a_query_that_goes_on_in_a_sink_is_not_stopped_by_one_that_leaves() -> None:
    """And a batch write is no start of a query: a sink that was left stays so."""
    bench, start = Bench(), Start("s", "/here", 1)
    reports = bench.prepare_all(replace(bench.begin(0), start=start))
    bench.commit(reports, 0)
    bench.run(leave(bench.sink, Batch("another", 3), 2, LEFT))
    assert left_in(bench) is None
    bench.run(leave(bench.sink, Batch("q", 1), 0, LEFT))
    assert left_in(bench) == LEFT
    bench.whole_batch(0, query="a write", digest="")
    assert left_in(bench) == LEFT
    bench.commit(bench.prepare_all(replace(bench.begin(1), start=start)), 1)
    assert left_in(bench) is None


@BOTH
def test_what_another_query_has_completed_says_nothing_of_this_decision(tv: int) -> None:
    """Its checkpoint counts its own batches: with a higher number no row of ours is visible by that."""
    bench = decided_and_dead(tv)
    bench.begin(8, "another", completed=7)
    assert bench.broker.visible() == ROWS
    lossy = decided_and_dead(tv)
    lossy.broker.expire(lossy.open()[0])
    with pytest.raises(ParticipantsLost, match="batch 0 of query q is decided"):
        lossy.begin(8, "another", completed=7)


@BOTH
def test_who_takes_a_sink_over_carries_out_what_it_has_decided(tv: int) -> None:
    """And clears what is left over: the other query begins behind these rows, with whatever sink."""
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.prepare(begun, 1, ["a lost attempt"], worker="slow")
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(bench.prepare_all(begun), 0)
    bench.run(fence(bench.sink, LEFT))
    assert bench.broker.visible() == ROWS and bench.open() == ()
    assert left_in(bench) == LEFT
    bench.run(fence(bench.sink))
    untouched = Bench(tv)
    untouched.run(fence(untouched.sink))
    lossy = decided_and_dead(tv)
    lossy.broker.expire(lossy.open()[0])
    with pytest.raises(ParticipantsLost, match="batch 0 of query q is decided"):
        lossy.run(fence(lossy.sink))


@BOTH
def test_a_batch_that_spark_has_completed_is_not_asked_for(tv: int) -> None:
    """Its participants may have been forgotten since."""
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.broker.transactions.clear()
    bench.begin(1, completed=0)


def test_what_comes_late_under_a_decided_name_is_never_aborted() -> None:
    """On transaction.version 1 a request that comes late opens it again under the same epoch. Aborted, it
    would look as if the decided rows had been aborted: reported as lost, or written once more."""
    bench = Bench(tv=1)
    winner = bench.whole_batch(0)[0].participant  # type: ignore[union-attr]
    assert bench.broker.transactions[winner.name].identity == winner.identity
    bench.broker.transactions[winner.name].state = "Ongoing"
    bench.begin(1, completed=0)
    bench.begin(0, "another")
    assert bench.broker.visible() == ROWS


def test_the_last_epoch_of_a_producer_id_is_not_gone_on_with() -> None:
    """While the commit under it is prepared Kafka names one more, under which nothing can be opened."""
    bench = Bench(late_markers=True)
    bench.whole_batch(0)
    run = bench.remembered
    assert run is not None
    highest = ProducerIdentity(run.identity.producer_id, 32_767)

    def prepared(command: c.Command[Any]) -> Any:
        if isinstance(command, c.Describe):
            bench.intercept = None
            return {"sink": c.Description("PrepareCommit", highest, 60_000, 0)}
        return None

    bench.commands.clear()
    bench.intercept = prepared
    begun = bench.begin(1, run=run, completed=0)
    assert c.Acquire("sink", used=True) in bench.commands and begun.identity != highest
    bench.commit(bench.prepare_all(begun), 1)
    bench.broker.settle_all()
    assert len(bench.broker.visible()) == 4


def attempt(bench: Bench, batch_id: int, query: str = "q", digest: str = "digest") -> Begun:
    """A begin of at_most_once."""
    return bench.begin(batch_id, query, digest=digest, at_most_once=True)


@BOTH
def test_at_most_once_drops_the_batch_that_was_tried_and_no_other(tv: int) -> None:
    bench = Bench(tv)
    first, again = attempt(bench, 0), attempt(bench, 0)
    assert not first.dropped and judge(first, "q", 0, 0)[0] is Task.WRITE
    assert again.dropped and judge(again, "q", 0, 0)[0] is Task.DROP
    assert not attempt(bench, 0, digest="of more rows").dropped, "a plan that came in its place was not tried"
    assert not attempt(bench, 1).dropped, "the next batch of the query was not tried"
    assert attempt(bench, 1).dropped
    assert not attempt(bench, 1, "another").dropped, "another query's batch of that number was not tried"


def test_a_batch_that_an_earlier_version_has_tried_is_dropped() -> None:
    """It noted no digest."""
    bench = Bench()
    note = {(ANCHOR, 0): (1, "q")}
    bench.broker.commit_offsets(bench.sink.attempts_group, note)
    assert attempt(bench, 1).dropped and not attempt(bench, 2).dropped


def test_the_last_sixteen_other_queries_of_a_sink_are_known() -> None:
    """One that was decided and not noted by Spark comes back after fifteen others have used the sink."""
    bench = decided_and_dead()
    for number in range(16):
        bench.whole_batch(0, query=f"other {number}")
    again = bench.prepare_all(bench.begin(0))
    assert all(isinstance(report, Decided) for report in again)
    bench.commit(again, 0)
    assert bench.broker.visible()[:2] == ROWS and len(bench.broker.visible()) == 34


@BOTH
def test_a_late_abort_of_an_older_batch_leaves_the_running_one_alone(tv: int) -> None:
    """Two batches on the names come again: what is open under them is not the old batch's."""
    bench = Bench(tv)
    old = bench.whole_batch(0)
    bench.whole_batch(1, run=bench.remembered, completed=0)
    reports = bench.prepare_all(bench.begin(2, run=bench.remembered, completed=1))
    assert bench.abort(old, 0) is Aborted.DECIDED
    assert len(bench.open()) == 2
    bench.commit(reports, 2)
    assert len(bench.broker.visible()) == 6


@BOTH
def test_the_sink_is_not_acquired_where_its_state_cannot_be_read(tv: int) -> None:
    bench = decided_and_dead(tv)
    bench.commands.clear()
    for answer in (c.Refused(1, "not now"), c.Unknown("away")):
        bench.intercept = lambda command, a=answer: a if isinstance(command, c.Describe) else None
        with pytest.raises(CommitFault, match="sink sink cannot be looked up"):
            bench.begin(0)
    assert c.Acquire("sink") not in bench.commands and bench.broker.visible() == []


@BOTH
def test_a_replay_takes_the_sink_from_the_attempt_before(tv: int) -> None:
    """The same process runs the batch once more: what the first attempt has prepared must not be decided."""
    bench = Bench(tv)
    old = bench.prepare_all(bench.begin(0))
    new = bench.prepare_all(bench.begin(0, run=bench.remembered))
    with pytest.raises(SinkFenced):
        bench.commit(old, 0)
    bench.commit(new, 0)
    assert bench.broker.visible() == ROWS


@BOTH
def test_a_start_is_compared_unless_a_run_goes_on_with_its_next_batch(tv: int) -> None:
    """It is where a query comes back to its last batch, and where brokers that were restored from an older
    copy lack the decision that Spark has noted."""
    bench = Bench(tv)
    bench.whole_batch(0)
    assert not bench.begin(1, run=bench.remembered, completed=0).acquired_now
    bench = Bench(tv)
    bench.whole_batch(0)
    assert bench.begin(0, run=bench.remembered).acquired_now
    assert bench.begin(1, run=bench.remembered, completed=0).acquired_now, (
        "under this run nothing was decided"
    )


@BOTH
def test_a_driver_whose_batch_another_one_has_decided_stops_at_its_next(tv: int) -> None:
    """The same batch, with the same offsets; but decided by somebody else, who owns the sink."""
    bench = Bench(tv)
    bench.begin(0)
    old = bench.remembered
    bench.whole_batch(0)
    with pytest.raises(SinkFenced):
        bench.begin(1, run=old, completed=0)


@BOTH
def test_a_living_driver_says_that_brokers_were_put_back(tv: int) -> None:
    """Its sink forgets: no other driver does that. The decision tells, and an epoch that has gone down."""
    bench = Bench(tv)
    bench.whole_batch(0)
    early = bench.broker.copied()
    for batch in (1, 2):
        bench.whole_batch(batch, run=bench.remembered, completed=batch - 1)
    older, remembered = bench.broker.copied(), bench.remembered
    bench.broker.restore(early)
    with pytest.raises(SinkFenced) as said:
        bench.begin(3, run=remembered, completed=2)
    assert "put back to an older copy, or have lost the end of a log (" in str(said.value)
    assert "another driver" not in str(said.value) and "To go on, start the query again" in str(said.value)
    assert "this driver has decided batch 2 of query q, and its last decision is batch 0" in str(said.value)
    bench.broker.restore(older)
    reports = bench.prepare_all(bench.begin(3, run=remembered, completed=2))
    bench.broker.groups["sink"] = early["groups"]["sink"]  # type: ignore[index]
    with pytest.raises(SinkFenced, match="began behind its decision 3, and it knows 1"):
        bench.commit(reports, 3)
    own = reports[0].stamp.identity
    for identity, says in (
        (own._replace(epoch=own.epoch - 1), "were put"),
        (own._replace(epoch=9), "another"),
    ):
        state = c.Description("Empty", identity, 1, 1)
        assert says in str(lost_to(bench.sink, own, state)).split("(")[0].split(", or")[0]


@BOTH
def test_a_replay_that_commits_after_the_next_batch_was_decided_is_no_lost_decision(tv: int) -> None:
    """Its driver stood still, and another one went on: the batch is decided as it was."""
    bench = Bench(tv)
    bench.whole_batch(0)
    replay = bench.prepare_all(bench.begin(0))
    bench.whole_batch(1)
    bench.commit(replay, 0)
    assert bench.broker.visible() == [*ROWS, "q1p0", "q1p1"]


@BOTH
def test_a_running_query_that_rested_until_its_sink_expired_goes_on(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    bench.broker.transactions.clear()
    bench.whole_batch(1, run=bench.remembered, completed=0)
    assert len(bench.broker.visible()) == 4


def test_a_decision_without_a_digest_is_replayed_by_its_number() -> None:
    """As batch writes have it, and drivers that could not read their checkpoint."""
    bench = Bench()
    reports = bench.prepare_all(bench.begin(0, digest=""))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.begin(0, digest="known by now")
    assert bench.broker.visible() == ROWS


def test_an_aborted_participant_is_not_decided_though_its_epoch_is_the_same() -> None:
    """On transaction.version 1 an abort leaves the epoch as it is."""
    bench = Bench(tv=1)
    reports = bench.prepare_all(bench.begin(0))
    aborted = reports[1].participant  # type: ignore[union-attr]
    assert bench.broker.end(aborted.name, aborted.identity, False) == aborted.identity
    with pytest.raises(BatchRefused, match=r"partition 1: .* is CompleteAbort"):
        bench.commit(reports, 0)
    assert bench.broker.visible() == []


@BOTH
def test_a_transaction_that_took_a_participants_name_is_not_decided(tv: int) -> None:
    """What is open under the name is what the task has written if its identity is the one reported."""
    bench = Bench(tv)
    reports = bench.prepare_all(bench.begin(0))
    name = reports[1].participant.name  # type: ignore[union-attr]
    assert bench.broker.produce(name, bench.broker.init(name), 0, ["other"]) is None
    with pytest.raises(BatchRefused, match=r"partition 1: .* is Ongoing"):
        bench.commit(reports, 0)
    assert bench.broker.visible() == []


def test_what_is_sealed_is_ended_by_its_holder_at_once() -> None:
    bench = Bench(keeps=True)
    bench.whole_batch(0)
    assert len([command for command in bench.commands if isinstance(command, c.Seal)]) == 1


@BOTH
def test_a_commit_whose_markers_are_on_their_way_is_no_loss(tv: int) -> None:
    bench = Bench(tv, late_markers=True)
    reports = bench.prepare_all(bench.begin(0))

    def lose_answers(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.End) or not finishes(command):
            return None
        bench._perform(command)
        return {name: c.Unknown("no answer") for name, _ in command.participants}

    bench.intercept = lose_answers
    bench.commit(reports, 0)
    bench.broker.settle_all()
    assert bench.broker.visible() == ROWS


def left_over(tv: int) -> Bench:
    """Prepared and abandoned."""
    bench = Bench(tv)
    bench.prepare_all(bench.begin(0))
    return bench


@BOTH
def test_nothing_is_aborted_by_a_driver_whose_sink_is_gone(tv: int) -> None:
    """Deleted between the list and the look at its owner: whose these are is not known any more."""
    bench = left_over(tv)

    def forget(command: c.Command[Any]) -> None:
        if isinstance(command, c.ListOngoing):
            bench.intercept = None
            del bench.broker.transactions["sink"]

    bench.intercept = forget
    with pytest.raises(SinkFenced, match="it is at no identity"):
        bench.begin(0)
    assert len(bench.open()) == 2


@BOTH
def test_a_left_over_that_times_out_meanwhile_is_none(tv: int) -> None:
    """Its abort is refused; it is not sealed either, which would start the name anew."""
    bench = left_over(tv)

    def expire(command: c.Command[Any]) -> None:
        if isinstance(command, c.End):
            bench.intercept = None
            for name in bench.open():
                bench.broker.expire(name)

    bench.intercept = expire
    bench.begin(0)
    assert bench.open() == () and not any(isinstance(command, c.Seal) for command in bench.commands)


@BOTH
@pytest.mark.parametrize("seen", [True, False])
def test_left_overs_that_stay_are_told(tv: int, seen: bool) -> None:
    """They hold back readers; whether they are open still is seen, or nobody answers."""
    bench = left_over(tv)
    aborting = False

    def refuse(command: c.Command[Any]) -> Any:
        nonlocal aborting
        if isinstance(command, c.End):
            aborting = True
            return {name: c.Unknown("no answer") for name, _ in command.participants}
        return c.Unknown("away") if aborting and not seen else None

    bench.intercept = refuse
    with pytest.raises(CommitFault, match=r"left-over transaction sink/.* cannot be aborted: no answer"):
        bench.begin(0)


@pytest.mark.parametrize("keeps", [False, True])
def test_winners_that_are_open_again_are_committed_before_the_next_decision(keeps: bool) -> None:
    """Brokers that were put back to a copy made between decision and winners: the driver has seen them
    committed. The next decision would make them left-overs, and the begin after it would abort them."""
    bench = Bench(keeps=keeps)
    copies: list[dict[str, object]] = []
    bench.intercept = lambda command: copies.append(bench.broker.copied()) if finishes(command) else None
    bench.whole_batch(0)
    bench.intercept = None
    begun = bench.begin(1, run=bench.remembered, completed=0)
    bench.broker.restore(copies[0])
    reports = bench.prepare_all(begun)
    with pytest.raises(BatchRefused, match=r"batch 0 .* 2 of its transactions are open again \(sink/"):
        bench.commit(reports, 1)
    assert bench.broker.visible() == []
    bench.whole_batch(1, completed=0)
    assert bench.broker.visible() == ["q0p0", "q0p1", "q1p0", "q1p1"] and not bench.open()
