"""Batches that do not replay equally, two queries of one sink, topics that change in mid-batch."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.crashes.crash_query import ROWS, Crash, Query, Running, rows_of_run, run, start
from tests.connector.spark_application import PATIENCE_SECONDS

# -- two queries of one sink ---------------------------------------------------------------------
# One transactional.id for two queries, which their user has said is meant (start.accepted): the one that
# began last owns the sink, the other stops and says so, and whoever comes back later neither doubles nor
# loses a row.


def anew(*queries: str) -> str:
    """start.accepted of who begins anew, whatever these queries have decided last in the sink."""
    return ",".join(f"new-checkpoint:{query}:{number}" for query in queries for number in range(20))


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.parametrize(
    "at", ["all tasks prepared", "decided, no winner finished", "all finished, not logged"]
)
def test_another_query_runs_between_a_crash_and_the_restart(
    broker: EmbeddedBroker, tmp_path: Path, at: str
) -> None:
    """The decision of the killed query is no longer the sink's last one when it is replayed."""
    kafka = Kafka(broker.bootstrap)
    topic = kafka.topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "transactional.id": f"sink-{topic}",
    }
    one = Query(tmp_path / "one", options)
    assert run(one, Crash(at)) == "killed"
    known = json.loads((one.checkpoint / "metadata").read_text())["id"]
    meant = options | {"start.accepted": anew(known)}
    other = replace(one, checkpoint=tmp_path / "other", options=meant, batches=3)
    assert run(other) == "done"
    assert run(one) == "done"
    assert sorted(row[3] for row in kafka.rows(topic, 2)) == sorted(one.rows() + other.rows())


class Streams:
    """Queries of one application that write to one topic under one transactional.id, each from its source."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.target = kafka.topic(2)
        self.sources = {name: kafka.topic(1) for name in ("older", "newer")}
        self.known: list[str] = []

    def start(self, name: str, *, by_mistake: bool = False) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("subscribe", self.sources[name])
            .option("startingOffsets", "earliest")
            .load()
        )
        query = (
            rows.select("key", "value")
            .writeStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", self.target)
            .option("transactional.id", f"sink-{self.target}")
            .option("start.accepted", anew(*([] if by_mistake else self.known), ""))
            .option("checkpointLocation", str(self.folder / name))
            .queryName(f"{name} {self.target}")
            .start()
        )
        self.known.append(query.id)
        return query

    def put(self, name: str, *values: bytes) -> None:
        self.kafka.put(self.sources[name], list(values))

    def wait_for(self, *values: bytes) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.visible() != sorted(values):
            assert time.monotonic() < deadline, self.visible()
            time.sleep(0.2)

    def visible(self) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.target, 2))


@pytest.fixture
def streams(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Iterator[Streams]:
    yield Streams(spark, kafka, tmp_path)
    for query in spark.streams.active:
        query.stop()


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.spark
def test_the_older_of_two_queries_stops_and_says_why(streams: Streams) -> None:
    """And it may come back: then the other one is the older one."""
    streams.put("older", b"a")
    older = streams.start("older")
    streams.wait_for(b"a")
    streams.put("newer", b"b")
    newer = streams.start("newer")
    streams.wait_for(b"a", b"b")
    streams.put("older", b"c")
    with pytest.raises(StreamingQueryException) as stopped:
        older.awaitTermination(PATIENCE_SECONDS)
    assert "another driver owns the sink" in str(stopped.value) and "transactional.id" in str(stopped.value)
    streams.put("newer", b"d")
    streams.wait_for(b"a", b"b", b"d")
    older = streams.start("older")
    streams.wait_for(b"a", b"b", b"c", b"d")
    streams.put("newer", b"e")
    with pytest.raises(StreamingQueryException, match="another driver owns the sink"):
        newer.awaitTermination(PATIENCE_SECONDS)
    streams.put("older", b"f")
    streams.wait_for(b"a", b"b", b"c", b"d", b"f")
    older.stop()


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.spark
def test_a_name_that_is_given_twice_by_mistake_stops_the_second_query_alone(streams: Streams) -> None:
    streams.put("older", b"a")
    older = streams.start("older")
    streams.wait_for(b"a")
    streams.put("newer", b"b")
    for _ in range(2):  # the second time its first batch is planned already
        with pytest.raises(StreamingQueryException, match="StartsElsewhere"):
            streams.start("newer", by_mistake=True).awaitTermination(PATIENCE_SECONDS)
    streams.put("older", b"c")
    streams.wait_for(b"a", b"c")
    assert older.isActive and older.lastProgress is not None
    older.stop()


# -- batches that do not replay equally ----------------------------------------------------------
# A query whose batches do not replay equally: each run has other rows for the same batch, and more or fewer.
# The outcome of a batch is that of one of its runs, whole.

BETWEEN_PREPARE_AND_DECIDE = ("all tasks prepared", "before the decision")
BETWEEN_DECIDE_AND_FINISH = ("decided, no winner finished", "decided, some winners finished")


@pytest.mark.parametrize("at", [*BETWEEN_PREPARE_AND_DECIDE, *BETWEEN_DECIDE_AND_FINISH])
def test_one_of_the_runs_counts(broker: EmbeddedBroker, tmp_path: Path, at: str) -> None:
    """Killed before the decision: the batch is what the second run has, and nothing of the first is seen.
    Killed after it: what the first run had, though the second one gets other rows."""
    kafka = Kafka(broker.bootstrap)
    topic = kafka.topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "transactional.id": f"sink-{topic}",
    }
    query = Query(tmp_path / "checkpoint", options, varies=True)
    assert run(query, Crash(at)) == "killed"
    first = {mark(row[3]) for row in kafka.rows(topic, 2, committed=False)}
    assert run(query) == "done"
    of_the_batch = [row[3] for row in kafka.rows(topic, 2) if row[3].startswith(b"1/")]
    (winner,) = {mark(row) for row in of_the_batch}
    assert (winner in first) == (at in BETWEEN_DECIDE_AND_FINISH)
    assert sorted(of_the_batch) == sorted(
        b"1/%d/%d@%s" % (partition, number, winner.encode())
        for partition in range(query.partitions)
        for number in range(rows_of_run(winner))
    )


def mark(row: bytes) -> str:
    """The run that wrote the row."""
    return row.partition(b"@")[2].decode()


# -- topics in mid-batch -------------------------------------------------------------------------
# Topics that change while a batch is being written: the target grows, goes away, or is created again. A task
# stands still in the middle of its rows meanwhile.

MIDDLE = "a task in the middle of its rows"


class Bench:
    """A query that writes to a topic, and the readers' view."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, keyed: bool = True, **options: str) -> None:
        self.kafka, self.folder = Kafka(broker.bootstrap), folder
        self.topic = self.kafka.topic(2)
        more = {name.replace("__", "."): value for name, value in options.items()}
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": self.topic,
            "transactional.id": f"sink-{self.topic}",
        }
        self.query = Query(folder / "checkpoint", given | more, keyed=keyed)

    def stopped(self, at: str) -> Running:
        """The query, standing still in its second batch."""
        running = start(self.query, Crash(at, stop=True))
        running.wait_until_stopped()
        return running

    def visible(self, partitions: int = 2) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic, partitions))

    def goes_on_without_batch_0(self) -> str:
        """Its rows went with the old topic: a start says so, and goes on with the word that it names."""
        said = start(self.query).end()
        word = said.rpartition("start.accepted=")[2]
        assert said.startswith("RowsGone") and word == "rows-gone:0", said
        return start(replace(self.query, options=self.query.options | {"start.accepted": word})).end()

    def batch(self, number: int) -> list[bytes]:
        return [row for row in self.query.rows() if row.startswith(b"%d/" % number)]


