"""Rows that the broker aborted after their decision are written again, one story each: what is replayed, what
is not, and who says so."""

import re
from dataclasses import replace
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import Aborted
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import Decision, decode, encode
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CommitFault,
    ParticipantsLost,
    ReplayDiffers,
    SinkFenced,
    Unfinished,
)
from eoslog.connector.commit.leave_sink import fence
from eoslog.connector.commit.move_decision import give_up
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes

BOTH = pytest.mark.parametrize("tv", [1, 2])
ROWS = [["q0p0"], ["q0p1a", "q0p1b"], [], ["q0p3"]]
ALL = ["q0p0", "q0p1a", "q0p1b", "q0p3"]


class ReplayBench(Bench):
    """A batch of four tasks, one of them without rows; replays what is lost."""

    def __init__(self, tv: int = 2, **more: Any) -> None:
        super().__init__(tv, **{"on_lost": OnLost.REPLAY, **more})

    def tasks(self, begun: Begun, rows: list[list[str]] = ROWS) -> list[Report]:
        return [self.prepare(begun, partition, mine) for partition, mine in enumerate(rows)]

    def lose(self, *partitions: int) -> list[Report]:
        """The batch is decided, the driver dies, and some of its participants time out."""
        reports = self.tasks(self.begin(0))
        self.crash_at(finishes)
        with pytest.raises(Crash):
            self.commit(reports, 0)
        self.expire(reports, *partitions)
        return reports

    def expire(self, reports: list[Report], *partitions: int) -> None:
        for partition in partitions:
            self.broker.expire(name_of(reports[partition]))

    def decision(self) -> Decision:
        found = decode(self.sink, self.broker.fetch("sink").chunks)  # type: ignore[union-attr]
        assert found is not None
        return found

    def visible(self) -> list[str]:
        return sorted(self.broker.visible())


def name_of(report: Report) -> str:
    assert isinstance(report, Prepared)
    return report.participant.name


@BOTH
def test_only_the_lost_partitions_are_written_again(tv: int) -> None:
    bench = ReplayBench(tv)
    bench.lose(1)
    begun = bench.begin(0)
    assert begun.lost == (1,) and bench.visible() == ["q0p0", "q0p3"], "what can be saved is saved"
    reports = bench.tasks(begun)
    assert [type(report) is Decided for report in reports] == [True, False, True, True]
    bench.commit(reports, 0)
    assert bench.visible() == ALL and bench.open() == ()
    assert bench.decision().sequence == 2 and len(bench.decision().winners) == 1
    assert bench.decision().rows == (1, 2, 0, 1)
    bench.commit(reports, 0)  # Spark may call it twice
    again = bench.tasks(bench.begin(0))
    assert all(isinstance(report, Decided) for report in again)
    bench.commit(again, 0)
    bench.whole_batch(1, run=bench.remembered, completed=0)
    assert bench.visible() == [*ALL, "q1p0", "q1p1"] and bench.open() == ()


@BOTH
def test_a_restored_checkpoint_comes_to_the_batch_that_is_lost(tv: int) -> None:
    """Spark runs batches before it again, for their state; the lost rows are written when it comes to it."""
    bench = ReplayBench(tv)
    for number in (0, 1):
        bench.commit(bench.tasks(bench.begin(number), [[f"q{number}"]]), number)
    reports = bench.tasks(bench.begin(2))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 2)
    bench.expire(reports, 1)
    leads_to, run = Batch("q", 2, "digest 2"), None
    for number in (0, 1):
        begun = bench.begin(number, run=run, completed=number - 1, leads_to=leads_to)
        assert begun.passes and not begun.lost
        bench.commit(bench.tasks(begun, [[f"q{number}"]]), number)
        run = bench.remembered
    assert bench.visible() == ["q0", "q0p0", "q0p3", "q1"]
    begun = bench.begin(2, run=run, completed=1, leads_to=leads_to)
    assert begun.lost == (1,)
    bench.commit(bench.tasks(begun), 2)
    assert bench.visible() == ["q0", *ALL, "q1"] and bench.open() == ()


@BOTH
def test_a_restored_checkpoint_stops_at_once_where_nothing_is_written_again(tv: int) -> None:
    bench = ReplayBench(tv, on_lost=OnLost.STOP)
    bench.commit(bench.tasks(bench.begin(0)), 0)
    reports = bench.tasks(bench.begin(1))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 1)
    bench.expire(reports, 1)
    with pytest.raises(ParticipantsLost, match=r"on.lost.transaction=replay"):
        bench.begin(0, leads_to=Batch("q", 1, "digest 1"))


