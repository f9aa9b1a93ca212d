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
    DecisionGone,
    OtherRowsInBatch,
    ParticipantsLost,
    RowsGone,
    SinkChanged,
    StartsElsewhere,
    TokenReused,
)
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report, Start
from eoslog.connector.commit.token_write import Within, begin_within, commit_within, note_finished
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import (
    KEPT_TOKENS,
    WRITER,
    BatchWrite,
    BatchWrites,
    Content,
    Token,
    sink_of_query,
)
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
        self.newest = self.since = -1
        self.last_rows: tuple[tuple[int, int], ...] = ()
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
        assert isinstance(report, (Prepared, Decided))
        told = replace(report, checksum=checksum, stamp=replace(report.stamp, within=batch))
        return replace(told, last_rows=self.last_rows) if isinstance(told, Prepared) else told

    def commit_write(self, reports: list[Report], place: str = "out") -> Within:
        within = reports[0].stamp.within
        assert within is not None
        self.begun.append(reports)
        notes = self.run(token_write.begin_in_run(within, "named" if self.named else "", self.accept))
        begun = self.run(begin_within(within.query_id, self.two_phase))
        others = () if notes is None else notes.writes.kept
        more: Any = {"claimed": self.claimed, "accept": self.accept, "others": others}
        more["starts"] = not self.claimed
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
        self.claimed, self.newest, self.since = [], -1, -1

    def write_token(
        self, token: str, rows: str = "row", batch: Batch = BATCH, *, name: str = "", place: str = "out"
    ) -> bool:
        """Another write of the function, with a token; it is carried out by a sink of its own, and noted with
        it, as committer.py does. Whether it was written."""
        sink, accept = Sink(Token.of(token).sink_id(name or WRITER, place)), self.accept
        begun, _ = self.run(token_write.begin_write(sink, token, two_phase=self.two_phase, accept=accept))
        reports = [
            replace(one, written=((place, one.partition),)) if isinstance(one, Prepared) else one
            for one in self.tasks(begun, rows, batch)
        ]
        write = token_write.batch_write(reports, place, token, name)
        noting, passes = None, isinstance(reports[0], Decided)
        try:
            if not passes:
                notes = self.run(token_write.begin_in_run(batch, name, accept))
                assert notes is not None
                known = (*self.run(token_write.read_writes(batch.query_id)), *notes.writes.kept)
                late = batch.batch_id < self.newest  # a thread of this run has outlived its batch
                check = token_write.check_renamed(batch, known, write, self.claimed, accept, late=late)
                self.run(check)
                since = known if self.since in (-1, batch.batch_id) and not late else ()
                self.run(token_write.check_remembered(batch, notes.writes.kept, write, accept, since))
                noting = notes.with_write(write, reports[0].stamp)
            terms = Terms(token, write_of=batch.query_id, noting=noting)
            self.run(commit(sink, reports, begun.batch.batch_id, two_phase=self.two_phase, terms=terms))
        except CommitFault:
            self.end(reports)
            raise
        self.end(reports)
        if self.claimed is not None:
            self.claimed.append(write.known_by)
            self.newest = max(self.newest, batch.batch_id)
            self.since = batch.batch_id if self.since < 0 else self.since
        return not passes

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
    bench.sink, bench.accepted = sink_of_query("another query"), "new-checkpoint:q:1"
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
@pytest.mark.parametrize("alternates", [False, True])
def test_an_older_copy_writes_nothing_to_another_topic(tv: int, alternates: bool) -> None:
    """Its rows are others now, as more have come. That the day has named both topics before says nothing."""
    bench = WithinBench(tv)
    bench.run_again()
    bench.write("first", Batch("q", 6), "new" if alternates else "old")
    bench.write(place="old")
    bench.run_again()
    with pytest.raises(SinkChanged) as said:
        bench.write("row and more", place="new")
    assert "is to write 2 rows (checksum 00000018) to topic new now. Nothing was written." in str(said.value)
    assert "restored from an older copy? Bring the right checkpoint back." in str(said.value)
    bench.end_all()
    assert bench.write(place="old").passed, "the right checkpoint, and the old option"
    assert not bench.write("row and more", Batch("q", 8), "new").passed and bench.left() == ()


