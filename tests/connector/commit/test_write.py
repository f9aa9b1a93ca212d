"""Batch writes with a token, one story each, on the model cluster: what is written once, what passes, what is
said, and under which names."""

import re
from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import write_token as tokens
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import Description
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.decision import ANCHOR, Decision, decode
from eoslog.connector.commit.faults import (
    CommitFault,
    DecisionGone,
    ParticipantsLost,
    RowsGone,
    SinkFenced,
    TokenForgotten,
    TokenReused,
)
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report, Run
from eoslog.connector.commit.token_write import begin_before, begin_write, note_finished
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import KEPT_TOKENS
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes

BOTH = pytest.mark.parametrize("tv", [1, 2])


class WriteBench(Bench):
    """Writes of two tasks, each under a token. A row's checksum is its length."""

    last_run: Run | None = None
    last_rows: tuple[tuple[int, int], ...] = ()
    """Of each task, where brokers tell it."""
    accepted = ""

    def accept(self, word: str) -> str | None:
        return None if word in self.accepted.split(",") else f"start.accepted={word}"

    def begin_token(self, token: str, run: Run | None = None) -> Begun:
        rules = begin_write(self.sink, token, last_run=run, accept=self.accept)
        begun, self.last_run = self.run(rules)
        return begun

    def tasks(self, begun: Begun, rows: str = "") -> list[Report]:
        assert begun.batch is not None
        given = rows or begun.batch.query_id
        return [self._told(self.prepare(begun, p, [f"{given}p{p}"]), len(given)) for p in range(2)]

    def _told(self, report: Report, checksum: int) -> Report:
        assert isinstance(report, (Prepared, Decided))
        told = {"last_rows": self.last_rows} if isinstance(report, Prepared) else {}
        return type(report)(**{**report.__dict__, "checksum": checksum, **told})

    def finish(self, token: str, reports: list[Report]) -> Decision | None:
        stamp = reports[0].stamp
        sink = Sink(stamp.sink_id)
        return self.run(
            commit(sink, reports, stamp.batch.batch_id, two_phase=self.two_phase, terms=Terms(token))
        )

    def write(self, token: str, rows: str = "", *, goes_on: bool = True) -> list[Report]:
        reports = self.tasks(self.begin_token(token, self.last_run if goes_on else None), rows)
        done = self.finish(token, reports)
        assert done is not None
        self.run(note_finished(self.sink, done))
        return reports

    def passed(self, reports: list[Report]) -> bool:
        assert len({type(report) for report in reports}) == 1
        return isinstance(reports[0], Decided)

    def names(self) -> set[str]:
        return set(self.broker.transactions)


@BOTH
@pytest.mark.parametrize("keeps", [False, True])
def test_names_and_groups_come_again(tv: int, keeps: bool) -> None:
    """The sink's own id, and the two halves of the tasks' names; two groups."""
    bench = WriteBench(tv, keeps=keeps)
    identities = set()
    for number in range(20):
        identities.add(bench.write(f"job-{number}")[0].stamp.identity)
        assert bench.open() == ()
    assert len(identities) == 20, "what comes late of one write must not get into the next"
    assert bench.broker.visible() == [f"job-{n}p{p}" for n in range(20) for p in range(2)]
    assert len(bench.names()) == 1 + 2 * 2, bench.names()
    assert set(bench.broker.groups) == {"sink", "sink/finished"}


@BOTH
def test_a_driver_that_remembers_nothing_takes_names_of_its_own(tv: int) -> None:
    bench = WriteBench(tv)
    for number in range(3):
        bench.write(f"job-{number}", goes_on=False)
    assert len(bench.broker.visible()) == 6 and len(bench.names()) == 1 + 3 * 2


@BOTH
def test_any_of_the_last_tokens_passes_and_the_order_of_numbers_does_not_count(tv: int) -> None:
    bench, written = (
        WriteBench(tv),
        ["load-20261122", "load-20261101", "load-7", "load-007", "load-", "load-8"],
    )
    for token in written:
        assert not bench.passed(bench.write(token))
    for token in [*written, *reversed(written)]:
        assert bench.passed(bench.write(token)), token
    assert sorted(bench.broker.visible()) == sorted(f"{token}p{p}" for token in written for p in range(2))
    assert not bench.passed(bench.write("load-9")) and bench.open() == ()


