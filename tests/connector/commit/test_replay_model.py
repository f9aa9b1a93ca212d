"""The judge of replays: a decided batch loses rows to time-outs, and then anything else goes wrong. Every row
is visible once in the end; where a loss cannot be proven, somebody says so loudly. (`make model-replay`:
deeper.)"""

from collections.abc import Callable
from typing import Any

import pytest

from eoslog.connector.commit import begin, decide, finish
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import ParticipantsLost
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch
from tests.connector.commit.model_bench import Bench
from tests.connector.commit.model_history import Fault, Shape
from tests.connector.commit.replay_histories import explore_losses

LOSSES = (Fault.EXPIRE, Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)
AGAIN = Shape(batches=1, faults=3, kinds=(Fault.EXPIRE,), replays=True)


@pytest.mark.parametrize("tv", [1, 2])
def test_a_loss_and_then_one_fault_at_every_request(tv: int) -> None:
    """Another time-out, a crash, a lost request, a lost answer: in the commit and in the replay."""
    shape = Shape(tv=tv, batches=1, faults=2, kinds=LOSSES, replays=True, late_markers=tv == 1)
    covered = explore_losses(shape)
    print(f"\n{covered}")
    assert set(covered.ends) == {"whole"} and covered.ends.total() > 200


def test_a_loss_and_then_an_old_driver_that_wakes_up_anywhere() -> None:
    covered = explore_losses(
        Shape(batches=1, faults=2, kinds=(Fault.EXPIRE, Fault.SUSPEND), replays=True, tv=1)
    )
    assert set(covered.ends) == {"whole"} and covered.ends.total() > 100


def test_rows_may_be_lost_again_and_again() -> None:
    assert set(explore_losses(AGAIN).ends) == {"whole"}


def test_without_replay_the_same_histories_end_loudly() -> None:
    ends = explore_losses(Shape(batches=1, kinds=(Fault.EXPIRE,))).ends
    assert ends["lost"] == 3, "one or the other before the first commit, the other before the second"


def test_a_query_that_has_lost_its_checkpoint_too_says_so() -> None:
    """A new query with numbers from 0 cannot write the old one's rows again."""
    shape = Shape(batches=1, faults=2, kinds=(Fault.EXPIRE, Fault.WIPE), replays=True)
    assert set(explore_losses(shape).ends) == {"whole", "lost"}


def all_partitions_are_written_again(patch: pytest.MonkeyPatch) -> None:
    def everything(loss: ParticipantsLost, last: Decision, batch: Batch | None) -> tuple[int, ...]:
        return tuple(winner.partition for winner in last.winners)

    patch.setattr(begin, "to_replay", everything)


def unanswered_is_taken_for_lost(patch: pytest.MonkeyPatch) -> None:
    def hasty(last: Decision) -> c.Rules[None]:
        answers = yield c.End(True, last.enders)
        doubtful = tuple(w for w in last.winners if isinstance(answers[w.participant.name], c.Unknown))
        if doubtful:
            raise ParticipantsLost("no answer", doubtful)
        yield from finish.finish(last)

    patch.setattr(begin, "finish_late", hasty)


def lost_rows_are_passed_over(patch: pytest.MonkeyPatch) -> None:
    def nothing(*args: Any) -> c.Rules[None]:
        return
        yield

    patch.setattr(begin, "to_replay", lambda *args: ())
    patch.setattr(decide, "finish", nothing)


def replay_finds_its_batch_decided(patch: pytest.MonkeyPatch) -> None:
    """It is finished, as the batch of any other run, but not decided anew."""
    real = decide.commit

    def commit(sink: Any, reports: Any, *more: Any) -> c.Rules[None]:
        if reports[0] is not None and reports[0].stamp.lost:
            return
        yield from real(sink, reports, *more)

    patch.setattr(decide, "commit", commit)


BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], Shape]] = [
    (all_partitions_are_written_again, AGAIN),
    (unanswered_is_taken_for_lost, Shape(batches=1, faults=2, kinds=LOSSES, replays=True)),
    (lost_rows_are_passed_over, AGAIN),
    (replay_finds_its_batch_decided, AGAIN),
]


@pytest.mark.parametrize(("break_rule", "shape"), BROKEN, ids=[rule.__name__ for rule, _ in BROKEN])
def test_a_broken_rule_of_replay_is_seen(
    break_rule: Callable[[pytest.MonkeyPatch], None], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(AssertionError):
        explore_losses(shape)


def test_a_broken_rule_of_proof_doubles_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A committed transaction whose id was started anew since: its state does not tell of the commit."""
    monkeypatch.setattr(finish, "is_aborted", lambda state, participant: True)
    bench = Bench(on_lost=OnLost.REPLAY)
    bench.whole_batch(0)
    bench.broker.init(next(name for name in bench.broker.transactions if "/" in name))
    bench.whole_batch(0)
    assert sorted(bench.broker.visible()) == ["q0p0", "q0p0", "q0p1"]