@BOTH
def test_two_topics_that_one_batch_has_had_are_two_writes(tv: int) -> None:
    """Threads have no order: another one comes first when the batch runs again, with rows of its own."""
    bench = WithinBench(tv)
    bench.run_again()
    for rows, place in (("a", "old"), ("the other", "new")):
        bench.write(rows, Batch("q", 6), place)
    bench.write("a", place="old")
    bench.run_again()
    assert not bench.write("the other", place="new").passed and bench.write("a", place="old").passed


@BOTH
@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("token", ["", "other-{}"])
def test_an_older_copy_writes_nothing_again_without_its_token(tv: int, token: str, behind: int) -> None:
    """The token was taken away, or another one given, and an older copy has other rows."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    for number in range(8):
        bench.write_token(f"job-{number}", batch=Batch("q", number))
    old = Batch("q", 7 - behind)

    def write(batch: Batch) -> None:
        if token:
            bench.write_token(token.format(batch.batch_id), "row and more", batch)
        else:
            bench.write("row and more", batch)

    bench.run_again()
    with pytest.raises(SinkChanged, match=r"write.token=job-7 has written .* older copy\? Bring the right"):
        write(old)
    bench.end_all()
    bench.accepted = "sink-changed:out:7"
    write(old)
    bench.run_again()
    bench.accepted = ""
    write(Batch("q", 8))
    assert bench.left() == ()


@BOTH
@pytest.mark.parametrize("token", ["job-{:04d}", "job-2026{}"])
def test_an_older_copy_writes_nothing_again_under_another_number_of_its_token(tv: int, token: str) -> None:
    """The number is written in another way, or is the day, and the batch is planned with later rows, too."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    for number in (6, 7):
        bench.write_token(f"job-{number}", batch=Batch("q", number))
    bench.run_again()
    said = r"token=job-7 has written .* older copy\? Bring the right.*Leave that write with write.token=job-7"
    with pytest.raises(SinkChanged, match=said):
        bench.write_token(token.format(7), "row and more")
    bench.end_all()
    with pytest.raises(TokenReused):
        bench.write_token("job-7", "row and more")
    bench.end_all()
    bench.write_token("job-7")
    bench.run_again()
    bench.accepted = "sink-changed:out:7"
    bench.write_token(token.format(7), "row and more")
    bench.accepted = ""
    bench.write_token(token.format(8), batch=Batch("q", 8))
    assert bench.left() == ()


@BOTH
@pytest.mark.parametrize("form", ["part-{0}{1}", "{0}-{1}"], ids=["one stem", "a stem a batch"])
def test_a_line_that_writes_several_tokens_in_a_batch_goes_on_in_any_order(tv: int, form: str) -> None:
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    for part in range(3):
        bench.write_token(form.format(6, part), "x" * (part + 1), Batch("q", 6))
    bench.write_token(form.format(7, 1), "xx")
    bench.run_again()
    for part in range(3):
        bench.write_token(form.format(7, part), "x" * (part + 1))
    assert len(bench.broker.visible()) == 12 and bench.left() == ()


DATED = {
    "counted last": "load-{day}{part}",
    "counted first": "load-{part}{day}",
    "many parts": "load-{day}{part}",
    "no day": "load-{day}",
}