@BOTH
@pytest.mark.parametrize("other", ["JOB-1", "job-1+"], ids=["other rows", "other rows, another length"])
def test_other_rows_under_a_token_are_said(tv: int, other: str) -> None:
    bench = WriteBench(tv)
    bench.write("job-1", "four")
    for _ in range(2):
        with pytest.raises(TokenReused) as said:
            bench.write("job-1", "eleven")
        assert "write.token=job-1 has written 2 rows (checksum 00000008) before" in str(said.value)
        assert "was given 2 rows (checksum 0000000c) now" in str(said.value)
    bench.write("job-2")
    with pytest.raises(TokenReused, match="job-1 has written 2 rows"):
        bench.write("job-1", other + "......")
    assert bench.passed(bench.write("job-1", "ruof"))
    assert bench.broker.visible() == ["fourp0", "fourp1", "job-2p0", "job-2p1"] and bench.open() == ()


def rows_gone(bench: WriteBench, token: str) -> tuple[str, list[str]]:
    """What is said of a token whose rows are gone, and the words of start.accepted that it names."""
    with pytest.raises(RowsGone) as said:
        bench.write(token)
    assert bench.open() == ()
    return str(said.value), re.findall(r"set start\.accepted=(\S+?)(?:\.? |$)", f"{said.value} ")


@BOTH
@pytest.mark.parametrize("last", [False, True], ids=["an earlier token", "the last token"])
@pytest.mark.parametrize("now", ["new", None], ids=["made anew", "deleted"])
@pytest.mark.parametrize("again", [False, True])
def test_a_token_whose_topic_was_deleted_since_is_no_done_write(
    tv: int, last: bool, now: str | None, again: bool
) -> None:
    """Each way out ends, and the words do nothing once they have done their work."""
    bench = WriteBench(tv)
    bench.ids = {"out": "old"}
    for token in ("job-1",) if last else ("job-1", "job-2"):
        bench.write(token)
    bench.ids = {"out": now} if now else {}
    for _ in range(2):
        said, words = rows_gone(bench, "job-1")
        became = (
            "deleted and created again (its id was old and is new)" if now else "deleted (its id was old)"
        )
        assert "write.token=job-1 has written 2 rows (checksum 0000000a) before" in said
        assert f", and rows are gone: topic out was {became}. Nothing was written." in said
        assert words == ["write-again:old", "rows-gone:old"]
    bench.accepted, bench.ids = words[0 if again else 1], {"out": "new"}
    before = bench.broker.visible()
    assert bench.passed(bench.write("job-1")) is not again
    assert bench.broker.visible() == before + (["job-1p0", "job-1p1"] if again else [])
    bench.accepted = "" if again else bench.accepted
    assert bench.passed(bench.write("job-1")) and not bench.passed(bench.write("job-3"))
    assert bench.open() == ()


def test_a_write_of_which_some_topics_are_gone_is_not_written_again() -> None:
    """What is there would be there twice."""
    bench = WriteBench()
    bench.ids = {"bad": "1", "out": "2", "more": "3"}
    bench.write("job-1")
    bench.ids |= {"bad": "4"}
    bench.accepted = "write-again:1"
    said, words = rows_gone(bench, "job-1")
    assert "topic bad was deleted and created again (its id was 1 and is 4). Nothing was written." in said
    assert "Those in more, out are there" in said and words == ["rows-gone:1"]
    bench.ids |= {"out": "5"}
    _, words = rows_gone(bench, "job-1")
    assert words == ["rows-gone:1,rows-gone:2"]
    bench.accepted = words[0]
    assert bench.passed(bench.write("job-1"))


def test_brokers_without_ids_of_topics_are_asked_no_more_than_before() -> None:
    bench = WriteBench()
    bench.ids = {"out": None}
    bench.write("job-1")
    assert bench.passed(bench.write("job-1"))
    assert not any(isinstance(command, c.FindTopics) for command in bench.commands)
    bench.ids = {"out": "1"}
    bench.write("job-2")
    bench.ids = {"out": None}
    assert bench.passed(bench.write("job-2"))


