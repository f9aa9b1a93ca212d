"""One transactional.id for two queries, which their user has said is meant (start.accepted): the one that
began last owns the sink, the other stops and says so, and whoever comes back later neither doubles nor loses
a row."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.testing import EmbeddedBroker
from tests.connector.crashes.crash_query import Crash, Query, run
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)

ANEW = ",".join(f"new-checkpoint:{number}" for number in range(20))
"""Whatever the sink has decided last, a query begins anew."""


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
    meant = options | {"start.accepted": ANEW}
    other = replace(one, checkpoint=tmp_path / "other", options=meant, batches=3)
    assert run(one, Crash(at)) == "killed"
    assert run(other) == "done"
    assert run(one) == "done"
    assert sorted(row[3] for row in kafka.rows(topic, 2)) == sorted(one.rows() + other.rows())


class Streams:
    """Queries of one application that write to one topic under one transactional.id, each from its source."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.target = kafka.topic(2)
        self.sources = {name: kafka.topic(1) for name in ("older", "newer")}

    def start(self, name: str) -> StreamingQuery:
        rows = (
            self.spark.readStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("subscribe", self.sources[name])
            .option("startingOffsets", "earliest")
            .load()
        )
        return (
            rows.select("key", "value")
            .writeStream.format("eoslog")
            .option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", self.target)
            .option("transactional.id", f"sink-{self.target}")
            .option("start.accepted", ANEW)
            .option("checkpointLocation", str(self.folder / name))
            .queryName(f"{name} {self.target}")
            .start()
        )

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