@BOTH
@pytest.mark.parametrize("form", DATED)
@pytest.mark.parametrize("done", [1, 3])
def test_a_line_that_writes_several_tokens_of_the_day_runs_again_on_the_next(
    tv: int, done: int, form: str
) -> None:
    """With other rows, or split in another way: its tokens are others, and the batch has some already."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}

    def write(day: str, number: int, parts: int, rows: str) -> None:
        bench.run_again()
        for part in range(parts):
            day_or_time = f"{day}{number}{part}{part * 7919 % 97:02}" if form == "no day" else day
            token = DATED[form].format(day=day_or_time, part=part)
            bench.write_token(token, rows + "x" * part, Batch("q", number))

    write("20261129", 6, 12 if form == "many parts" else 3, "row")
    write("20261130", 7, done, "row")
    before = bench.broker.visible()
    with pytest.raises(SinkChanged, match=r"load-\d+ until batch 7 is done.*Set start.accepted=") as said:
        write("20261201", 7, 3, "other")
    bench.end_all()
    assert bench.broker.visible() == before
    write("20261130", 7, 3, "row")  # the way back
    bench.accepted = str(said.value).rpartition("start.accepted=")[2]
    write("20261201", 7, 3, "other")
    bench.accepted = ""
    write("20261202", 8, 2, "row")
    assert bench.left() == ()


@BOTH
@pytest.mark.parametrize("without", ["", "a", "b"])
@pytest.mark.parametrize("behind", [1, 3])
def test_a_line_that_had_no_rows_writes_none_from_an_older_copy(tv: int, behind: int, without: str) -> None:
    """Another line of the function has written later batches. `without`: which one has no token."""
    bench = WithinBench(tv)

    def write(line: str, number: int, rows: str) -> None:
        batch = Batch("q", number)
        if line == without:
            bench.write(rows, batch, line)
        else:
            bench.write_token(f"{line}-{number}", rows, batch, place=line)

    bench.run_again()
    for number in range(2, 8):
        write("a", number, f"{number}")
        if number == 2:
            write("b", number, f"{number}")
    before, old = bench.broker.visible(), 7 - behind
    for _ in range(2):
        bench.run_again()
        with pytest.raises(CheckpointOlder, match=r"written batch 7 of this query .*Bring the right"):
            write("b", old, "rows of 8")
        bench.end_all()
        assert bench.broker.visible() == before
    bench.run_again()
    for line in "ab":  # the right one
        write(line, 8, f"8 of {line}")
    assert len(bench.broker.visible()) == len(before) + 4


@BOTH
def test_who_accepts_that_a_later_batch_was_written_goes_on_with_the_word(tv: int) -> None:
    bench = WithinBench(tv)
    bench.run_again()
    for number in range(4, 8):
        bench.write_token(f"a-{number}", batch=Batch("q", number), place="a")
    bench.run_again()
    with pytest.raises(CheckpointOlder, match=r"write\.token=a-7 to topic a has written batch 7") as said:
        bench.write_token("b-5", batch=Batch("q", 5), place="b")
    bench.end_all()
    bench.accepted = str(said.value).rpartition("start.accepted=")[2]
    bench.run_again()
    assert bench.write_token("b-5", batch=Batch("q", 5), place="b")
    assert bench.write_token("b-6", batch=Batch("q", 6), place="b")
    bench.accepted = ""
    bench.run_again()
    assert bench.write_token("b-8", batch=Batch("q", 8), place="b") and bench.left() == ()


@BOTH
def test_a_later_batch_whose_topic_was_made_anew_stops_nobody(tv: int) -> None:
    """All is written again, by a query that was set back."""
    bench = WithinBench(tv)
    bench.ids = {"a": "1"}
    bench.run_again()
    for number in (6, 7):
        bench.write_token(f"a-{number}", batch=Batch("q", number), place="a")
    bench.ids, bench.accepted = {"b": "2"}, "write-again:1"
    bench.run_again()
    assert bench.write_token("b-6", batch=Batch("q", 6), place="b")


@BOTH
def test_a_thread_that_has_outlived_its_batch(tv: int) -> None:
    """What this run has written of that batch is not known any more: only equal rows are the same write."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    bench.write_token("a-7")
    bench.run_again()
    bench.write_token("b-8", "next", Batch("q", 8))
    bench.write_token("c-7", "other rows")
    with pytest.raises(SinkChanged, match=r"write\.token=a-7 has written .* was given the same rows now"):
        bench.write_token("d-7")
    bench.end_all()


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
    assert "Leave that write without a token until batch 7 is done." in str(said.value)
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


# -- a token that changes in the middle of a batch -------------------------------------------


