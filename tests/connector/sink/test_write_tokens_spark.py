"""`foreachBatch` in a real Spark, with `write.token` and without: whose rows a token stands for, what a write
leaves behind in the cluster, and that a function which is called again writes once."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from eoslog.connector.client.admin import transactions
from eoslog.connector.client.wire.shared_clusters import shared_cluster
from eoslog.connector.options.source_and_sink import sink_options
from tests.connector.spark_application import Application
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Query:
    """A stream whose batches are written by a function, from a topic of two partitions."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.source, self.name = kafka.topic(2), f"q{uuid.uuid4().hex[:8]}"

    def put(self, first: int, last: int) -> list[bytes]:
        rows = [b"%06d" % number for number in range(first, last)]
        for partition in range(2):
            self.kafka.put(self.source, rows[partition::2], partition=partition)
        return rows

    def write(self, rows: DataFrame, topic: str, token: str | None) -> None:
        writer = rows.write.format("eoslog").mode("append").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", self.kafka.bootstrap)
        (writer if token is None else writer.option("write.token", token)).save()

    def run(
        self,
        write: Callable[[DataFrame, int], None],
        *,
        checkpoint: str = "checkpoint",
        start: str = "earliest",
        limit: int = 1000,
    ) -> None:
        frame = self.spark.readStream.format("eoslog").option("subscribe", self.source)
        frame = frame.option("kafka.bootstrap.servers", self.kafka.bootstrap).option("startingOffsets", start)
        rows = frame.option("maxOffsetsPerTrigger", limit).load().select("key", "value")
        stream = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(self.folder / checkpoint)).start()
        assert query.awaitTermination(180)

    def values(self, topic: str) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(topic, 1))


@pytest.fixture
def query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Query:
    return Query(spark, kafka, tmp_path)


def test_one_token_for_two_topics_is_two_writes(query: Query, kafka: Kafka) -> None:
    rows, first, second = query.put(0, 7), kafka.topic(1), kafka.topic(1)

    def write(batch: DataFrame, number: int) -> None:
        for topic in (first, second):
            query.write(batch, topic, f"{query.name}-{number}")

    query.run(write)
    assert query.values(first) == rows
    assert query.values(second) == rows


def test_other_rows_under_a_token_that_was_written_stop_the_query(query: Query, kafka: Kafka) -> None:
    """The checkpoint is created again, so batches count from 0 again, and their tokens come again."""
    target, old = kafka.topic(1), query.put(0, 10)

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch, target, f"{query.name}-{number}")

    for checkpoint in ("checkpoint", "the same rows"):
        query.run(write, checkpoint=checkpoint)
        assert query.values(target) == old
    query.put(10, 21)
    start = f'{{"{query.source}": {{"0": 5, "1": 5}}}}'
    with pytest.raises(PySparkException) as raised:
        query.run(write, checkpoint="anew", start=start)
    said = str(raised.value)
    assert "TokenReused" in said and f"{query.name}-0" in said, said
    assert "10 rows" in said and "11 rows" in said, said
    assert query.values(target) == old


def test_two_frames_under_one_token_for_one_topic_stop_the_query(query: Query, kafka: Kafka) -> None:
    query.put(0, 6)
    target = kafka.topic(1)

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch.filter("value < '000003'"), target, f"{query.name}-{number}")
        query.write(batch.filter("value >= '000003'"), target, f"{query.name}-{number}")

    with pytest.raises(PySparkException, match="TokenReused"):
        query.run(write)
    assert query.values(target) == [b"000000", b"000001", b"000002"]


def test_twenty_batches_leave_no_more_names_than_five(query: Query, kafka: Kafka) -> None:
    """Groups and transactional ids come again, as those of a stream do."""
    target, limit = kafka.topic(1), 10
    rows = query.put(0, 5 * limit)
    left: list[tuple[int, int]] = []

    def write(batch: DataFrame, number: int) -> None:
        query.write(batch, target, f"{query.name}-{number}")

    for batches in (5, 20):
        query.run(write, limit=limit)
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target}
        cluster = shared_cluster(sink_options(given, stream=False).client)
        ids = transactions.list_transactions(cluster, "eoslog-write", [])
        ours = [one.transactional_id for one in ids if query.name in one.transactional_id]
        groups = kafka.admin.list_consumer_groups().result(20).valid
        left.append((len(ours), sum(query.name in group.group_id for group in groups)))
        print(f"after {batches} batches: {left[-1][0]} transactional ids, {left[-1][1]} groups")
        if batches == 5:
            rows += query.put(5 * limit, 20 * limit)
    assert query.values(target) == rows
    # The tasks of a batch fall now to one Python worker, now to another: each has its names, of both halves.
    assert left[1][0] <= 2 * 1 + 2 * 2 * 3 and left[1][1] == left[0][1] <= 2, left


# -- without a token: the micro-batch stands for it --------------------------------------------------------


def test_a_function_that_raises_after_its_write_has_written_once(query: Query, kafka: Kafka) -> None:
    rows, first, second = query.put(0, 7), kafka.topic(1), kafka.topic(1)
    calls: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        calls.append(number)
        query.write(batch, first, None)
        if len(calls) < 3:
            raise RuntimeError("between the writes")
        query.write(batch, second, None)

    for _ in range(2):
        with pytest.raises(PySparkException, match="between the writes"):
            query.run(write)
    query.run(write)
    assert calls == [0, 0, 0]
    assert query.values(first) == rows and query.values(second) == rows
    more = query.put(7, 9)
    query.run(write)
    assert calls == [0, 0, 0, 1] and query.values(first) == query.values(second) == rows + more


def test_a_function_that_tries_its_writes_again_has_written_once(query: Query, kafka: Kafka) -> None:
    rows, target = query.put(0, 7), kafka.topic(1)
    tries: list[int] = []

    def write(batch: DataFrame, number: int) -> None:
        while len(tries) < 3:
            tries.append(number)
            query.write(batch, target, None)

    query.run(write)
    assert tries == [0, 0, 0] and query.values(target) == rows


def test_a_second_write_to_the_topic_is_said_and_its_own_token_is_the_way_out(
    query: Query, kafka: Kafka
) -> None:
    rows, target = query.put(0, 6), kafka.topic(1)

    def write(batch: DataFrame, number: int, token: str | None = None) -> None:
        query.write(batch.filter("value < '000003'"), target, None)
        query.write(batch.filter("value >= '000003'"), target, token)

    with pytest.raises(PySparkException) as raised:
        query.run(write)
    said = str(raised.value)
    assert "OtherRowsInBatch" in said and '.option("write.token", f"NAME-{batch_id}")' in said, said
    assert query.values(target) == rows[:3]
    query.run(lambda batch, number: write(batch, number, f"{query.name}-{number}"))
    assert query.values(target) == rows


def test_an_application_that_is_killed_after_its_write_has_written_once(
    query: Query, kafka: Kafka, tmp_path: Path
) -> None:
    rows, target, done = query.put(0, 7), kafka.topic(1), tmp_path / "done"
    place = (kafka.bootstrap, query.source, target, tmp_path / "checkpoint", done)
    application = Application(tmp_path / "probe", "tests.connector.sink.foreach_app", *place)
    try:
        application.wait_until("the write is done", done.exists)
    finally:
        application.kill()
    assert query.values(target) == rows
    query.run(lambda batch, number: query.write(batch, target, None))
    assert query.values(target) == rows
