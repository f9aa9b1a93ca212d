"""A query without Spark that is measured: its driver's rules, its tasks' client, a cluster.

Tasks run one after the other in this process, or side by side in worker processes that live as long as the
query. Each writes ten rows to each of its partitions, in a transaction of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa

from benchmarks.starts import PARTITIONS, make
from eoslog.client.admin import transactions
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.prepare import judge, participant_name, withdraw_if_late
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.run.runner import Runner
from eoslog.protocol.encode import encode_batches

ROWS, TIMEOUT_MS = 10, 600_000
CLIENT = "simulated-query"
"""The client.id: what is counted is this client's."""


class Took(NamedTuple):
    """Milliseconds of a micro-batch. `commit`: until readers see all of it."""

    begin: float
    tasks: float
    commit: float


class Query:
    """A sink and its driver. `workers` 0: tasks run in this process. A context manager."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        written: int = 1,
        two_phase: TwoPhase = TwoPhase.AUTO,
        workers: int = 0,
    ) -> None:
        make(bootstrap, topic)
        self.config = replace(ClientConfig(parse_addresses(bootstrap)), client_id=CLIENT)
        self.topic, self.written, self.two_phase, self.workers = topic, written, two_phase, workers
        self.sink, self.number, self.last = Sink(topic), 0, None
        self.cluster = Cluster(self.config)
        self.runner = Runner(self.cluster, 60_000)
        self.decision: Decision | None = None
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=spawn) if workers else None

    last: Run | None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        self.cluster.close()

    def begin(self) -> Begun:
        """Make the next batch ready."""
        completed = self.number - 1 if self.number else None
        batch = Batch("q", self.number, str(self.number))
        rules = begin(self.sink, batch, last_run=self.last, completed=completed, two_phase=self.two_phase)
        begun, self.last = self.runner.run(rules)
        return begun

    def tasks(self, begun: Begun, tasks: int) -> list[Prepared]:
        """Run the tasks of a batch, each as soon as a worker is free."""
        work = [(self.config, begun, self.topic, self.written, n) for n in range(tasks)]
        return list(self._pool.map(run_task, work) if self._pool else map(run_task, work))

    def commit(self, reports: Sequence[Prepared]) -> None:
        """Until readers see all of the batch."""
        rules = commit(self.sink, reports, self.number, two_phase=self.two_phase)
        self.decision = self.runner.run(rules)
        assert self.decision is not None
        why = self.runner.run(await_readable(self.decision))
        assert why is None, why
        self.number += 1

    def micro_batch(self, tasks: int, prepared: Callable[[], None] = lambda: None) -> Took:
        """A whole one. `prepared` is called when its tasks are done."""
        started = time.perf_counter()
        begun = self.begin()
        begun_at = time.perf_counter()
        reports = self.tasks(begun, tasks)
        written_at = time.perf_counter()
        prepared()
        committing = time.perf_counter()
        self.commit(reports)
        ms = [begun_at - started, written_at - begun_at, time.perf_counter() - committing]
        return Took(*(1000 * value for value in ms))


def rows_of_a_task() -> list[Any]:
    """Ten rows of 100 bytes as batches."""
    values, now_ms = pa.array([b"x" * 100] * ROWS), int(time.time() * 1000)
    return list(encode_batches(None, values, None, now_ms, codec=0, max_batch_bytes=10_000))


def open_transaction(cluster: Cluster, name: str, topic: str, partitions: Sequence[int]) -> Participant:
    """A transaction with ten rows on each of these partitions, all acknowledged."""
    identity = transactions.init_producer_id(cluster, name, TIMEOUT_MS)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        for partition in partitions:
            for batch in rows_of_a_task():
                producer.send(topic, partition, batch)
        producer.flush()
    return Participant(name, identity)


def run_task(work: tuple[ClientConfig, Begun, str, int, int]) -> Prepared:
    """What a task of the sink does (connector/sink/task_writer.py), but for its rows, which are made here."""
    config, begun, topic, written, number = work
    cluster = shared_cluster(config)
    _, stamp = judge(begun, *begun.batch[:2], number)
    name = participant_name(stamp, f"{os.getpid():016x}", _next_number(begun))
    partitions = [(number + n) % PARTITIONS for n in range(written)]
    who = open_transaction(cluster, name, topic, partitions)
    late = Runner(cluster, TIMEOUT_MS).run(withdraw_if_late(stamp, who))
    assert late is None, late
    return Prepared(stamp, number, who, ROWS * written, tuple((topic, n) for n in partitions))


_used: dict[tuple[str, int], int] = {}
"""(sink, batch) -> transactions that this process has opened."""


def _next_number(begun: Begun) -> int:
    key = (begun.sink_id, begun.batch.batch_id)
    _used[key] = _used.get(key, -1) + 1
    return _used[key]