@BOTH
def test_a_token_that_is_forgotten_is_said(tv: int) -> None:
    """64 are remembered; below the highest that is not, nothing is known."""
    bench = WriteBench(tv)
    for number in range(KEPT_TOKENS + 2):
        bench.write(f"job-{number}")
    rows = bench.broker.visible()
    for old in ("job-0", "job-1", "job-01", "job-"):
        with pytest.raises(TokenForgotten, match=f"write.token={old} was written is no longer known") as said:
            bench.write(old)
        assert "the last 64 tokens of 'job-'" in str(said.value) and "number 1 was forgotten" in str(
            said.value
        )
    assert bench.passed(bench.write("job-2")) and bench.passed(bench.write(f"job-{KEPT_TOKENS + 1}"))
    assert bench.broker.visible() == rows and bench.open() == ()
    assert not bench.passed(bench.write(f"job-{KEPT_TOKENS + 2}"))
    with pytest.raises(TokenForgotten):
        bench.write("job-2")


@BOTH
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("stop", [decides, finishes])
@pytest.mark.parametrize("after", [False, True])
def test_a_write_that_dies_is_written_once_by_the_next_run(
    tv: int, keeps: bool, stop: Any, after: bool
) -> None:
    """Its own next run, or that of another token of the stem first."""
    for first in ("job-1", "job-2"):
        bench = WriteBench(tv, keeps=keeps)
        bench.write("job-0")
        bench.crash_at(stop, after=after)
        with pytest.raises(Crash):
            bench.write("job-1")
        bench.last_run = None
        bench.write(first)
        bench.write("job-1")
        assert [row for row in bench.broker.visible() if row.startswith("job-1")] == ["job-1p0", "job-1p1"]
        assert bench.open() == ()


@BOTH
def test_two_writes_side_by_side_never_decide_under_one_identity(tv: int) -> None:
    """Both begun by one driver before either is decided: what it remembers is not yet decided, so the second
    one acquires the sink, and the first one stops."""
    bench = WriteBench(tv)
    bench.write("job-0")
    first = bench.tasks(bench.begin_token("job-1", bench.last_run))
    second = bench.tasks(bench.begin_token("job-2", bench.last_run))
    assert first[0].stamp.identity != second[0].stamp.identity
    with pytest.raises(CommitFault):
        bench.finish("job-1", first)
    bench.finish("job-2", second)
    with pytest.raises(SinkFenced):
        bench.finish("job-1", first)
    assert bench.broker.visible() == ["job-0p0", "job-0p1", "job-2p0", "job-2p1"]


@BOTH
def test_drivers_may_write_in_turns(tv: int) -> None:
    """One that remembers a sink which another has used since acquires it anew, and says nothing."""
    bench = WriteBench(tv)
    bench.write("job-0")
    mine = bench.last_run
    bench.write("job-1", goes_on=False)
    bench.last_run = mine
    bench.write("job-2")
    assert len(bench.broker.visible()) == 6


@BOTH
def test_a_driver_that_is_at_work_is_fenced_by_one_that_remembers(tv: int) -> None:
    """Going on under its identity, both could decide in one transaction."""
    bench = WriteBench(tv)
    bench.write("job-0")
    mine = bench.last_run
    other = bench.tasks(bench.begin_token("job-1"))
    begun = bench.begin_token("job-2", mine)
    assert begun.identity != other[0].stamp.identity
    bench.finish("job-2", bench.tasks(begun))
    with pytest.raises(CommitFault):
        bench.finish("job-1", other)
    assert bench.broker.visible() == ["job-0p0", "job-0p1", "job-2p0", "job-2p1"]


