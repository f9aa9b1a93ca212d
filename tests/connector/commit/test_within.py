"""Batch writes of foreachBatch without a token, on the model cluster: their tasks alone know the micro-batch.
Each row is there once wherever a driver dies, whoever ends its run, and whoever comes in between."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import token_write
from eoslog.connector.commit.abandon import end_run, run_of
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.decision import decode
from eoslog.connector.commit.faults import (
    BatchRefused,
    CheckpointOlder,
    CommitFault,
    OtherRowsInBatch,
    ParticipantsLost,
    RowsGone,
    SinkChanged,
)
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Report
from eoslog.connector.commit.token_write import Within, begin_within, commit_within, note_finished
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import KEPT_TOKENS, BatchWrite, BatchWrites, Content, sink_of_query
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
        self.sink = sink_of_query("q")
        self.accepted = ""
        self.claimed: list[str] | None = None
        self.begun: list[list[Report]] = []

    def accept(self, word: str) -> str | None:
        return None if word in self.accepted.split(",") else f"start.accepted={word}"

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

    def commit_write(self, reports: list[Report], place: str = "out") -> Within:
        within = reports[0].stamp.within
        assert within is not None
        self.begun.append(reports)
        begun = self.run(begin_within(within.query_id, self.two_phase))
        more: Any = {"claimed": self.claimed, "accept": self.accept}
        written = self.run(commit_within(begun, reports, place, self.two_phase, **more))
        own = Sink(reports[0].stamp.sink_id)
        assert written.passed or self.broker.ongoing(own.prefix) == ()
        self.run(note_finished(self.sink, written.last))
        if self.claimed is not None:
            self.claimed.append(place)
        self.end(reports)
        return written

    def run_again(self) -> None:
        """The query is started again: its run has written nothing yet."""
        self.claimed = []

    def write_token(self, token: str, rows: str = "row", batch: Batch = BATCH) -> None:
        """Another write of the function, with a token; it is carried out by a sink of its own."""
        sink, accept = Sink(f"tokens of {token[0]}"), self.accept
        begun, _ = self.run(token_write.begin_write(sink, token, two_phase=self.two_phase, accept=accept))
        reports = self.tasks(begun, rows, batch)
        try:
            self.run(token_write.check_without_token(reports, token, self.claimed, accept))
            self.run(
                commit(sink, reports, begun.batch.batch_id, two_phase=self.two_phase, terms=Terms(token))
            )
        finally:
            self.end(reports)

    def write(self, rows: str = "row", batch: Batch = BATCH, place: str = "out") -> Within:
        return self.commit_write(self.tasks(self.begin_write(), rows, batch), place)

    def end(self, reports: list[Report]) -> None:
        """As abort, a guard and the end of commit do: nobody may decide any more, nothing stays open."""
        run = run_of(reports)
        assert run is not None
        self.run(end_run(Sink(reports[0].stamp.sink_id), run))

    def end_all(self) -> None:
        """As the abort of each write that was refused: what its tasks have opened does not stay."""
        for reports in self.begun:
            self.end(reports)
        self.begun.clear()

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
    bench.sink = sink_of_query("another query")
    reports = bench.tasks(bench.begin_write(), batch=Batch("another query", 0))

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
    with pytest.raises(CheckpointOlder, match="has written batch 9 of this query before"):
        bench.write("rows9-", Batch("q", 8))
    assert bench.write("rows9-", Batch("q", 9)).passed
    assert not bench.write("rows10-", Batch("q", 10)).passed


# -- one sink for all writes of a query: their options may change between two attempts -----------------------


@BOTH
def test_a_changed_transactional_id_writes_nothing_again(tv: int) -> None:
    bench = WithinBench(tv)
    assert not bench.write().passed
    bench.named, bench.two_phase = True, TwoPhase.AUTO
    assert bench.write().passed and bench.broker.visible() == ["row0", "row1"]


@BOTH
def test_another_topic_in_the_middle_of_a_batch_is_said_and_each_way_out_ends(tv: int) -> None:
    for to_both in (False, True):
        bench = WithinBench(tv)
        bench.run_again()
        bench.write(place="old")
        bench.run_again()
        with pytest.raises(SinkChanged) as said:
            bench.write(place="new")
        then, now = "2 rows (checksum 00000006) to topic old before", "to write them to topic new now"
        assert f"has written {then}, and is {now}. Nothing was written." in str(said.value)
        bench.end_all()
        if to_both:
            assert str(said.value).endswith(
                "Are the rows to be in both? Set start.accepted=sink-changed:old:7"
            )
            bench.accepted = "sink-changed:old:7"
            assert not bench.write(place="new").passed
            assert bench.broker.visible() == ["row0", "row1"] * 2
        else:
            assert "Give the old one back until this batch is done." in str(said.value)
            assert bench.write(place="old").passed
            assert not bench.write(batch=Batch("q", 8), place="new").passed
            assert bench.broker.visible() == ["row0", "row1"] * 2
        assert bench.left() == ()


@BOTH
def test_a_function_with_several_topics_goes_on_wherever_it_was_stopped(tv: int) -> None:
    bench = WithinBench(tv)
    for done in range(4):
        bench.run_again()
        for place in ("a", "b", "c")[:done]:
            bench.write(place=place)
    assert bench.broker.visible() == ["row0", "row1"] * 3
    bench.run_again()
    bench.write("next", Batch("q", 8), "a")
    bench.run_again()
    assert not bench.write("next", Batch("q", 8), "c").passed, "threads have no order, and c is known"


@BOTH
@pytest.mark.parametrize(("then", "now"), [("", "out"), ("out", "")])
def test_rows_that_name_their_topic_and_an_option_that_does_are_told_apart(
    tv: int, then: str, now: str
) -> None:
    """The rows may differ: their column of topics does."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    bench.write("long row", place=then)
    bench.run_again()
    with pytest.raises(SinkChanged, match="the topics that its rows name"):
        bench.write(place=now)
    bench.end_all()
    assert bench.write("long row", place=then).passed and not bench.write(place=now).passed


