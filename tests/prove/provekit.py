"""A sink without Spark whose batches say what they read, proofs, and copies of its topics, whole or hurt."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner

from eoslog.cli import main
from eoslog.client.admin import transactions
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import Terms, commit
from eoslog.connector.commit.prepare import Task, judge, participant_name
from eoslog.connector.commit.replay import OnLost
from eoslog.connector.commit.task_reports import Batch, Begun, Decided, Empty, Prepared, Report
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.offsets.offsets import to_json
from eoslog.connector.run.runner import Runner
from eoslog.protocol.encode import encode_batches
from tests.connector.brokers import Kafka

PARTITIONS = 3
READ = 10
"""Source rows of each batch."""
Rows = Sequence[tuple[Any, ...]]


class Stream:
    """A query's sink: each task writes so many rows to each of two partitions of each topic. `after_task` is
    called when it has written them. `keyed`: each row has a key, the same ones in each batch."""

    def __init__(self, kafka: Kafka, topics: int = 2, partitions: int = PARTITIONS) -> None:
        self.kafka, self.partitions = kafka, partitions
        self.topics = [kafka.topic(partitions) for _ in range(topics)]
        self.sink, self.query = Sink(f"of-{self.topics[0]}"), "q"
        self.cluster = Cluster(ClientConfig(parse_addresses(kafka.bootstrap)))
        self.began, self.source, self.keyed = 0, kafka.topic(1), False
        self.after_task: Callable[[], None] = lambda: None

    def batches(self, count: int, rows: int = 1) -> None:
        for number in range(count):
            self.batch(number, rows=rows)

    def batch(
        self,
        number: int,
        rows: int = 1,
        *,
        tasks: Sequence[int] | None = None,
        ends: str | None = None,
        after: Callable[[Any], None] = lambda _: None,
        on_lost: OnLost = OnLost.STOP,
    ) -> None:
        """A micro-batch; `after` is called after each request of its commit. `ends`: what it has read.
        `on_lost`: on.lost.transaction."""
        planned = self.ends(number) if ends is None else ends
        does, batch = Runner(self.cluster, 60_000), Batch(self.query, number, f"{self.query}{number}")
        done = number - 1 if number else None
        begun, _ = does.run(begin(self.sink, batch, completed=done, on_lost=on_lost))
        writing = range(self.partitions) if tasks is None else tasks
        reports = [
            self._task(begun, number, task, rows)
            if task in writing
            else Empty(judge(begun, *batch[:2], task)[1], task)
            for task in range(self.partitions)
        ]
        does = Runner(self.cluster, 60_000, after=after)
        does.run(commit(self.sink, reports, number, terms=Terms(ends=planned)))

    def ends(self, number: int, end: int | None = None) -> str:
        """The offset log's file of a batch that reads READ rows."""
        end = self.began + READ * (number + 1) if end is None else end
        began = None if number else {(self.source, 0): self.began}
        text = json.dumps(to_json({(self.source, 0): end}, began=began), separators=(",", ":"))
        return f"v1\n{{}}\n{text}"

    def _task(self, begun: Begun, number: int, task: int, rows: int) -> Report:
        does, stamp = judge(begun, self.query, number, task)
        if does is not Task.WRITE:
            return Decided(stamp, task, 2 * rows * len(self.topics))
        if not rows:
            return Empty(stamp, task)
        name = participant_name(stamp, f"w{task}", 0)
        identity, written = self.write(name, number, task, rows)
        self.after_task()
        return Prepared(stamp, task, Participant(name, identity), 2 * rows * len(self.topics), *written)

    def write(self, name: str, number: int, task: int, rows: int) -> tuple[Any, Any]:
        """Rows of a transaction that stays open: its identity, and what a task reports of them."""
        identity = transactions.init_producer_id(self.cluster, name, 60_000)
        now_ms = int(time.time() * 1000)
        keyed = [self.keyed or (task + row) % 3 != 0 for row in range(rows)]
        keys = [b"key %d" % row if has else None for row, has in enumerate(keyed)]
        with Producer(self.cluster, identity=identity, transactional_id=name) as producer:
            for topic, partition in self.places_of(task):
                said = f"{self.query} batch {number} task {task} row"
                values = pa.array([f"{said} {row}".encode() for row in range(rows)])
                given = (pa.array(keys, pa.binary()), values, None, now_ms)
                for batch in encode_batches(*given, codec=0, max_batch_bytes=100_000):
                    producer.send(topic, partition, batch)
            producer.flush()
            where = tuple(sorted(producer.partitions))
            ids = tuple(sorted(producer.topic_ids.items()))
            last = tuple(producer.last_rows.get(one, (-1, -1)) for one in where)
            first = tuple(producer.first_rows.get(one, -1) for one in where)
        return identity, (where, None, ids, 0, last, first)

    def places_of(self, task: int) -> list[tuple[str, int]]:
        return [(topic, p) for topic in self.topics for p in (task, (task + 1) % self.partitions)]

    def stray(self, number: int, task: int, *, commits: bool = True) -> None:
        """A transaction under a name of the sink's that no decision has."""
        name = f"{self.sink.prefix}7.0/0/stray{number}.{task}"
        identity, _ = self.write(name, number, task, 1)
        transactions.end_txn(self.cluster, name, identity, commits)