@BOTH
def test_a_start_asks_for_rows_behind_the_last_decision(tv: int) -> None:
    """A token that is known passes all the same, and a driver that goes on asks for nothing. The word is one
    for this token after this decision."""
    bench = WriteBench(tv)
    bench.last_rows, behind = ((5, 1),), list[tuple[str, ...]]([("out-0 has 2 rows of it",)])
    bench.intercept = lambda command: behind[0] if isinstance(command, c.FindBehind) else None
    bench.write("a-1")
    bench.write("a-2")
    assert not any(isinstance(command, c.FindBehind) for command in bench.commands)
    assert bench.passed(bench.write("a-1", goes_on=False))
    for _ in range(2):
        with pytest.raises(DecisionGone) as said:
            bench.write("a-3", goes_on=False)
    assert "whether write.token=a-3 was written is not known. Rows of the sink are visible behind" in str(
        said.value
    )
    assert str(said.value).endswith("set start.accepted=decisions-gone:a-3:2")
    asked = next(command for command in bench.commands if isinstance(command, c.FindBehind))
    assert asked.sink == "sink" and [(p.partition, p.offset) for p in asked.places] == [(0, 5), (1, 5)]
    bench.accepted = "decisions-gone:a-3:2"
    with pytest.raises(DecisionGone):
        bench.write("a-4", goes_on=False)
    assert not bench.passed(bench.write("a-3", goes_on=False))
    with pytest.raises(DecisionGone, match="decisions-gone:a-4:3"):
        bench.write("a-4", goes_on=False)
    behind[0] = ()
    assert not bench.passed(bench.write("a-4", goes_on=False)) and bench.open() == ()


def test_a_write_remembers_where_the_last_rows_of_others_are() -> None:
    """In partitions where it has written none: what follows there was decided before."""
    bench = WriteBench()
    bench.last_rows = ((5, 1),)
    bench.write("a-1")
    begun = bench.begin_token("a-2", bench.last_run)
    reports = [bench._told(bench.prepare(begun, 0, ["row"]), 3), bench.prepare(begun, 1, [])]
    done = bench.finish("a-2", reports)
    assert done is not None and [p.partition for p in done.places] == [0]
    assert [p.partition for p in done.older] == [1]


def test_at_the_last_epoch_the_sink_is_acquired_anew() -> None:
    """While a commit under it is prepared, its coordinator names one more, which nobody may have."""
    bench = WriteBench()
    bench.write("job-0")
    ((name, owned),) = bench.broker.describe(["sink"]).items()
    assert owned is not None
    beyond = Description("PrepareCommit", ProducerIdentity(owned.identity.producer_id, 32_767), 1, 1)

    def intercept(command: c.Command[Any]) -> Any:
        if not isinstance(command, c.Describe):
            return None
        bench.intercept = None
        return {name: beyond}

    bench.intercept = intercept
    bench.commands.clear()
    bench.write("job-1")
    assert c.Acquire("sink", used=True) in bench.commands


@BOTH
def test_a_note_of_another_token_says_nothing(tv: int) -> None:
    """The decisions have expired, their note has not, and numbers begin at 1 again."""
    bench = WriteBench(tv)
    bench.write("job-7")
    bench.broker.groups.pop("sink")
    bench.last_run = None
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.write("job-8")
    for name in bench.open():
        bench.broker.expire(name)
    with pytest.raises(ParticipantsLost):
        bench.write("job-8", goes_on=False)


@BOTH
def test_what_another_driver_has_decided_meanwhile_is_not_noted(tv: int) -> None:
    bench = WriteBench(tv)
    bench.write("job-0")
    passing = bench.tasks(bench.begin_token("job-0"))
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.write("job-1")
    assert bench.passed(passing) and bench.finish("job-0", passing) is None


@BOTH
def test_what_the_brokers_have_forgotten_is_not_taken_for_lost(tv: int) -> None:
    """Idle transactional ids expire; the decision and the note beside it tell that nothing is missing."""
    bench = WriteBench(tv)
    bench.write("job-0")
    bench.broker.transactions.clear()
    assert bench.passed(bench.write("job-0"))
    bench.broker.transactions.clear()
    assert not bench.passed(bench.write("job-1"))
    assert len(bench.broker.visible()) == 4


@BOTH
def test_a_write_that_was_finished_by_its_next_run_is_noted_too(tv: int) -> None:
    bench = WriteBench(tv)
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.write("job-0")
    assert bench.passed(bench.write("job-0"))
    bench.broker.transactions.clear()
    assert bench.passed(bench.write("job-0")) and len(bench.broker.visible()) == 2


