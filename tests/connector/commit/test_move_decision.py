"""A decision is moved by who has seen the last one: whatever is decided is carried out first, and a driver
that lives is fenced."""

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.faults import CommitFault, SinkFenced
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.task_reports import Batch
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
    bench.whole_batch(0, once_at_most=True)
    bench.begin(1, once_at_most=True, completed=0)
    bench.run(move_decision(bench.sink, last(bench), TO, None, 0))
    assert not bench.begin(1, once_at_most=True, completed=0).dropped
