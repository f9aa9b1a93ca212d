"""The commit protocol on the model: any fault at any request, streams, batch writes, lost rows written
again.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eoslog.connector.commit import begin, decide, decision, finish, prepare, seal, token_write, write_token
from eoslog.connector.commit import begin as begin_rules
from eoslog.connector.commit import commands as c
from eoslog.connector.commit import decide as decide_rules
from eoslog.connector.commit.abandon import Ended, end_run, run_of
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.faults import CommitFault, ParticipantsLost, TokenForgotten, TokenReused
from eoslog.connector.commit.finish import COMMITTED
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.commit.write_token import RememberedTokens
from tests.connector.commit.model_bench import Bench
from tests.connector.commit.model_history import (
    BY_ITSELF,
    LOSSES,
    STRIKES,
    Case,
    Choices,
    Fault,
    Shape,
    names,
    suite,
)
from tests.connector.commit.model_judge import explore, judge
from tests.connector.commit.model_programs import Ledger, Process, Request, Spawn, Steps, TaskFailed
from tests.connector.commit.model_spark import Coverage, Simulation

# -- streams -------------------------------------------------------------------------------------
# The judge of the commit protocol: whatever is killed, lost, repeated, late, hung or timed out, the readers
# of the model cluster see every row once, or somebody says loudly that it is not so.
#
# `pytest -s` prints what each shape of histories covers, and which fault struck at which request.

SUITE = suite()


@cache
def covered(shape: Shape) -> Coverage:
    return explore(shape)


@pytest.mark.parametrize("case", SUITE, ids=names(SUITE))
def test_every_history(case: Case) -> None:
    """Two tasks, up to three batches: a fault, or two, at each request in turn."""
    found = covered(case.shape)
    print(f"\n{case.name}: {found}")
    assert set(found.ends) == case.ends
    assert found.ends.total() > 20


def test_what_is_lost_is_lost_to_a_time_out_after_the_decision() -> None:
    """Between the decision and the last winner's commit, and only there: seven places in each batch, two of
    them around a request that nobody waits for."""
    for case in SUITE:
        if case.name.startswith("3 batches, one strike") and not case.shape.keeps:
            assert covered(case.shape).ends["lost"] == 21, case.name


def test_every_request_of_every_step_was_hit_by_every_fault() -> None:
    """Requests that are made after another fault only, too: those of recovery and of giving up."""
    whole, forgetting = Coverage(), Coverage()
    for case in SUITE:
        repairs_follow = Fault.FORGET in case.shape.kinds or not case.shape.verifies
        (forgetting if repairs_follow else whole).merge(covered(case.shape))
    print(f"\nin all: {whole}\n{whole.table()}")
    kinds = [kind for kind in STRIKES if kind is not Fault.EXPIRE]  # that needs an open transaction
    # Made only after two faults: abort takes over what is sealed; a commit without an answer,
    # timed out as well, looks for what is held open. `make model` strikes there.
    deeper = {"abort: InitProducerId(keep) of a participant", "commit: DescribeProducers of the sink"}
    assert deeper <= whole.labels
    missing = [place for place in whole.missing(kinds) if place[0] not in deeper]
    # A second look after an end is two faults deep: shapes of END with others have it.
    # So is what a query asks that was handed over.
    two_deep = ("abort again", "begin: OffsetFetch of the user's group")
    assert [place for place in missing if not place[0].startswith(two_deep)] == []
    assert len(whole.labels) > 25
    # What is asked only where markers are lost: killed there, too.
    repairs = {label for label in forgetting.labels if label.startswith("prove")}
    assert {"begin: WriteTxnMarkers", "prove: WriteTxnMarkers"} <= forgetting.labels
    assert not repairs & {label for label, _ in forgetting.missing([Fault.KILL])}


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    tells_holder=st.booleans(),
    last_epoch=st.sampled_from([4, 32_766]),
    twice=st.booleans(),
)
def test_large_histories_of_sealed_batches_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, tells_holder: bool, last_epoch: int, twice: bool
) -> None:
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=BY_ITSELF, spread=True, keeps=True,
        late_markers=late_markers, tells_holder=tells_holder, last_epoch=last_epoch, twice=twice,
    )  # fmt: skip
    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(
    seed=st.integers(0, 2**32),
    tv=st.sampled_from([1, 2]),
    faults=st.integers(1, 8),
    late_markers=st.booleans(),
    last_epoch=st.sampled_from([3, 32_766]),
    twice=st.booleans(),
)
def test_large_histories_at_random(
    seed: int, tv: int, faults: int, late_markers: bool, last_epoch: int, twice: bool
) -> None:
    """Four batches of three partitions with speculative attempts, zombie tasks, and any mix of faults."""
    shape = Shape(
        tv=tv, batches=4, partitions=3, faults=faults, kinds=BY_ITSELF, spread=True, twice=twice,
        late_markers=late_markers, last_epoch=last_epoch, empty=frozenset({(1, 2)}),
    )  # fmt: skip

    judge(Simulation(shape, Choices(fallback=mostly_zero(seed))).run())


@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 2**32), tv=st.sampled_from([1, 2]))
def test_without_faults_nobody_stops(seed: int, tv: int) -> None:
    """Whichever planner process begins a batch, and whatever late attempts do."""
    shape = Shape(tv=tv, batches=6, partitions=3, faults=0, spread=True, late_markers=True)
    done = Simulation(shape, Choices(fallback=mostly_zero(seed))).run()
    assert judge(done) == "whole" and done.restarts == 1 and not done.faults


def mostly_zero(seed: int) -> Callable[[int], int]:
    dice = Random(seed)
    return lambda options: dice.randrange(options) if dice.random() < 0.2 else 0


# -- batch writes --------------------------------------------------------------------------------
# Batch writes in the model: a query that writes each of its batches under a token, as `foreachBatch` does,
# and one write that has no name. What a history must have come to, for either.


def end_of(sink: Sink, reports: Sequence[Report | None], begun: Begun) -> Steps[Ended]:
    """What abort does, as committer.py has it."""
    run = run_of(reports, begun)
    assert run is not None
    return (yield from end_run(sink, run))


class Writes(Simulation):
    """Each batch is a write under `job-<batch>`. A lost checkpoint is created again and reads the source from
    its beginning: the same tokens come again, with the same rows."""

    begins_anew_at = 0

    @property
    def refused(self) -> bool:
        """Each start stops at the same token: it wants another one."""
        last = self.faults[-2:]
        return len(last) == 2 and all(isinstance(fault, (TokenReused, TokenForgotten)) for fault in last)

    def _over(self) -> bool:
        return super()._over() or self.refused

    def _wipe(self) -> None:
        self.ledger = Ledger(self.ledger.query + 1, self.begins_anew_at)

    def _batch(self, process: Process, mine: Ledger, batch: Batch) -> Steps[None]:
        token = f"job-{batch.batch_id}"
        begun = None
        reports: list[Report | None] = [None] * self.shape.partitions
        process.reports = {}
        try:
            begun = yield from self._begin_write(process, token)
            reports = yield Spawn(begun, begun.batch, mine.first + batch.batch_id)
            for _ in range(2 if self.shape.twice else 1):
                rules = decide_rules.commit(
                    self.sink,
                    reports,
                    begun.batch.batch_id,
                    two_phase=self.two_phase,
                    terms=decide_rules.Terms(token),
                )
                done = yield from self._client("commit", rules)
            if done is not None:
                yield from self._client("note", token_write.note_finished(self.sink, done))
        except (CommitFault, TaskFailed):
            if begun is not None:
                yield from self._abort_write(process, begun, reports)
            raise

    def _begin_write(self, process: Process, token: str) -> Steps[Begun]:
        planner = str(self.choices.pick(2)) if self.shape.spread else "0"  # each remembers for itself
        rules = token_write.begin_write(
            self.sink,
            token,
            last_run=process.memory.pop(planner, None),
            two_phase=self.two_phase,
            on_lost=OnLost.REPLAY if self.shape.replays else OnLost.STOP,
        )
        begun, process.memory[planner] = yield from self._client("begin", rules)
        if self.calm:
            assert not self.broker.ongoing(self.sink.prefix), "begin leaves readers held back"
        return begun

    def _abort_write(self, process: Process, begun: Begun, reports: list[Report | None]) -> Steps[None]:
        if reports[0] is None:
            reports = [process.reports.get(p) for p in range(self.shape.partitions)]
        rules = end_of(self.sink, reports, begun)
        yield from self._client("abort", rules)

    def _task(self, spawn: Spawn, partition: int, worker: int) -> Generator[Any, Any, Report]:
        report = yield from super()._task(spawn, partition, worker)
        if isinstance(report, (Prepared, Decided)):
            text = "".join(self.rows(spawn.slice, partition))
            return replace(report, checksum=crc32(text.encode()))
        return report


class WritesOfOthers(Writes):
    """The checkpoint that is created again reads from one slice later on: other rows under each token."""

    begins_anew_at = 1


class Anonymous(Simulation):
    """One write without a name: who dies is not started again."""

    def __init__(self, shape: Shape, choices: Choices) -> None:
        super().__init__(replace(shape, batches=1), choices)
        self.two_phase = seal.of_write(self.two_phase, named=False)
        self.sink = Sink("5c1d0000-0000-4000-8000-000000000000")

    def _over(self) -> bool:
        return self.restarts == 1

    def run(self) -> "Anonymous":
        """And what may time out does."""
        super().run()
        for name in self.broker.mortal(""):
            self.broker.expire(name)
        return self

    def _batch(self, process: Process, mine: Ledger, batch: Batch) -> Steps[None]:
        batch = Batch(self.sink.id, 0)
        begun = None
        reports: list[Report | None] = [None] * self.shape.partitions
        try:
            rules = begin_rules.begin(self.sink, batch, two_phase=self.two_phase)
            begun, _ = yield from self._client("begin", rules)
            reports = yield Spawn(begun, batch, 0)
            yield from self._client(
                "commit", decide_rules.commit(self.sink, reports, 0, two_phase=self.two_phase)
            )
        except (CommitFault, TaskFailed):
            if begun is not None:
                yield from self._client("abort", end_of(self.sink, reports, begun))
            raise


def judge_writes(done: Simulation) -> str:
    """Each write is there once; or somebody says loudly that it is not."""
    visible, wanted = done.broker.visible(), done.all_rows()
    assert set(visible) <= set(wanted), "rows that nobody wrote"
    assert len(set(visible)) == len(visible), "doubled"
    covered = [row for row in wanted if int(row.split("/")[0]) >= done.ledger.first]
    missing = set(covered) - set(visible)
    if isinstance(done, Anonymous):
        assert not done.broker.ongoing(""), "open for ever"
        if done.ledger.completed:
            assert not missing, "lost silently"
        return "whole" if not missing else "in part" if visible else "failed"
    assert isinstance(done, Writes)
    if done.lost:
        assert Fault.EXPIRE in done.used and missing, "loud without need"
        return "lost"
    if set(done.used) <= {Fault.HANG}:
        assert not done.broker.ongoing(done.sink.prefix), "an attempt that came late holds readers back"
    if done.refused:
        assert Fault.WIPE in done.used, "a token is refused without need"
        return "refused"
    assert not missing, "lost silently"
    return "whole"


ANEW = (Fault.WIPE,)
Break = Callable[[pytest.MonkeyPatch], None]


def ends(shape: Shape, kind: type[Simulation]) -> set[str]:
    found = explore(shape, kind, judge_writes)
    print(f"\n{kind.__name__}: {found}")
    assert found.ends.total() > 20
    return set(found.ends)


@pytest.mark.parametrize("late", [False, True], ids=["", "late markers"])
@pytest.mark.parametrize("keeps", [None, True], ids=["", "sealed"])
@pytest.mark.parametrize("tv", [1, 2])
def test_every_write_with_a_token_is_there_once(tv: int, keeps: bool | None, late: bool) -> None:
    shape = Shape(tv=tv, batches=3, kinds=STRIKES, keeps=keeps, late_markers=late)
    assert ends(shape, Writes) == ({"whole"} if keeps else {"whole", "lost"})


@pytest.mark.parametrize("tv", [1, 2])
def test_drivers_and_tasks_that_hang_and_a_commit_called_twice(tv: int) -> None:
    other = Shape(tv=tv, keeps=tv == 1 or None, late_markers=tv == 2)
    assert ends(Shape(**{**other.__dict__, "kinds": (Fault.SUSPEND,)}), Writes) == {"whole"}
    assert ends(Shape(**{**other.__dict__, "kinds": (Fault.HANG,)}), Writes) == {"whole"}
    assert ends(Shape(**{**other.__dict__, "kinds": LOSSES, "twice": True}), Writes) == {"whole"}


@pytest.mark.parametrize("tv", [1, 2])
def test_the_checkpoint_is_made_anew(tv: int) -> None:
    """The same rows pass; others are said, unless the token was not decided before."""
    assert ends(Shape(tv=tv, batches=3, kinds=ANEW, keeps=tv == 2 or None), Writes) == {"whole"}
    shape = Shape(tv=tv, batches=3, kinds=ANEW, keeps=tv == 1 or None)
    assert "refused" in ends(shape, WritesOfOthers)


def test_a_token_that_is_forgotten_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_token, "KEPT_TOKENS", 1)
    assert ends(Shape(batches=3, kinds=ANEW), Writes) == {"whole", "refused"}


@pytest.mark.parametrize("keeps", [None, False, True])
@pytest.mark.parametrize("tv", [1, 2])
def test_a_write_without_a_name_leaves_nothing_open(tv: int, keeps: bool | None) -> None:
    """Nor rows in part, but for a death between its decision and its last commit."""
    assert ends(Shape(tv=tv, kinds=STRIKES, keeps=keeps), Anonymous) == {"whole", "failed", "in part"}


def not_remembered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RememberedTokens, "get", lambda self, token: None)


def floor_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_token, "KEPT_TOKENS", 1)
    patch.setattr(RememberedTokens, "forgot", lambda self, token: False)


def contents_not_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decide, "_check_content", lambda *told: None)


def no_roll_forward(patch: pytest.MonkeyPatch) -> None:
    def nothing(last: Any) -> c.Rules[None]:
        return
        yield

    patch.setattr(begin, "finish_late", nothing)


def parity_ignored(patch: pytest.MonkeyPatch) -> None:
    for module in (prepare, decision, decide):
        patch.setattr(module, "parity", lambda batch_id: 0)


def sealed_without_a_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seal, "of_write", lambda policy, named: policy)


BROKEN: list[tuple[Break, type[Simulation], Shape]] = [
    (not_remembered, Writes, Shape(batches=3, kinds=ANEW)),
    (floor_not_looked_at, Writes, Shape(batches=3, kinds=ANEW)),
    (contents_not_compared, WritesOfOthers, Shape(batches=3, kinds=ANEW)),
    (no_roll_forward, Writes, Shape(kinds=LOSSES)),
    (parity_ignored, Writes, Shape(kinds=LOSSES)),
    (sealed_without_a_name, Anonymous, Shape(kinds=LOSSES, keeps=True)),
]


@pytest.mark.parametrize(("break_rule", "kind", "shape"), BROKEN, ids=[rule.__name__ for rule, *_ in BROKEN])
def test_a_broken_rule_is_seen(
    break_rule: Break, kind: type[Simulation], shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_rule(monkeypatch)
    with pytest.raises(AssertionError):
        explore(shape, kind, judge_writes)


# -- lost rows -----------------------------------------------------------------------------------
# Histories in which a decided batch loses rows first, and anything may happen after that.


class LossFirst(Simulation):
    """The first fault is a time-out as a commit goes on after its decision; the others strike anywhere."""

    def _possible(self, kind: Fault, process: Process, request: Request) -> bool:
        if not self.used:
            own = self.broker.transactions.get(self.sink.coordinator)
            decided = own is not None and own.state in COMMITTED and process.partition is None
            if kind is not Fault.EXPIRE or not decided or not request.label.startswith("commit: EndTxn"):
                return False
        return super()._possible(kind, process, request)


def explore_losses(shape: Shape) -> Coverage:
    """Every history of this shape that begins with a loss."""
    return explore(shape, LossFirst)


LOST_ROWS = (Fault.EXPIRE, Fault.KILL, Fault.TIMEOUT_LOST, Fault.TIMEOUT_DONE)
AGAIN = Shape(batches=1, faults=3, kinds=(Fault.EXPIRE,), replays=True)


@pytest.mark.parametrize("tv", [1, 2])
def test_a_loss_and_then_one_fault_at_every_request(tv: int) -> None:
    """Another time-out, a crash, a lost request, a lost answer: in the commit and in the replay."""
    shape = Shape(tv=tv, batches=1, faults=2, kinds=LOST_ROWS, replays=True, late_markers=tv == 1)
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


REPLAY_BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], Shape]] = [
    (all_partitions_are_written_again, AGAIN),
    (unanswered_is_taken_for_lost, Shape(batches=1, faults=2, kinds=LOST_ROWS, replays=True)),
    (lost_rows_are_passed_over, AGAIN),
    (replay_finds_its_batch_decided, AGAIN),
]


@pytest.mark.parametrize(
    ("break_rule", "shape"), REPLAY_BROKEN, ids=[rule.__name__ for rule, _ in REPLAY_BROKEN]
)
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