ONCE = ["row0", "row1"]
CHANGES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "dropped": ({"token": "job-{}"}, {}),
    "renamed": ({"token": "job-{}"}, {"token": "task-{}"}),
    "padded": ({"token": "job-{}"}, {"token": "job-{:03d}"}),
    "given": ({}, {"token": "job-{}"}),
    "another transactional.id": ({"token": "job-{}"}, {"token": "job-{}", "name": "T"}),
}


@BOTH
@pytest.mark.parametrize("change", CHANGES)
def test_a_token_that_changes_in_the_middle_of_a_batch_writes_nothing_again(tv: int, change: str) -> None:
    """The way back ends, and so does the word."""
    before, after = CHANGES[change]

    def write(bench: WithinBench, given: dict[str, str], batch: Batch = BATCH) -> None:
        if not given:
            bench.write(batch=batch)
            return
        bench.write_token(given["token"].format(batch.batch_id), batch=batch, name=given.get("name", ""))

    for accepts in (False, True):
        bench = WithinBench(tv)
        bench.ids = {"out": "1"}
        bench.run_again()
        write(bench, before, Batch("q", 6))
        write(bench, before)
        bench.run_again()
        with pytest.raises(SinkChanged, match=r"Nothing was written\. Leave that write with") as said:
            write(bench, after)
        bench.end_all()
        assert "has written 2 rows (checksum 00000006) to topic out before" in str(said.value)
        assert str(said.value).endswith(
            "Are the rows to be there twice? Set start.accepted=sink-changed:out:7"
        )
        bench.run_again()
        if accepts:
            bench.accepted = "sink-changed:out:7"
            write(bench, after)
            assert bench.broker.visible() == ONCE * 3 and bench.left() == ()
            continue
        write(bench, before)
        assert bench.broker.visible() == ONCE * 2, "found written"
        write(bench, after, Batch("q", 8))
        assert bench.broker.visible() == ONCE * 3 and bench.left() == ()


@BOTH
@pytest.mark.parametrize("behind", [0, 1, 5])
def test_an_older_copy_writes_nothing_under_a_changed_name(tv: int, behind: int) -> None:
    """Its rows are others now, as more have come, and its tokens are not known under the new name."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    for number in range(8):
        bench.write_token(f"job-{number}", batch=Batch("q", number), name="A")
    old = Batch("q", 7 - behind)
    bench.run_again()
    with pytest.raises(SinkChanged, match=r"transactional\.id=A has written 2 rows") as said:
        bench.write_token(f"job-{old.batch_id}", "more", old, name="B")
    assert ("in batch 7" in str(said.value)) == (behind > 0)
    bench.end_all()
    bench.run_again()
    with pytest.raises(CommitFault, match="was given"):  # the way back: the token is known, with other rows
        bench.write_token(f"job-{old.batch_id}", "more", old, name="A")
    bench.end_all()
    bench.run_again()
    bench.accepted = "sink-changed:out:7"
    bench.write_token(f"job-{old.batch_id}", "more", old, name="B")
    bench.run_again()
    bench.accepted = ""
    bench.write_token("job-8", batch=Batch("q", 8), name="B")  # changed between two batches


@BOTH
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_an_older_copy_writes_nothing_under_a_token_that_was_forgotten(tv: int, behind: int) -> None:
    """The cluster has forgotten the decisions of batches that are there, and remembers a later one, or what
    the query has noted alone. Before the first of them there is nothing to compare with."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    for number in range(7):
        bench.write_token(f"job-{number}", batch=Batch("q", number))
    own = Sink(Token.of("job-7").sink_id(WRITER, "out"))
    if behind:
        del bench.broker.groups[own.group]
    bench.write_token("job-7", batch=Batch("q", 7))
    if not behind:
        del bench.broker.groups[own.group]
    old = Batch("q", 7 - behind)
    bench.run_again()
    with pytest.raises(
        DecisionGone, match=f"write.token=job-{old.batch_id} was written is not known"
    ) as said:
        bench.write_token(f"job-{old.batch_id}", "more", old)
    assert ("bring the right checkpoint back" in str(said.value)) == (behind > 0)
    word = str(said.value).rpartition("start.accepted=")[2]
    assert word == f"decisions-gone:job-{old.batch_id}:7" and bench.left() == ()
    bench.accepted = word
    assert bench.write_token(f"job-{old.batch_id}", "more", old)
    bench.accepted = ""
    assert bench.write_token("job-8", batch=Batch("q", 8)) and bench.write_token("next-8", batch=old)


