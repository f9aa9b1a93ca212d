"""A query without Spark that is measured: its driver's rules, its tasks' client, a cluster; and what is
counted there.

Tasks run one after the other in this process, or side by side in worker processes that live as long as the
query. Each writes ten rows to each of its partitions, in a transaction of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import pyarrow as pa

from benchmarks.simulation.model import BEGIN, COMMIT, TASKS
from benchmarks.starts import PARTITIONS, make
from eoslog.client.admin import transactions
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import FetchStored, demand
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.decision import Decision
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.prepare import judge, participant_name, withdraw_if_late
from eoslog.connector.commit.seal import TwoPhase
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.run.runner import Runner
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import BatchHeader, iter_headers
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.typed import FETCH

if TYPE_CHECKING:
    from eoslog.protocol.typed import FetchRequestDraft


# -- a query ---------------------------------------------------------------------------------------

ROWS, TIMEOUT_MS, COORDINATOR_TIMEOUT_MS = 10, 600_000, 60_000
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
        self.sink, self.number = Sink(topic), 0
        self.decision: Decision | None = None
        self.start()
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(workers, mp_context=spawn) if workers else None

    def start(self) -> None:
        """A new driver, which remembers nothing."""
        self.last: Run | None = None
        self.cluster = Cluster(self.config)
        self.runner = Runner(self.cluster, COORDINATOR_TIMEOUT_MS)

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
    name = participant_name(stamp, f"{os.getpid():016x}", _next_number(config, begun))
    partitions = [(number + n) % PARTITIONS for n in range(written)]
    who = open_transaction(cluster, name, topic, partitions)
    late = Runner(cluster, TIMEOUT_MS).run(withdraw_if_late(stamp, who))
    assert late is None, late
    return Prepared(stamp, number, who, ROWS * written, tuple((topic, n) for n in partitions))


_used: dict[tuple[ClientConfig, str, int], int] = {}
"""(cluster, sink, batch) -> transactions that this process has opened."""


def _next_number(config: ClientConfig, begun: Begun) -> int:
    key = (config, begun.sink_id, begun.batch.batch_id)
    _used[key] = _used.get(key, -1) + 1
    return _used[key]


# -- what a batch has sent and written -------------------------------------------------------------

STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
Seen = Callable[[], Mapping[str, int]]
"""Requests of each API that the query's client has sent so far."""
_SETTLED_SECONDS = 10.0


class Counted(NamedTuple):
    """What a micro-batch asked for and what was written. `chunks`: of its decision."""

    requests: dict[str, dict[str, int]]
    state_records: int
    offset_records: int
    markers: int
    chunks: int


def counted(query: Query, tasks: int, seen: Seen) -> Counted:
    """Run the query's next batch."""
    with Cluster(replace(query.config, client_id="counts")) as other:
        before = {topic: settled(other, topic) for topic in (STATE, OFFSETS, query.topic)}
        requests, counts = {}, [Counter(seen())]
        begun = query.begin()
        counts.append(Counter(seen()))
        reports = query.tasks(begun, tasks)
        counts.append(Counter(seen()))
        query.commit(reports)
        counts.append(Counter(seen()))
        for phase, was, now in zip((BEGIN, TASKS, COMMIT), counts[:-1], counts[1:], strict=True):
            requests[phase] = dict(now - was)
        wrote = {topic: settled(other, topic) - end for topic, end in before.items()}
    stored = query.runner.run(demand(FetchStored(query.sink.group), "the decision"))
    newest = max(offset for offset, _ in stored.chunks.values())
    chunks = sum(offset == newest for offset, _ in stored.chunks.values())
    rows = sum(report.rows for report in reports)
    return Counted(requests, wrote[STATE], wrote[OFFSETS], wrote[query.topic] - rows, chunks)


def settled(cluster: Cluster, topic: str) -> int:
    """Records that the topic has had, when no more come. Raises TimeoutError."""
    cluster.forget_topic(topic)
    places = {(topic, partition): LATEST for partition in cluster.topic(topic).leaders}
    until, last = time.monotonic() + _SETTLED_SECONDS, -1
    while time.monotonic() < until:
        now = sum(list_offsets(cluster, places, committed=False).values())
        if now == last and now == sum(list_offsets(cluster, places, committed=True).values()):
            return now
        last = now
        time.sleep(0.1)
    raise TimeoutError(f"{topic} still grows after {_SETTLED_SECONDS} s")


# -- what readers have seen ------------------------------------------------------------------------

_BY_NAME = 12
_MOST_BYTES = 50 << 20


def ends(cluster: Cluster, topic: str) -> dict[int, int]:
    """Where each partition ends, when all transactions on it are over."""
    settled(cluster, topic)
    places = {(topic, n): LATEST for n in range(PARTITIONS)}
    return {n: end for (_, n), end in list_offsets(cluster, places, committed=False).items()}


def in_part_ms(cluster: Cluster, topic: str, since: dict[int, int]) -> float:
    """Of the transactions behind these offsets. A partition's readers see nothing before the end of the
    transaction that wrote to it first."""
    until = ends(cluster, topic)
    shown, last = [], 0
    for partition, start in since.items():
        if until[partition] == start:
            continue
        headers = list(_headers(cluster, topic, partition, start, until[partition]))
        markers = {h.producer_id: h.max_timestamp for h in headers if h.is_control}
        shown.append(markers[headers[0].producer_id])
        last = max(last, *markers.values())
    return float(last - min(shown))


def _headers(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> Iterable[BatchHeader]:
    while start < end:
        body: FetchRequestDraft = {
            "replica_id": -1,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": _MOST_BYTES,
            "isolation_level": 0,
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": partition, "fetch_offset": start, "partition_max_bytes": _MOST_BYTES}
                    ],
                }
            ],
        }
        connection = cluster.leader(topic, partition)
        version = connection.pick(ApiKey.FETCH, max_version=_BY_NAME)
        found = connection.call(FETCH, body, version=version)["responses"][0]["partitions"][0]
        assert not found["error_code"], found["error_code"]
        for _, header in iter_headers(found["records"] or b""):
            if header.base_offset >= start:
                yield header
                start = header.next_offset
