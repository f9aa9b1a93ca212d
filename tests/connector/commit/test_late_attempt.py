"""Trap 31: an attempt of a task that comes too late for its batch ends its own transaction.

Hanging tasks at every request are in test_model.py; attempts on a real broker in
tests/connector/sink/test_writer_disturbed.py.
"""

from typing import Any

import pytest

from eoslog.connector.commit import commands as c
from eoslog.connector.commit import prepare
from eoslog.connector.commit.abandon import Aborted, is_over
from eoslog.connector.commit.faults import CommitFault
from eoslog.connector.commit.task_reports import Begun, Prepared
from tests.connector.commit.model_bench import Bench, Crash, decides, finishes


def late(bench: Bench, begun: Begun) -> str | None:
    """The other attempt of task 0, by another worker: its rows, then its look; what it says."""
    report = bench.prepare(begun, 0, ["late"], worker="late")
    assert isinstance(report, Prepared)
    said: str | None = bench.run(prepare.withdraw_if_late(report.stamp, report.participant))
    return said


@pytest.mark.parametrize("tv", [1, 2])
def test_trap_31_an_attempt_that_comes_after_the_commit_leaves_nothing_open(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.commit(bench.prepare_all(begun), 0)
    said = late(bench, begun)
    assert bench.open() == ()
    assert said is not None and "batch 0" in said and "/late.0" in said
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@pytest.mark.parametrize("tv", [1, 2])
def test_trap_31_the_next_batchs_decision_on_its_way_is_not_waited_for(tv: int) -> None:
    """It may be on its way for long: until its driver is started again."""
    bench = Bench(tv)
    begun = bench.begin(0)
    bench.commit(bench.prepare_all(begun), 0)
    following = bench.begin(1, run=bench.remembered, completed=0)
    stamp = bench.prepare_all(following)[0].stamp
    assert bench.broker.stage("sink", stamp.identity, "sink", {("other", 0): (2, "")}) is None
    assert late(bench, begun) is not None
    assert not [name for name in bench.open() if "late" in name]


@pytest.mark.parametrize("tv", [1, 2])
def test_an_attempt_in_time_stays_open_and_is_cleared_with_the_commit(tv: int) -> None:
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    assert late(bench, begun) is None
    assert [name for name in bench.open() if "late" in name]
    bench.commit(reports, 0)
    assert bench.open() == ()


@pytest.mark.parametrize("tv", [1, 2])
@pytest.mark.parametrize("before", [0, 1])
def test_trap_33_an_attempt_that_comes_after_the_end_leaves_nothing_open(tv: int, before: int) -> None:
    """query.stop(): abort is called without a report, and a task of it writes on."""
    bench = Bench(tv)
    if before:
        bench.whole_batch(0)
    begun = bench.begin(before, run=bench.remembered if before else None, completed=before - 1)
    bench.prepare(begun, 1, ["in time"])
    assert bench.abort([None, None], before, begun) is Aborted.CLEARED
    assert bench.open() == ()
    assert late(bench, begun) is not None
    assert bench.open() == ()


@pytest.mark.parametrize("tv", [1, 2])
def test_trap_33_a_commit_that_still_works_cannot_decide_after_the_end(tv: int) -> None:
    """The stream's thread is interrupted while another process commits: that one goes on."""
    bench = Bench(tv)
    begun = bench.begin(0)
    reports = bench.prepare_all(begun)
    ended: list[Aborted] = []

    def end_before_the_decision(command: c.Command[Any]) -> None:
        if decides(command):
            bench.intercept = None
            ended.append(bench.abort([None, None], 0, begun))

    bench.intercept = end_before_the_decision
    with pytest.raises(CommitFault):
        bench.commit(reports, 0)
    assert ended == [Aborted.CLEARED] and bench.open() == ()
    bench.whole_batch(0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


@pytest.mark.parametrize("tv", [1, 2])
def test_an_end_leaves_a_newer_driver_alone(tv: int) -> None:
    bench = Bench(tv)
    old = bench.begin(0)
    bench.prepare(old, 0, ["old"])
    newer = bench.prepare_all(bench.begin(0))
    assert bench.abort([None, None], 0, old) is Aborted.CLEARED
    bench.commit(newer, 0)
    assert bench.broker.visible() == ["q0p0", "q0p1"]


def test_a_look_without_an_answer_fails_nothing() -> None:
    """The rows are written; whether they count is the driver's to say."""
    bench = Bench()
    begun = bench.begin(0)
    bench.intercept = lambda command: c.Unknown("no answer") if isinstance(command, c.Describe) else None
    said = late(bench, begun)
    assert said is not None and "no answer" in said
    assert [name for name in bench.open() if "late" in name]


@pytest.mark.parametrize("tv", [1, 2])
def test_a_batch_is_over_when_nobody_need_end_it_any_more(tv: int) -> None:
    """Decided and finished, or ended: then who watches it for its driver goes away, and not before."""

    def over() -> bool:
        return bench.run(is_over(bench.sink, bench.remembered))

    bench = Bench(tv)
    begun = bench.begin(0)
    assert not over(), "its tasks work, and none has a row yet"
    reports = bench.prepare_all(begun)
    assert not over()
    bench.crash_at(finishes)
    with pytest.raises(Crash):
        bench.commit(reports, 0)
    assert not over(), "decided, and its rows are not visible"
    bench.commit(reports, 0)
    assert over()
    for unclear in (c.Describe, c.ListOngoing, c.FetchStored)[: 3 if tv == 1 else 2]:
        bench.intercept = lambda one, kind=unclear: c.Unknown("away") if isinstance(one, kind) else None
        assert not over(), unclear
    bench.intercept = None

    begun = bench.begin(1, run=bench.remembered, completed=0)
    assert not over()
    bench.abort(bench.prepare_all(begun), 1)
    assert over()
    name = f"sink/{begun.incarnation}/1/late.0"
    held = bench.broker.init(name)
    if not bench.broker.verifies:
        bench.broker.add_partitions(name, held)
    assert bench.broker.produce(name, held, 0, ["late"]) is None and name in bench.open()
    assert not over(), "a task that dies late has opened one"