@BOTH
@pytest.mark.parametrize("behind", [0, 1])
def test_an_older_copy_writes_nothing_to_a_changed_topic(tv: int, behind: int) -> None:
    """The same of the option topic. Who writes to both is not stopped, whichever comes first."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1", "next": "2"}
    bench.run_again()
    for number in range(8):
        bench.write_token(f"job-{number}", batch=Batch("q", number))
    old = Batch("q", 7 - behind)
    token = f"job-{old.batch_id}"
    bench.run_again()
    with pytest.raises(
        SinkChanged, match=r"to topic out before.*one with \S+ to topic next was given"
    ) as said:
        bench.write_token(token, "more", old, place="next")
    assert "Leave that write with write.token=job-7 to topic out until batch 7 is done" in str(said.value)
    bench.run_again()
    assert not bench.write_token(token, batch=old), "the way back: found written"
    bench.run_again()
    bench.accepted = "sink-changed:out:7"
    assert bench.write_token(token, "more", old, place="next")
    bench.accepted = ""
    for first, second in (("out", "next"), ("next", "out")):
        batch = Batch("q", 8 + (first == "next"))
        bench.run_again()
        for place in (first, second):
            assert bench.write_token(f"job-{batch.batch_id}", batch=batch, place=place)
    bench.run_again()
    bench.write_token("job-9", batch=Batch("q", 9), place="out")
    bench.write_token("job-9", batch=Batch("q", 9), place="next")


@BOTH
def test_a_token_that_was_forgotten_with_its_topic_is_written_again(tv: int) -> None:
    """Its rows are not there, and the word for the topic says all of it."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1"}
    bench.run_again()
    bench.write_token("job-7")
    bench.ids, bench.accepted = {"out": "2"}, "write-again:1"
    bench.run_again()
    assert bench.write_token("job-7")


@BOTH
def test_a_topic_that_alternates_is_not_another_write(tv: int) -> None:
    """A function that names one of two topics, by the day: a batch that runs again on the next day."""
    bench = WithinBench(tv)
    bench.ids = {"out": "1", "next": "2"}
    bench.run_again()
    for number, place in enumerate(["out", "next", "out"]):
        bench.write(f"r{number}", Batch("q", number), place)
    bench.run_again()
    with pytest.raises(SinkChanged, match="to topic out before, and is to write them to topic next now"):
        bench.write("r2", Batch("q", 2), "next")
    bench.end_all()
    bench.run_again()
    assert bench.write("r2", Batch("q", 2), "out").passed


@BOTH
def test_two_names_in_one_function_do_not_stop_each_other(tv: int) -> None:
    """Whatever was written of the batch before, and in which order."""
    for names in ("AB", "BA"):
        bench = WithinBench(tv)
        bench.run_again()
        for number in (7, 8):
            for name in "AB":
                bench.write_token(f"job-{number}", f"{name}{number}", Batch("q", number), name=name)
        bench.run_again()
        for name in names:
            bench.write_token("job-8", f"{name}8", Batch("q", 8), name=name)
        bench.run_again()
        bench.write_token("job-9", "first9", Batch("q", 9), name=names[0])
        bench.run_again()  # it died before the other one, which comes first now
        bench.write_token("job-9", "second9", Batch("q", 9), name=names[1])
        bench.write_token("job-9", "first9", Batch("q", 9), name=names[0])
        assert len(bench.broker.visible()) == 12