def test_the_next_write_has_the_other_half_of_the_names() -> None:
    """Whatever the tokens' numbers are: the last decision's participants stay readable (trap 2)."""
    bench = WriteBench()
    for token in ("job-1", "job-3", "job-5"):
        reports = bench.write(token)
        last = decode(bench.sink, bench.broker.fetch("sink").chunks)  # type: ignore[union-attr]
        assert last is not None
        halves = {bench.sink.slot_of(p.name).parity for p in last.participants}  # type: ignore[union-attr]
        assert halves == {reports[0].stamp.batch.batch_id % 2}
    assert last is not None and last.batch == Batch("job-5", 2)


class OldBench(WriteBench):
    """A token written as it was when each had a sink of its own, and its rows counted."""

    old = Sink("eoslog-write.job-1")

    def write_old(self, *, noted: bool = True) -> None:
        begun, _ = self.run(begin(self.old, Batch("job-1", 0)))
        self.run(commit(self.old, self.tasks(begun), 0))
        if noted:
            self.broker.commit_offsets(self.old.finished_group, {(ANCHOR, 0): (0, "job-1")})

    def begin_anew(self, *topics: str) -> Begun | None:
        return self.run(begin_before(self.old, "job-1", frozenset(topics)))


@BOTH
def test_a_token_that_an_earlier_version_has_written_passes(tv: int) -> None:
    bench = OldBench(tv)
    bench.write_old()
    bench.broker.transactions.clear()
    begun = bench.begin_anew("out")
    assert begun is not None and bench.passed(bench.tasks(begun))
    done = bench.finish("job-1", bench.tasks(begun))
    assert done is not None
    bench.run(note_finished(bench.old, done))
    bench.broker.transactions.clear()
    again = bench.begin_anew("out")
    assert again is not None
    with pytest.raises(TokenReused, match="has written 2 rows"):
        bench.finish("job-1", bench.tasks(again, "others"))
    assert bench.begin_anew("elsewhere") is None, "what was written to another topic is another write"
    assert len(bench.broker.visible()) == 2


@BOTH
@pytest.mark.parametrize("keeps", [False, True])
def test_an_earlier_version_that_died_in_mid_write_is_finished_or_cleared(tv: int, keeps: bool) -> None:
    for stop, after in ((decides_old, False), (decides_old, True)):
        bench = OldBench(tv, keeps=keeps)
        bench.crash_at(stop, after=after)
        with pytest.raises(Crash):
            bench.write_old()
        begun = bench.begin_anew("out")
        assert (begun is not None) is after, "decided, so it passes; else it is the new sink's"
        assert bench.broker.ongoing("eoslog-write") == ()
        assert len(bench.broker.visible()) == (2 if after else 0)


def decides_old(command: c.Command[Any]) -> bool:
    """The commit point of the old sink."""
    return isinstance(command, c.End) and command.commit and command.participants[0].name == OldBench.old.id


@BOTH
def test_a_stream_that_has_the_name_of_an_old_token_is_left_alone(tv: int) -> None:
    bench = OldBench(tv)
    begun, _ = bench.run(begin(bench.old, Batch("a stream", 0)))
    bench.run(commit(bench.old, bench.tasks(begun), 0))
    before = bench.broker.describe([bench.old.coordinator])
    assert bench.begin_anew("out") is None
    assert bench.broker.describe([bench.old.coordinator]) == before


def test_a_token_that_nobody_has_written_asks_for_nothing_more() -> None:
    bench = OldBench()
    assert bench.begin_anew("out") is None
    assert [type(command) for command in bench.commands] == [c.Describe, c.FetchStored]
    assert not bench.broker.transactions


def test_the_memory_takes_less_than_half_of_a_partition() -> None:
    made = tokens.RememberedTokens()
    for number in range(20_000, 20_000 + KEPT_TOKENS):
        made = made.after(tokens.Token.of(f"job-{number}"), tokens.Content(1_000_000, 2**32 - 1))
    assert len(made.text()) < 1800