def test_the_target_gets_partitions(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Rows of a key stay together within a task: it goes on with the count that it began with. A later
    process sees the new partitions, as a producer of Kafka does."""
    bench = Bench(broker, tmp_path)
    running = bench.stopped(MIDDLE)
    bench.kafka.admin.create_partitions([NewPartitions(bench.topic, 16)])[bench.topic].result(10)
    running.wake()
    assert running.end() == "done"
    rows = bench.kafka.rows(bench.topic, 16)
    assert sorted(row[3] for row in rows) == bench.query.rows()
    of_the_task = {row[0] for row in rows if row[3].startswith(b"1/0/")}
    assert len(of_the_task) == 1 and of_the_task <= {0, 1}
    assert any(row[0] > 1 for row in rows if row[3].startswith(b"1/1/"))


@pytest.mark.parametrize(
    ("at", "partitions", "keyed"),
    [(MIDDLE, 2, True), (MIDDLE, 2, False), (MIDDLE, 1, False), ("some tasks prepared", 2, True)],
)
def test_the_target_is_made_anew(
    broker: EmbeddedBroker, tmp_path: Path, at: str, partitions: int, keyed: bool
) -> None:
    """The rows written so far went with the old topic; the new one must not get the rest of the batch. (Rows
    without key would go on in another partition, where the broker has no reason to refuse them.)"""
    bench = Bench(broker, tmp_path, keyed)
    running = bench.stopped(at)
    bench.kafka.make_anew(bench.topic, partitions)
    running.wake()
    said = running.end()
    assert "created again" in said and bench.topic in said
    assert bench.visible(partitions) == []
    assert bench.goes_on_without_batch_0() == "done"
    assert bench.visible(partitions) == bench.batch(1), "the whole batch, in the new topic"


def test_the_target_goes_away(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """It is not created again on the sly, and the query stops after its time for delivery."""
    bench = Bench(broker, tmp_path, kafka__delivery__timeout__ms="5000", kafka__request__timeout__ms="2000")
    running = bench.stopped(MIDDLE)
    bench.kafka.admin.delete_topics([bench.topic])[bench.topic].result(10)
    running.wake()
    said = running.end()
    assert bench.topic in said
    assert bench.topic not in bench.kafka.admin.list_topics(timeout=10).topics
    bench.kafka.topic(2, name=bench.topic)
    assert bench.goes_on_without_batch_0() == "done"
    assert bench.visible() == bench.batch(1) and len(bench.visible()) == 2 * ROWS