@BOTH
def test_all_partitions_may_be_lost(tv: int) -> None:
    bench = ReplayBench(tv)
    bench.lose(0, 1, 3)
    bench.commit(bench.tasks(bench.begin(0)), 0)
    assert bench.visible() == ALL


@BOTH
def test_what_is_replayed_may_be_lost_again(tv: int) -> None:
    """Each time only what is still missing is written; nothing that is visible already."""
    bench = ReplayBench(tv)
    bench.lose(0, 1, 3)
    reports = bench.tasks(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.expire(reports, 0, 1)
    begun = bench.begin(0)
    assert begun.lost == (0, 1) and bench.visible() == ["q0p3"]
    bench.commit(bench.tasks(begun), 0)
    assert bench.visible() == ALL and bench.decision().sequence == 3


@BOTH
def test_a_replay_that_dies_before_its_decision_is_begun_again(tv: int) -> None:
    bench = ReplayBench(tv)
    bench.lose(1)
    reports = bench.tasks(bench.begin(0))
    bench.crash_at(decides)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    begun = bench.begin(0)
    assert begun.lost == (1,) and bench.open() == ()
    bench.commit(bench.tasks(begun), 0)
    assert bench.visible() == ALL


@BOTH
def test_a_replay_that_fails_is_aborted_and_the_batch_is_not(tv: int) -> None:
    """abort() comes after the commit that raised, and the batch as such is decided."""
    bench = ReplayBench(tv)
    bench.lose(1)
    reports = bench.tasks(bench.begin(0))
    bench.intercept = lambda command: c.Refused(1, "no room") if isinstance(command, c.StageOffsets) else None
    with pytest.raises(CommitFault, match="no room"):
        bench.commit(reports, 0)
    bench.intercept = None
    assert bench.abort(reports, 0) is Aborted.CLEARED
    assert bench.open() == () and bench.visible() == ["q0p0", "q0p3"]
    bench.commit(bench.tasks(bench.begin(0)), 0)
    assert bench.abort(reports, 0) is Aborted.CLEARED, "of the older run: nothing of it is open"
    assert bench.visible() == ALL


@BOTH
def test_a_replaced_driver_cannot_decide_its_replay(tv: int) -> None:
    bench = ReplayBench(tv)
    bench.lose(1)
    old = bench.tasks(bench.begin(0))
    new = bench.tasks(bench.begin(0))
    with pytest.raises(SinkFenced):
        bench.commit(old, 0)
    bench.commit(new, 0)
    with pytest.raises(SinkFenced):
        bench.commit(old, 0)
    assert bench.visible() == ALL


@BOTH
def test_the_default_is_to_stop_and_the_way_out_is_told(tv: int) -> None:
    bench = ReplayBench(tv, on_lost=OnLost.STOP)
    bench.lose(1, 3)
    for _ in range(2):
        with pytest.raises(ParticipantsLost) as loss:
            bench.begin(0)
        said = str(loss.value)
        assert "batch 0 of query q" in said and "3 rows of its partitions [1, 3] are lost" in said
        assert "2 rows of partition 1: sink/" in said and "on.lost.transaction=replay" in said
    bench.on_lost = OnLost.REPLAY
    bench.commit(bench.tasks(bench.begin(0)), 0)
    assert bench.visible() == ALL


@BOTH
def test_the_word_that_the_error_names_gives_the_rows_up_for_all(tv: int) -> None:
    bench = ReplayBench(tv, on_lost=OnLost.STOP)
    bench.lose(1, 3)
    with pytest.raises(ParticipantsLost) as loss:
        bench.begin(0)
    (word,) = re.findall(r"start\.accepted=(\S+):", str(loss.value))
    for other in ((), ("rows-lost:q:7",), ("decisions-gone:0",)):
        bench.run(give_up(bench.sink, other))
        with pytest.raises(ParticipantsLost):
            bench.run(fence(bench.sink))
    before = bench.decision()
    bench.run(give_up(bench.sink, (word,)))
    assert bench.decision().winners == () and bench.decision().rows == before.rows
    bench.run(give_up(bench.sink, (word,)))
    assert bench.decision().sequence == before.sequence + 1, "once is enough"
    bench.run(fence(bench.sink))
    again = bench.tasks(bench.begin(0))
    assert all(isinstance(report, Decided) for report in again)
    bench.commit(again, 0)
    assert bench.visible() == ["q0p0"] and bench.open() == ()


@BOTH
def test_a_loss_that_the_commit_finds_is_replayed_by_the_next_run(tv: int) -> None:
    bench = ReplayBench(tv)
    reports = bench.tasks(bench.begin(0))

    def late(command: c.Command[Any]) -> None:
        if finishes(command):
            bench.intercept = None
            bench.expire(reports, 1)

    bench.intercept = late
    with pytest.raises(ParticipantsLost):
        bench.commit(reports, 0)
    assert bench.abort(reports, 0) is Aborted.DECIDED
    bench.commit(bench.tasks(bench.begin(0)), 0)
    assert bench.visible() == ALL


@BOTH
def test_trap_29_nothing_is_replayed_while_something_may_still_become_visible(tv: int) -> None:
    """One is lost, another could not be reached: first what is open is finished."""
    bench = ReplayBench(tv)
    reports = bench.lose(1)
    away = name_of(reports[3])

    def unreachable(command: c.Command[Any]) -> Any:
        if not finishes(command):
            return None
        rest = [p for p in command.participants if p.name != away]
        done = bench._perform(replace(command, participants=tuple(rest)))
        return done | {away: c.Unknown("away")}

    bench.intercept = unreachable
    with pytest.raises(Unfinished, match=r"nothing is written again"):
        bench.begin(0)
    bench.intercept = None
    begun = bench.begin(0)
    assert begun.lost == (1,)
    bench.commit(bench.tasks(begun), 0)
    assert bench.visible() == ALL


@BOTH
def test_markers_of_lost_ones_are_not_taken_for_commits_that_are_missing(tv: int) -> None:
    """A broker that has lost the markers of aborted transactions, too, must not be given commits for them."""
    bench = ReplayBench(tv)
    reports = bench.lose(1)
    asked: list[set[str]] = []

    def held(command: c.Command[Any]) -> Any:
        if isinstance(command, c.FindHeld):
            asked.append({participant.name for participant in command.participants})
            return ()
        return None

    bench.intercept = held
    bench.begin(0)
    assert asked == [{name_of(reports[0]), name_of(reports[3])}]


def forget(bench: ReplayBench, name: str) -> None:
    """As an id that was not used for a week."""
    del bench.broker.transactions[name]


def start_anew(bench: ReplayBench, name: str) -> None:
    """As by Kafka's kafka-transactions.sh forceTerminateTransaction."""
    bench.broker.init(name)


def abort_after_all(bench: ReplayBench, name: str) -> None:
    """Under the current identity: on transaction.version 2 that is taken, also after a commit."""
    txn = bench.broker.transactions[name]
    bench.broker.end(name, txn.identity, False)


@pytest.mark.parametrize("vague", [forget, start_anew, abort_after_all])
def test_trap_28_what_is_merely_unknown_is_never_replayed(vague: Any) -> None:
    """All is committed, and what is left of one transaction does not prove it any more."""
    bench = ReplayBench()
    reports = bench.tasks(bench.begin(0))
    bench.commit(reports, 0)
    vague(bench, name_of(reports[1]))
    with pytest.raises(ParticipantsLost, match="replay cannot help: it is not proven") as loss:
        bench.begin(0)
    assert "Start the query again with" not in str(loss.value)
    assert bench.visible() == ALL


def test_trap_28_one_that_is_unknown_beside_one_that_is_lost_stops_all() -> None:
    bench = ReplayBench()
    reports = bench.lose(1)
    with pytest.raises(ParticipantsLost):
        ReplayBench.begin(_stopping(bench), 0)
    forget(bench, name_of(reports[3]))
    with pytest.raises(ParticipantsLost, match="it is not proven"):
        bench.begin(0)


def _stopping(bench: ReplayBench) -> ReplayBench:
    other = ReplayBench(on_lost=OnLost.STOP)
    other.broker = bench.broker
    return other


@pytest.mark.parametrize(
    ("again", "told"),
    [
        ([["q0p0"], ["q0p1a"], [], ["q0p3"]], "partition 1 has 1 rows instead of 2"),
        ([["q0p0"], [], [], ["q0p3"]], "partition 1 has 0 rows instead of 2"),
        ([["q0p0", "q0p1a"], ["q0p1b", "q0p3"], [], []], "partition 0 has 2 rows instead of 1"),
        ([["q0p0"], ["q0p1a", "q0p1b"], ["more"], ["q0p3"]], "partition 2 has 1 rows instead of 0"),
        ([["q0p0"], ["q0p1a", "q0p1b"], []], "3 tasks instead of 4"),
        ([*ROWS, []], "5 tasks instead of 4"),
    ],
)
def test_a_batch_that_replays_otherwise_is_refused(again: list[list[str]], told: str) -> None:
    bench = ReplayBench()
    bench.lose(1)
    for _ in range(2):
        reports = bench.tasks(bench.begin(0), again)
        with pytest.raises(ReplayDiffers, match=rf"batch 0 of query q .*partitions \[1\].*{told}"):
            bench.commit(reports, 0)
        assert bench.abort(reports, 0) is Aborted.CLEARED
    assert bench.visible() == ["q0p0", "q0p3"] and bench.open() == ()
    bench.commit(bench.tasks(bench.begin(0)), 0)
    assert bench.visible() == ALL


def summed(reports: list[Report], *sums: int) -> list[Report]:
    return [
        replace(report, checksum=sums[at]) if isinstance(report, (Prepared, Decided)) else report
        for at, report in enumerate(reports)
    ]


def test_a_batch_that_was_decided_without_checksums_is_compared_by_its_rows() -> None:
    """The option was set after the loss."""
    bench = ReplayBench()
    bench.lose(1)
    bench.commit(summed(bench.tasks(bench.begin(0)), 7, 8, 0, 9), 0)
    assert bench.visible() == ALL


def test_trap_30_equal_numbers_of_other_rows_are_told_by_their_checksums() -> None:
    """Rows that were dealt out in turns come out in equal numbers, whichever they are."""
    bench = ReplayBench()
    reports = summed(bench.tasks(bench.begin(0)), 7, 8, 0, 9)
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    bench.expire(reports, 1)
    again = bench.tasks(bench.begin(0))
    with pytest.raises(ReplayDiffers, match="partition 0 has other rows; partition 1 has other rows"):
        bench.commit(summed(again, 8, 7, 0, 9), 0)
    bench.commit(summed(again, 7, 8, 0, 9), 0)
    assert bench.visible() == ALL and bench.decision().checksums == (7, 8, 0, 9)


def test_a_decision_without_rows_is_not_replayed() -> None:
    """As it was written before rows were recorded."""
    bench = ReplayBench()
    bench.lose(1)
    old = encode(bench.decision()._replace(rows=()), bench.sink, 4)
    bench.broker.commit_offsets("sink", {("__consumer_offsets", at): chunk for at, chunk in old.items()})
    with pytest.raises(ParticipantsLost, match=r"does not say how many rows"):
        bench.begin(0)


def test_a_query_that_is_past_its_batch_or_is_another_one_stops() -> None:
    bench = ReplayBench()
    bench.lose(1)
    for batch_id, query in ((1, "q"), (0, "r")):
        with pytest.raises(ParticipantsLost, match=rf"at batch {batch_id} of query {query}, and Spark does"):
            bench.begin(batch_id, query)
    with pytest.raises(CheckpointMismatch, match="other source offsets"):
        bench.begin(0, digest="other")
    assert bench.visible() == ["q0p0", "q0p3"]


@BOTH
def test_source_offsets_are_those_of_the_batch_all_along(tv: int) -> None:
    bench = ReplayBench(tv)
    source = SourceOffsets("dashboards", {("in", 0): (5, "")})
    reports = bench.tasks(bench.begin(0))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0, source)
    bench.expire(reports, 1)
    bench.commit(bench.tasks(bench.begin(0)), 0, source)
    assert bench.broker.groups["dashboards"] == {("in", 0): (5, "")}


def test_reports_of_a_replay_that_do_not_belong_together_decide_nothing() -> None:
    bench = ReplayBench()
    bench.lose(1)
    reports = bench.tasks(bench.begin(0))
    lost, kept = reports[1], reports[0]
    assert isinstance(lost, Prepared)
    other = [replace(lost, partition=at, rows=1) for at in (0, 3)]
    everything = [other[0], lost, Empty(lost.stamp, 2), other[1]]
    for wrong in ([kept, Decided(kept.stamp, 1, 2), *reports[2:]], everything, [None, *reports[1:]]):
        with pytest.raises(CommitFault):
            bench.commit(wrong, 0)  # type: ignore[arg-type]
    assert bench.decision().sequence == 1