@BOTH
def test_the_token_for_a_second_write_is_not_for_the_first(tv: int) -> None:
    """After OtherRowsInBatch: who gives one to both would have written the first rows twice."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    bench.write("first")
    with pytest.raises(OtherRowsInBatch, match="Leave the first one as it is"):
        bench.write("the second")
    bench.end_all()
    bench.run_again()
    with pytest.raises(SinkChanged) as said:
        bench.write_token("a-7", "first")
    assert "write.token=a-7 was given the same rows now" in str(said.value)
    assert "Leave that write without a token until this batch is done." in str(said.value)
    assert bench.write("first").passed
    bench.write_token("b-7", "the second")
    assert bench.broker.visible() == ["first0", "first1", "the second0", "the second1"]
    bench.run_again()
    bench.write_token("a-8", "first", Batch("q", 8))
    bench.write("first", Batch("q", 9))
    bench.write_token("c-9", "first", Batch("q", 9))
    assert bench.broker.visible().count("first0") == 4, "the same run has written both: they are meant"
    bench.run_again()
    bench.accepted = "sink-changed:out:9"
    bench.write_token("d-9", "first", Batch("q", 9))
    assert bench.broker.visible().count("first0") == 5 and bench.left() == ()


@BOTH
@pytest.mark.parametrize("again", [False, True])
def test_a_write_whose_topic_was_made_anew_is_no_done_write(tv: int, again: bool) -> None:
    bench = WithinBench(tv)
    bench.ids = {"out": "old"}
    bench.write()
    bench.ids = {"out": "new"}
    with pytest.raises(RowsGone) as said:
        bench.write()
    bench.end_all()
    assert "batch 7 of query q: a df.write of foreachBatch without write.token has written 2 rows" in str(
        said.value
    )
    assert "topic out was deleted and created again (its id was old and is new)" in str(said.value)
    bench.accepted = "write-again:old" if again else "rows-gone:old"
    assert f"set start.accepted={bench.accepted}" in str(said.value)
    assert bench.write().passed is not again
    assert bench.broker.visible() == ["row0", "row1"] * (1 + again)
    assert bench.write().passed and bench.left() == ()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 99)), max_size=300))
def test_the_last_two_batches_are_remembered_whole(writes: list[tuple[int, int]]) -> None:
    """However many topics they have written to; of others, some."""
    made, order = BatchWrites(), list[int]()
    for batch, number in sorted(writes, key=lambda one: one[0]):
        made = made.after(BatchWrite(batch, f"topic-{number}", Content(number, 1)))
        order = list(dict.fromkeys([*order, batch]))
    last = {(batch, f"topic-{number}") for batch, number in writes if batch in order[-2:]}
    kept = {one[:2] for one in made.kept}
    assert last <= kept and len(kept - last) <= KEPT_TOKENS
    assert made.newest == max((batch for batch, _ in writes), default=-1)
    stored = json.loads(json.dumps(made.kept))
    assert BatchWrites.read(stored) == made


# -- the code changes between foreachBatch and a stream of its own --------------------------------


@BOTH
def test_a_stream_does_not_write_what_foreach_batch_has_written(tv: int) -> None:
    bench = WithinBench(tv)
    bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))
    bench.write()
    for number in (6, 7):  # the checkpoint may have been set back, too
        with pytest.raises(SinkChanged, match=r"2 rows.* in batch 7, .*sink-changed:foreachBatch:7"):
            bench.run(token_write.check_not_in_foreach(Batch("q", number), bench.accept))
    bench.run(token_write.check_not_in_foreach(Batch("q", 8), bench.accept))
    bench.run(token_write.check_not_in_foreach(Batch("another", 7), bench.accept))
    bench.accepted = "sink-changed:foreachBatch:7"
    bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))


@BOTH
def test_foreach_batch_does_not_write_what_a_stream_has_decided(tv: int) -> None:
    bench, sink = WithinBench(tv), Sink("stream")
    bench.run(token_write.check_not_in_stream(sink, BATCH, bench.accept))
    begun, _ = bench.run(begin(sink, BATCH, two_phase=bench.two_phase))
    bench.run(commit(sink, [bench.prepare(begun, p, [f"row{p}"]) for p in range(2)], 7))
    for number in (6, 7):
        with pytest.raises(SinkChanged, match=r"has decided batch 7 of .*sink-changed:stream:7"):
            bench.run(token_write.check_not_in_stream(sink, Batch("q", number), bench.accept))
    bench.run(token_write.check_not_in_stream(sink, Batch("q", 8), bench.accept))
    bench.run(token_write.check_not_in_stream(sink, Batch("another", 7), bench.accept))
    bench.accepted = "sink-changed:stream:7"
    bench.run(token_write.check_not_in_stream(sink, BATCH, bench.accept))