@contextmanager
def stream(kafka: Kafka, topics: int = 2, partitions: int = PARTITIONS) -> Iterator[Stream]:
    made = Stream(kafka, topics, partitions)
    with made.cluster:
        yield made


def run(bootstrap: str, *arguments: str) -> tuple[int, Any]:
    """Exit status, and the report; a text if there is none."""
    given = ["prove", "--bootstrap-server", bootstrap, "--timeout", "20", "--json", *arguments]
    done = CliRunner().invoke(main, given)
    try:
        return done.exit_code, json.loads(done.stdout)
    except ValueError:
        return done.exit_code, done.output


def prove(made: Stream, file: Path, *more: str) -> tuple[int, Any]:
    file.unlink(missing_ok=True)
    return run(made.kafka.bootstrap, made.sink.id, "--out", str(file), *more)


def check(kafka: Kafka, file: Path, copies: Mapping[str, str] | None = None, *more: str) -> tuple[int, Any]:
    named = [f"--topic={topic}={copy}" for topic, copy in (copies or {}).items()]
    return run(kafka.bootstrap, "--check", str(file), *named, *more)


def entries(file: Path, kind: str) -> list[Any]:
    return [one for one in map(json.loads, file.read_text().splitlines()) if one["kind"] == kind]


# -- copies ----------------------------------------------------------------------------------------

Hurt = Callable[[list[list[Any]]], None]
"""Changes the rows of a copy's partitions, each (key, value, time, headers)."""


def mirrored(made: Stream, kafka: Kafka, hurt: Hurt = lambda _: None) -> dict[str, str]:
    """Copies of the topics as a mirror makes them: without transactions, under names of their own. The first
    one is hurt."""
    names = {}
    for topic in made.topics:
        parts: list[list[Any]] = [[] for _ in range(made.partitions)]
        for partition, _, key, value, _, at, headers in made.kafka.rows(topic, made.partitions):
            parts[partition].append([key, value, at, headers])
        if topic == made.topics[0]:
            hurt(parts)
        names[topic] = kafka.topic(made.partitions)
        put_all(kafka, names[topic], [(number, *row) for number, part in enumerate(parts) for row in part])
    return names


def put_all(kafka: Kafka, topic: str, rows: Rows) -> None:
    """Rows of (partition, key, value, ..., time, headers), without transactions."""
    producer = kafka.producer(acks="all", linger_ms=100, queue_buffering_max_messages=1_000_000)
    for partition, key, value, *_, at, headers in rows:
        producer.produce(topic, value, key, partition, timestamp=at, headers=headers)
        producer.poll(0)
    assert producer.flush(60) == 0
