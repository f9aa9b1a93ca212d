"""A decision is moved by who has seen the last one: whatever is decided is carried out first, and a driver
that lives is fenced."""

from collections.abc import Callable

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decide import SourceOffsets, Terms, commit
from eoslog.connector.commit.decision import ANCHOR, Decision, decode, encode
from eoslog.connector.commit.faults import CommitFault, SinkFenced
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.places import Place
from eoslog.connector.commit.saved_state import Saved, Written
from eoslog.connector.commit.task_reports import Batch, Left, Start
from eoslog.connector.commit.write_token import BatchWrite, BatchWrites, Content, RememberedTokens, Token
from tests.connector.commit.model_bench import Bench, Crash, finishes

ROWS = ["q0p0", "q0p1"]
TO = Batch("q", 0, "edited")
BOTH = pytest.mark.parametrize("tv", [1, 2])


def last(bench: Bench) -> Decision | None:
    stored = bench.broker.fetch("sink")
    assert not isinstance(stored, (c.Refused, c.Unknown))
    return decode(bench.sink, stored.chunks)


@BOTH
def test_what_is_decided_is_carried_out_and_what_is_open_aborted(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.prepare(begun, 1, ["a lost attempt"], worker="slow")
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(bench.prepare_all(begun), 0)
    bench.run(move_decision(bench.sink, last(bench), TO, SourceOffsets("g", {("in", 0): (3, "")}), None))
    assert bench.broker.visible() == ROWS and bench.open() == ()
    moved = last(bench)
    assert moved is not None and moved.batch == TO and moved.winners == () and moved.sequence == 2
    bench.begin(1, completed=0)


@BOTH
def test_a_driver_that_lives_is_fenced(tv: int) -> None:
    bench = Bench(tv)
    bench.whole_batch(0)
    reports = bench.prepare_all(bench.begin(1, run=bench.remembered, completed=0))
    bench.run(move_decision(bench.sink, last(bench), TO, None, 0))
    with pytest.raises(SinkFenced):
        bench.commit(reports, 1)
    assert bench.broker.visible() == ROWS


def test_a_sink_that_has_decided_since_is_left_alone() -> None:
    bench = Bench()
    bench.whole_batch(0)
    seen = last(bench)
    bench.whole_batch(1)
    with pytest.raises(CommitFault, match="has decided batch 1 of query q since it was looked at"):
        bench.run(move_decision(bench.sink, seen, TO, None, 1))
    now = last(bench)
    assert now is not None and now.batch.batch_id == 1


def test_the_next_batch_was_not_attempted() -> None:
    """at_most_once: it has other rows than the batch that had its number before."""
    bench = Bench()
    bench.whole_batch(0, at_most_once=True)
    bench.begin(1, at_most_once=True, completed=0)
    bench.run(move_decision(bench.sink, last(bench), TO, None, 0))
    assert not bench.begin(1, at_most_once=True, completed=0).dropped


START = Start("word", "/checkpoint", 1795780000, (("before", 0), ("word", 2)))


class Saves:
    """Saves nothing, and says where it is."""

    topic = "state"

    def __init__(self, digest: str) -> None:
        self.saved, self.before = Saved("state", 0, 1, 9, digest, True), list[Saved | None]()

    def write(self, own: object, last: Saved | None, contents: object) -> Written:
        self.before.append(last)
        return Written(self.saved)


MOVED: dict[str, Callable[[Decision, Decision], bool]] = {
    "sequence": lambda seen, now: now.sequence == seen.sequence + 1,
    "batch": lambda seen, now: now.batch == TO,
    "incarnation": lambda seen, now: now.incarnation != seen.incarnation,
    "winners": lambda seen, now: seen.winners != () == now.winners,
    "written": lambda seen, now: seen.written != () == now.written,
    "rows": lambda seen, now: seen.rows != () == now.rows,
    "checksums": lambda seen, now: seen.checksums != () == now.checksums,
    "earlier": lambda seen, now: now.earlier == seen.earlier != (),
    "tokens": lambda seen, now: now.tokens == seen.tokens != RememberedTokens(),
    "saved": lambda seen, now: now.saved == Saves("moved").saved != seen.saved,
    "ends": lambda seen, now: now.ends == "moved" != seen.ends,
    "places": lambda seen, now: seen.places != () == now.places,
    "names": lambda seen, now: seen.names != "" == now.names,
    "start": lambda seen, now: now.start == START != seen.start,
    "topics": lambda seen, now: now.topics == seen.topics != (),
    "left": lambda seen, now: now.left == seen.left is not None,
    "within": lambda seen, now: now.within == seen.within != BatchWrites(),
    "behind": lambda seen, now: seen.behind is not None and now.behind is None,
    "write_of": lambda seen, now: seen.write_of is not None and now.write_of is None,
    "older": lambda seen, now: seen.of_query is not None and now.older == seen.of_query.everywhere != (),
    "starts": lambda seen, now: now.starts == seen.starts != (),
}
"""What a moved decision says of each fact of a decision: kept, made anew, or at its end with its batch."""


def test_whatever_a_decision_holds_has_a_rule_when_it_is_moved() -> None:
    """A new field belongs into MOVED first."""
    assert list(MOVED) == list(Decision._fields)
    bench, first = Bench(), Saves("first")
    bench.whole_batch(0, query="another")
    reports = bench.prepare_all(bench.begin(0))
    bench.run(commit(bench.sink, reports, 0, terms=Terms(saving=first)))
    seen = last(bench)
    assert seen is not None
    tokens = RememberedTokens().after(Token.of("job-1"), Content(1, 1))
    place = Place("out", None, 0, 7, seen.winners[0].participant.identity, 1)
    seen = seen._replace(
        tokens=tokens, checksums=seen.checksums or (1, 2), places=(place,), names=bench.sink.id
    )
    within = BatchWrites((BatchWrite(7, "out", Content(1, 1), (("out", "id"),)),))
    behind = seen._replace(winners=(), names="")
    seen = seen._replace(
        write_of="q", left=Left("word", "another", "q", 1, 1795780000), within=within, behind=behind
    )
    seen = seen._replace(starts=(("another", START),))
    stored = encode(seen, bench.sink, 8)
    bench.broker.commit_offsets("sink", {(ANCHOR, at): chunk for at, chunk in stored.items()})
    saves = Saves("moved")
    bench.run(move_decision(bench.sink, seen, TO, None, 0, saves, "moved", START))
    now = last(bench)
    assert now is not None and saves.before == [first.saved]
    assert [name for name, holds in MOVED.items() if not holds(seen, now)] == []


def test_a_state_that_was_saved_is_not_forgotten() -> None:
    bench = Bench()
    bench.run(commit(bench.sink, bench.prepare_all(bench.begin(0)), 0, terms=Terms(saving=Saves("first"))))
    seen = last(bench)
    with pytest.raises(ValueError, match=r"has its state in state: save it again"):
        bench.run(move_decision(bench.sink, seen, TO, None, 0))
    assert last(bench) == seen
