"""Batch writes of foreachBatch without a token, on the model cluster: their tasks alone know the micro-batch.
Each row is there once wherever a driver dies, whoever ends its run, and whoever comes in between."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.abandon import end_run, run_of
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CheckpointOlder,
    CommitFault,
    OtherRowsInBatch,
    ParticipantsLost,
)
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Report
from eoslog.connector.commit.token_write import Within, begin_write, commit_within, note_finished
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import token_within
from tests.connector.commit.model_bench import Bench, Crash

BOTH = pytest.mark.parametrize("tv", [1, 2])
BATCH = Batch("q", 7)
NAMED = pytest.mark.parametrize("named", [False, True], ids=["random names", "transactional.id"])


class WithinBench(Bench):
    """Writes of two tasks in foreachBatch. A row's checksum is its length. `named`: by a transactional.id,
    which begins again under the same name; else each begin has a name of its own, and nothing is sealed."""

    def __init__(self, tv: int, *, named: bool = False) -> None:
        super().__init__(tv, TwoPhase.AUTO if named else TwoPhase.NEVER, keeps=named)
        self.named, self.begins = named, 0

    def begin_write(self) -> Begun:
        self.begins += 1
        name = Sink("named" if self.named else f"random{self.begins}")
        batch = Batch(f"uuid{self.begins}", 0)
        begun, _ = self.run(begin(name, batch, two_phase=self.two_phase))
        return begun

    def tasks(self, begun: Begun, rows: str = "row", batch: Batch = BATCH) -> list[Report]:
        return [self._told(self.prepare(begun, p, [f"{rows}{p}"]), batch, len(rows)) for p in range(2)]

    def _told(self, report: Report, batch: Batch, checksum: int) -> Report:
        assert isinstance(report, Prepared)
        return replace(report, checksum=checksum, stamp=replace(report.stamp, within=batch))

    def commit_write(self, reports: list[Report]) -> Within:
        within = reports[0].stamp.within
        assert within is not None
        begun, _ = self.run(begin_write(self.sink, token_within(within), two_phase=self.two_phase))
        written = self.run(commit_within(begun, reports, "topic out", self.two_phase))
        own = Sink(reports[0].stamp.sink_id)
        assert written.passed or self.broker.ongoing(own.prefix) == ()
        if written.last.batch == begun.batch:
            self.run(note_finished(self.sink, written.last))
        self.end(reports)
        return written

    def write(self, rows: str = "row", batch: Batch = BATCH) -> Within:
        return self.commit_write(self.tasks(self.begin_write(), rows, batch))

    def end(self, reports: list[Report]) -> None:
        """As abort, a guard and the end of commit do: nobody may decide any more, nothing stays open."""
        run = run_of(reports)
        assert run is not None
        self.run(end_run(Sink(reports[0].stamp.sink_id), run))

    def by_hand(self, rules: c.Rules[Any]) -> Iterator[None]:
        """Carries out one command at a time."""
        answer: Any = None
        while True:
            try:
                command = rules.send(answer)
            except StopIteration:
                return
            answer = self._perform(command)
            yield

    def time_passes(self) -> None:
        """The deciding sink's own transaction, if it is open, times out."""
        if self.sink.coordinator in self.broker.mortal(""):
            self.broker.expire(self.sink.coordinator)

    def left(self) -> tuple[str, ...]:
        return self.broker.ongoing("")

    def at(self, number: int, then: Callable[[], object], *, after: bool = False) -> None:
        """Do `then` before or after the command of this number, counted from now."""
        count = 0

        def intercept(command: c.Command[Any]) -> Any:
            nonlocal count
            count += 1
            if count <= number:
                return None
            self.intercept = None
            answer = self._perform(command) if after else None
            then()
            return answer

        self.intercept = intercept


def crash() -> None:
    raise Crash


def steps(tv: int, named: bool) -> int:
    """How many commands a commit takes."""
    bench = WithinBench(tv, named=named)
    reports = bench.tasks(bench.begin_write())
    bench.commands.clear()
    bench.commit_write(reports)
    return len(bench.commands)


@BOTH
@NAMED
def test_a_function_that_is_called_again_writes_once(tv: int, named: bool) -> None:
    bench = WithinBench(tv, named=named)
    assert not bench.write().passed
    assert bench.write().passed and bench.write().passed
    assert not bench.write(batch=Batch("q", 8)).passed
    assert bench.write(batch=Batch("q", 7)).passed, "a driver that is late by a batch"
    assert not bench.write(batch=Batch("q", 9)).passed
    assert bench.broker.visible() == ["row0", "row1"] * 3 and bench.left() == ()


@BOTH
def test_other_rows_in_the_same_batch_are_said(tv: int) -> None:
    bench = WithinBench(tv)
    bench.write()
    with pytest.raises(OtherRowsInBatch) as said:
        bench.write("other")
    assert str(said.value).startswith(
        "batch 7 of query q: a df.write of foreachBatch without write.token has written 2 rows (checksum "
        "00000006) to topic out before, and was given 2 rows (checksum 0000000a) now"
    )
    assert '.option("write.token", f"NAME-{batch_id}")' in str(said.value)
    assert bench.broker.visible() == ["row0", "row1"]