@BOTH
@pytest.mark.parametrize("before", [{}, {"token": "a-7"}], ids=["no token", "token"])
@pytest.mark.parametrize("after", ["no token", "token", "stream"])
def test_what_is_accepted_is_finished_first(tv: int, before: dict[str, str], after: str) -> None:
    """A driver died when it had decided. Nobody writes again under that name, and readers would wait."""
    bench = WithinBench(tv, named=True)
    bench.ids, bench.accepted = {"out": "1"}, "sink-changed:out:7,sink-changed:foreachBatch:7"

    def dies(command: c.Command[Any], _: Any) -> None:
        own = isinstance(command, c.End) and command.commit and len(command.participants) == 1
        if own and not command.participants[0].name.startswith("named/"):  # type: ignore[attr-defined]
            bench.told = None
            raise Crash

    bench.run_again()
    bench.told = dies
    with pytest.raises(Crash):
        bench.write_token("a-7") if before else bench.write()
    assert bench.broker.visible() == [] and bench.left() != ()
    bench.run_again()
    if after == "stream":
        bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))
    elif after == "token":
        bench.write_token("b-7")
    else:
        bench.write()
    again = after != "stream" and not (after == "no token" and not before)
    assert bench.broker.visible() == ONCE * (1 + again) and bench.left() == ()


@BOTH
def test_tokens_that_are_two_writes_do_not_stop_each_other(tv: int) -> None:
    """Equal rows to two topics, or to one under two tokens, of one run; and what an earlier run has done."""
    bench = WithinBench(tv)
    for _ in range(2):
        bench.run_again()
        bench.write_token("a-7")
        bench.write_token("b-7")
        bench.write_token("a-7", place="another")
        bench.write(place="a third")
    assert bench.broker.visible() == ONCE * 4
    bench.run_again()
    for write in ("a-7", "b-7"):
        with pytest.raises(SinkChanged, match=rf"{write} has written 2 rows.*to topic out before"):
            bench.write_token("c-7", rows="other", name="T")
        bench.end_all()
        bench.write_token(write)
    bench.write_token("c-7", rows="other", name="T")
    bench.run_again()
    bench.write_token("d-8", batch=Batch("q", 8))
    bench.write_token("e-7", batch=Batch("another query", 7))
    bench.run_again()
    bench.write_token("d-8", batch=Batch("q", 8))
    bench.write_token("d-8", batch=Batch("q", 8), place="another topic")
    bench.run_again()
    bench.write_token("d-9", batch=Batch("q", 9), place="another topic")
    assert bench.broker.visible().count("row0") == 8 and bench.left() == ()


@NAMED
def test_a_start_asks_for_rows_behind_the_last_decisions(named: bool) -> None:
    """If the write has a name: those of random names say nothing of their query."""
    bench = WithinBench(2, named=named)
    bench.last_rows, behind = ((5, 1),), list[tuple[str, ...]]([()])
    bench.intercept = lambda command: behind[0] if isinstance(command, c.FindBehind) else None
    bench.write()
    assert not any(isinstance(command, c.LookAt) for command in bench.commands)
    bench.run_again()
    behind[0] = ("out-0 has 2 rows of it",)
    assert bench.write().passed, "what is known is not asked for"
    bench.run_again()
    if not named:
        assert not bench.write("next", Batch("q", 8)).passed
        return
    with pytest.raises(DecisionGone, match=r"sink named: whether batch 8 of query q was written is not") as e:
        bench.write("next", Batch("q", 8))
    word = str(e.value).rpartition("start.accepted=")[2]
    assert word == "decisions-gone:named:8:1"
    bench.end(bench.begun[-1])
    bench.accepted = word
    assert not bench.write("next", Batch("q", 8)).passed


@BOTH
def test_a_driver_that_dies_while_it_notes_a_write_leaves_it_undecided_or_known(tv: int) -> None:
    """And the next one, under another token, does not wait for it for ever."""
    outcomes = set()
    for number in range(40):
        bench = WithinBench(tv)
        bench.run_again()
        bench.at(number, crash)
        try:
            bench.write_token("a-7")
            break
        except Crash:
            bench.run_again()
        try:
            bench.write_token("b-7")
        except SinkChanged:
            outcomes.add("known")
            bench.run_again()
            assert not bench.write_token("a-7")
        else:
            outcomes.add("undecided")
        assert bench.broker.visible() == ONCE, number
    assert outcomes == {"known", "undecided"}


# -- a lost checkpoint: the query has another id -------------------------------------------------------------


