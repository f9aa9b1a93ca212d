"""`make bench-participants`: what begin and commit take for a micro-batch of many tasks, and after a kill.

Without Spark: the driver's rules and the tasks' client alone, each task a transaction of ten rows, on the
bundled broker, on one Apache Kafka node and on three. Of each number of participants: begin and commit of a
running query (the third batch and later; commit until readers see all of it), how long a reader sees a part
of the batch only, the begin of a new driver after a kill before the decision (it aborts what is open) and
right after it (it commits what is decided), and what is left in the cluster: transactional ids and groups.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.many_tasks import DECISIONS
from benchmarks.peers import ApacheKafka, ThreeNodes
from benchmarks.starts import make
from eoslog.client.admin import transaction_states, transactions
from eoslog.client.admin.groups import list_groups
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.commands import Command, End
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.finish import await_readable
from eoslog.connector.commit.prepare import judge, participant_name
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Run
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.run.runner import Runner
from eoslog.protocol.encode import encode_batches
from eoslog.testing import EmbeddedBroker

ROWS, PARTITIONS, TIMEOUT_MS = 10, 4, 600_000
WARM_UP, MEASURED = 2, 3
"""Micro-batches: each name is used in every second one, so in the third all coordinators are known."""


class Took(NamedTuple):
    """Milliseconds, and what is left."""

    begin: float
    commit: float
    in_part: float
    undecided: float
    decided: float
    ids: int
    groups: int


class Killed(BaseException):
    """The driver has died."""


class Query:
    """A sink and its driver, which may be killed."""

    def __init__(self, bootstrap: str, topic: str, participants: int) -> None:
        self.topic, self.participants = topic, participants
        self.config = ClientConfig(parse_addresses(bootstrap))
        self.sink, self.number = Sink(topic), 0
        self.last: Run | None = None
        self.tasks = Cluster(self.config)
        self.start()

    def start(self) -> None:
        """A new driver, which remembers nothing."""
        self.cluster, self.last = Cluster(self.config), None
        self.runner = Runner(self.cluster, 60_000)

    def begin(self) -> tuple[Begun, float]:
        """The next batch; a new driver replays the last one of the one before, as Spark does."""
        completed = self.number - 1 if self.number else None
        batch = Batch("q", self.number, str(self.number))
        started = time.perf_counter()
        begun, self.last = self.runner.run(begin(self.sink, batch, last_run=self.last, completed=completed))
        return begun, _ms(started)

    def prepare(self, begun: Begun) -> list[Prepared]:
        """What the tasks do."""
        assert begun.batch is not None
        values, now_ms = pa.array([b"x" * 100] * ROWS), int(time.time() * 1000)
        rows = list(encode_batches(None, values, None, now_ms, codec=0, max_batch_bytes=10_000))
        return [self._task(begun, number, rows) for number in range(self.participants)]

    def _task(self, begun: Begun, number: int, rows: list[Any]) -> Prepared:
        _, stamp = judge(begun, *begun.batch[:2], number)
        name, place = participant_name(stamp, f"w{number}", 0), (self.topic, number % PARTITIONS)
        identity = transactions.init_producer_id(self.tasks, name, TIMEOUT_MS)
        with Producer(self.tasks, identity=identity, transactional_id=name) as producer:
            for batch in rows:
                producer.send(*place, batch)
            producer.flush()
        who = Participant(name, identity)
        return Prepared(stamp, number, who, ROWS, (place,))

    def commit(self, reports: list[Prepared], runner: Runner | None = None) -> float:
        """Until readers see all of it."""
        started = time.perf_counter()
        run = runner or self.runner
        last = run.run(commit(self.sink, reports, self.number))
        assert last is not None
        assert run.run(await_readable(last)) is None, "markers have not come"
        self.number += 1
        return _ms(started)

    def die_behind_the_decision(self, reports: list[Prepared]) -> None:
        """The decision is made, and nobody carries it out."""

        def dies(command: Command[Any]) -> None:
            if isinstance(command, End) and command.participants[0].name == self.sink.coordinator:
                raise Killed

        try:
            self.commit(reports, Runner(self.cluster, 60_000, after=dies))
        except Killed:
            return
        raise AssertionError("it was not killed")


def _ms(since: float) -> float:
    return (time.perf_counter() - since) * 1000


@contextmanager
def watched(bootstrap: str, topic: str) -> Iterator[list[float]]:
    """How long, in ms, the end that readers of committed rows see was on its way: the last value."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_watch, args=(bootstrap, topic, there))
    process.start()
    assert here.recv() == "ready"
    told: list[float] = []
    yield told
    here.send("over")
    told.append(here.recv())
    process.join()


def _watch(bootstrap: str, topic: str, pipe: Pipe) -> None:
    config = ClientConfig(parse_addresses(bootstrap))
    places = dict.fromkeys([(topic, number) for number in range(PARTITIONS)], LATEST)
    with Cluster(config) as cluster:
        first = seen = list_offsets(cluster, places, committed=True)
        moved, last = None, 0.0
        pipe.send("ready")
        while not pipe.poll():
            now = list_offsets(cluster, places, committed=True)
            if now != seen:
                last = time.perf_counter()
                moved, seen = moved or last, now
    assert moved is not None and seen != first, "nothing became visible"
    pipe.send((last - moved) * 1000)


def measure(bootstrap: str, participants: int) -> Took:
    """A query of its own."""
    topic = f"many-{participants}"
    make(bootstrap, topic)
    query = Query(bootstrap, topic, participants)
    begins, commits, parts = [], [], []
    for _ in range(WARM_UP + MEASURED):
        begun, took = query.begin()
        begins.append(took)
        commits.append(query.commit(query.prepare(begun)))
    for _ in range(MEASURED):  # who watches takes CPU, so these commits are not timed
        reports = query.prepare(query.begin()[0])
        with watched(bootstrap, topic) as told:
            query.commit(reports)
        parts += told
    query.prepare(query.begin()[0])
    query.start()
    begun, undecided = query.begin()
    reports = query.prepare(begun)
    query.die_behind_the_decision(reports)
    query.start()
    decided = query.begin()[1]
    left = transaction_states.list_transactions(query.cluster, query.sink.coordinator)
    groups = [one for one in list_groups(query.cluster) if one.group.startswith(query.sink.group)]
    middle = [statistics.median(values) for values in (begins[WARM_UP:], commits[WARM_UP:], parts)]
    return Took(middle[0], middle[1], middle[2], undecided, decided, len(left), len(groups))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--participants", type=int, nargs="+", default=[10, 100, 1000, 4000])
    parser.add_argument("--kafka", type=Path, default=Path(".peers/kafka-4.3.1"))
    given = parser.parse_args()
    with ExitStack() as stack:
        subjects = {
            "bundled broker": stack.enter_context(EmbeddedBroker(config=DECISIONS)).bootstrap,
            "Apache Kafka": stack.enter_context(ApacheKafka(given.kafka, DECISIONS)).bootstrap,
            "Apache Kafka, three nodes": stack.enter_context(ThreeNodes(given.kafka, DECISIONS)).bootstrap,
        }
        print(
            "| participants | on | begin, ms | commit, ms | a participant | seen in part, ms "
            "| begin after a kill before the decision, ms | after it, ms | transactional ids | groups |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for participants in given.participants:
            for name, bootstrap in subjects.items():
                found = measure(bootstrap, participants)
                each = f"{found.commit / participants:.2f}"
                figures = [f"{value:,.0f}" for value in found]
                row = (f"{participants:,}", name, *figures[:2], each, *figures[2:])
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