@BOTH
@NAMED
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("guarded", [False, True])
def test_a_driver_dies_at_each_step(tv: int, named: bool, after: bool, guarded: bool) -> None:
    """The next one writes what is missing; a guard may have ended the dead one's run before."""
    for number in range(steps(tv, named)):
        bench = WithinBench(tv, named=named)
        bench.write("old", Batch("q", 6))
        reports = bench.tasks(bench.begin_write())
        bench.at(number, crash, after=after)
        with pytest.raises(Crash):
            bench.commit_write(reports)
        if guarded:
            bench.end(reports)
        written = None
        for _ in range(3):  # own transactions of the dead one's sink block a look at its decision
            try:
                written = bench.write()
                break
            except CommitFault as fault:
                assert not isinstance(fault, ParticipantsLost), (number, fault)
                bench.time_passes()
        assert written is not None, number
        bench.end(reports)
        assert sorted(bench.broker.visible()) == ["old0", "old1", "row0", "row1"], number
        assert bench.left() == (), number


@BOTH
@NAMED
def test_a_guard_ends_the_run_in_the_middle_of_its_commit(tv: int, named: bool) -> None:
    """Either the batch is decided and whole, or it is refused: never decided in part."""
    outcomes = set()
    for number in range(steps(tv, named)):
        bench = WithinBench(tv, named=named)
        reports = bench.tasks(bench.begin_write())
        bench.at(number, lambda bench=bench, reports=reports: bench.end(reports))  # type: ignore[misc]
        try:
            bench.commit_write(reports)
            outcomes.add("decided")
        except ParticipantsLost:
            raise
        except CommitFault:
            outcomes.add("refused")
            assert bench.broker.visible() == [], number
            bench.write()
        bench.end(reports)
        assert bench.broker.visible() == ["row0", "row1"] and bench.left() == (), number
    assert outcomes == {"decided", "refused"}


@BOTH
@NAMED
def test_another_driver_runs_the_batch_while_the_first_is_suspended(tv: int, named: bool) -> None:
    """At each step of the first one's commit, which goes on afterwards."""
    for number in range(steps(tv, named)):
        bench = WithinBench(tv, named=named)
        reports = bench.tasks(bench.begin_write())
        second: list[object] = []

        def other(bench: WithinBench = bench, second: list[object] = second) -> None:
            try:
                second.append(bench.write())
            except CommitFault as fault:
                second.append(fault)

        bench.at(number, other)
        try:
            bench.commit_write(reports)
        except CommitFault as fault:
            assert not isinstance(fault, ParticipantsLost), number
        assert len(second) == 1
        if bench.broker.visible() == []:
            bench.time_passes()
            bench.write()
        bench.end(reports)
        assert bench.broker.visible() == ["row0", "row1"] and bench.left() == (), number


@BOTH
@NAMED
@pytest.mark.parametrize("guard_step", range(6))
def test_a_guard_aborts_at_the_last_moment_what_it_has_listed_before(
    tv: int, named: bool, guard_step: int
) -> None:
    """It begins at one step of the commit, and does the rest right before the decision."""
    for number in range(steps(tv, named)):
        bench = WithinBench(tv, named=named)
        reports = bench.tasks(bench.begin_write())
        run = run_of(reports)
        assert run is not None
        guard = bench.by_hand(end_run(Sink(reports[0].stamp.sink_id), run))
        bench.at(number, partial(list, islice(guard, guard_step)))

        def told(command: c.Command[Any], _: Any, bench: WithinBench = bench, guard: Any = guard) -> None:
            if isinstance(command, c.Describe) and len(command.names) > 3:
                bench.told = None
                list(guard)

        bench.told = told
        try:
            bench.commit_write(reports)
        except ParticipantsLost:
            raise
        except CommitFault:
            bench.time_passes()
            assert bench.broker.visible() == [], number
            bench.write()
        bench.end(reports)
        assert bench.broker.visible() == ["row0", "row1"] and bench.left() == (), number


def test_what_the_namer_has_decided_before_and_is_open_again_stops_the_next_decision() -> None:
    """Its next begin would know the newest decision only, and abort the winners of this one as left over."""
    bench = WithinBench(2, named=True)
    bench.write()
    last = decode(Sink("named"), bench.broker.fetch("named").chunks)  # type: ignore[union-attr]
    assert last is not None
    winner = last.participants[0]
    bench.sink = Sink("of another topic")
    reports = bench.tasks(bench.begin_write())

    def intercept(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.Describe) or winner.name not in command.names:
            return None
        states = dict(bench.broker.describe(command.names))
        return states | {winner.name: c.Description("Ongoing", winner.identity, 1000, 1)}

    bench.intercept = intercept
    with pytest.raises(BatchRefused, match="transactions are open again"):
        bench.commit_write(reports)


@BOTH
def test_a_batch_whose_query_has_written_later_ones_is_of_a_checkpoint_that_was_set_back(tv: int) -> None:
    """The function writes only what a batch has for the topic: batch 8 had nothing for it then."""
    bench = WithinBench(tv)
    for number in (7, 9):
        bench.write(f"rows{number}-", Batch("q", number))
    with pytest.raises(CheckpointOlder, match="has written batch 9 of this query to topic out before"):
        bench.write("rows9-", Batch("q", 8))
    assert bench.write("rows9-", Batch("q", 9)).passed
    assert not bench.write("rows10-", Batch("q", 10)).passed