@BOTH
def test_a_new_checkpoint_does_not_write_again_under_the_name_of_the_old_one(tv: int) -> None:
    bench = WithinBench(tv, named=True)
    bench.write("old")
    bench.write("newer", Batch("q", 8))
    anew = Batch("another query", 0)
    with pytest.raises(StartsElsewhere) as said:
        bench.write("old", anew)
    bench.end_all()
    assert "query q was the last to write under transactional.id=named" in str(said.value)
    assert "set start.accepted=new-checkpoint:q:2 of this write" in str(said.value)
    assert bench.write("newer", Batch("q", 8)).passed, "the old checkpoint is brought back"
    backfill = bench.tasks(bench.begin_write(), "by hand")
    terms = Terms(write_of="")
    bench.run(commit(Sink("named"), backfill, 0, two_phase=bench.two_phase, terms=terms))
    with pytest.raises(StartsElsewhere, match="query q was the last to write"):
        bench.write("old", anew)
    bench.end_all()
    bench.accepted = "new-checkpoint:q:3"
    bench.write("rest", anew)
    bench.accepted = ""
    bench.write("more", Batch("another query", 1))
    with pytest.raises(StartsElsewhere, match=r"query another query .* Give each a transactional\.id of its"):
        bench.write("newest", Batch("q", 9))
    bench.end_all()
    bench.named, bench.two_phase = False, TwoPhase.NEVER
    bench.write("newest", Batch("q", 9))
    written = ["by hand", "more", "newer", "newest", "old", "rest"]
    assert sorted(bench.broker.visible()) == [f"{rows}{p}" for rows in written for p in range(2)]


@BOTH
def test_foreach_batch_does_not_write_again_what_another_querys_stream_has_written(tv: int) -> None:
    bench = WithinBench(tv, named=True)
    begun, _ = bench.run(begin(Sink("named"), BATCH, two_phase=bench.two_phase))
    begun = replace(begun, start=Start("word", "/a", 1))
    bench.run(commit(Sink("named"), [bench.prepare(begun, p, [f"row{p}"]) for p in range(2)], 7))
    with pytest.raises(StartsElsewhere, match=r"query q was the last to write under transactional\.id=named"):
        bench.write(batch=Batch("another query", 0))
    bench.end_all()
    assert not bench.write(batch=Batch("q", 8)).passed


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
def test_a_stream_does_not_write_what_foreach_batch_has_written_under_a_token(tv: int) -> None:
    bench = WithinBench(tv)
    bench.write_token("job-7", place="out")
    with pytest.raises(SinkChanged, match=r"with write\.token=job-7 has .* in batch 7, .*foreachBatch:7"):
        bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))
    bench.run(token_write.check_not_in_foreach(Batch("q", 8), bench.accept))
    bench.accepted = "sink-changed:foreachBatch:7"
    bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))


@BOTH
@pytest.mark.parametrize("token", [False, True], ids=["without a token", "write.token"])
def test_foreach_batch_knows_the_name_of_the_stream_before_it(tv: int, token: bool) -> None:
    bench, sink = WithinBench(tv), Sink("stream")

    def write(batch: Batch) -> object:
        return bench.write_token(f"t-{batch.batch_id}", batch=batch) if token else bench.write(batch=batch)

    write(Batch("q", 5))
    for _ in range(2):
        notes = bench.run(token_write.check_not_in_foreach(BATCH, bench.accept))
        bench.commands.clear()
        bench.run(token_write.note_stream(sink, BATCH, notes))
    assert bench.commands == [], "it is known"
    begun, _ = bench.run(begin(sink, BATCH, two_phase=bench.two_phase))
    bench.run(commit(sink, [bench.prepare(begun, p, [f"row{p}"]) for p in range(2)], 7))
    with pytest.raises(SinkChanged, match=r"has decided batch 7 of .*sink-changed:stream:7"):
        write(BATCH)
    bench.end_all()
    write(Batch("q", 8))
    with pytest.raises(SinkChanged, match=r"has decided batch 7 of .*sink-changed:stream:7"):
        write(BATCH)
    bench.end_all()
    assert bench.broker.visible() == ONCE * 3


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
