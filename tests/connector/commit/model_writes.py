"""Batch writes in the model: a query that writes each of its batches under a token, as `foreachBatch` does,
and one write that has no name. What a history must have come to, for either."""

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from eoslog.connector.commit import begin as begin_rules
from eoslog.connector.commit import decide as decide_rules
from eoslog.connector.commit import seal, token_write
from eoslog.connector.commit.abandon import Ended, end_run, run_of
from eoslog.connector.commit.faults import CommitFault, TokenForgotten, TokenReused
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Prepared, Report
from eoslog.connector.commit.transactional_ids import Sink
from tests.connector.commit.model_history import Choices, Fault, Shape
from tests.connector.commit.model_programs import Ledger, Process, Spawn, Steps, TaskFailed
from tests.connector.commit.model_spark import Simulation


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
