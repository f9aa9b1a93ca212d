"""Writes: both connectors make the same topics of the same rows."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.connector.stock_kafka import Kafka
from tests.spark_session import all_available

pytestmark = pytest.mark.kafka

PARTITIONS = 5
HEADERS = "array<struct<key:string,value:binary>>"


def rows(spark: SparkSession, count: int = 400) -> DataFrame:
    """Rows in one task, so that their order is that of the topic."""
    number = F.col("id")
    text = number.cast("string")
    header = F.array(
        F.struct(F.lit("a").alias("key"), text.cast("binary").alias("value")),
        F.struct(F.lit("none").alias("key"), F.lit(None).cast("binary").alias("value")),
    )
    return spark.range(0, count, 1, 1).select(
        F.concat(F.lit("key "), (number % 37).cast("string")).alias("key"),
        F.when(number % 7 != 0, F.concat(F.lit("value "), text)).alias("value"),
        F.when(number % 3 == 0, header).when(number % 3 == 1, F.array().cast(HEADERS)).alias("headers"),
        "id",
    )


def shapes(spark: SparkSession, kafka: Kafka, connector: str) -> dict[str, tuple[DataFrame, dict[str, str]]]:
    """What is written, by name: the rows and the sink's options. Topics are of the connector's own."""
    base = rows(spark)
    part = (F.col("id") % PARTITIONS).cast("int")
    columns = ["key", "value", "headers"]
    binary = [F.col(name).cast("binary").alias(name) for name in ("key", "value")]
    mine = {name: f"w-{connector}-{name}" for name in ("one", "two")}
    to = F.when(F.col("id") % 2 == 0, mine["one"]).otherwise(mine["two"])
    maybe = F.when(F.col("id") % 2 == 0, part)
    return {
        "by key": (base.select(*columns), {"topic": mine["one"]}),
        "binary": (base.select(*binary), {"topic": mine["one"]}),
        "topic column": (base.select(*columns, to.alias("topic")), {}),
        "option over column": (base.select(*columns, to.alias("topic")), {"topic": mine["two"]}),
        "partition column": (base.select(*columns, part.alias("partition")), {"topic": mine["one"]}),
        "some partitions": (base.select(*columns, maybe.alias("partition")), {"topic": mine["one"]}),
        "partition, no key": (base.select("value", part.alias("partition")), {"topic": mine["one"]}),
        "more columns": (base.select(*columns, "id"), {"topic": mine["one"]}),
        "empty keys": (base.select(F.lit("").alias("key"), "value"), {"topic": mine["one"]}),
        "spaces": (base.select(*columns), {"topic": f" {mine['one']} "}),
        "gzip": (base.select(*columns), {"topic": mine["one"], "kafka.compression.type": "gzip"}),
        "zstd": (base.select(*columns), {"topic": mine["one"], "kafka.compression.type": "zstd"}),
        "nothing": (base.select(*columns).limit(0), {"topic": mine["one"]}),
        "tuned": (
            base.select(*columns),
            {"topic": mine["one"], "kafka.linger.ms": "5", "kafka.retries": "3", "kafka.batch.size": "2000",
             "kafka.max.in.flight.requests.per.connection": "2", "kafka.acks": "all",
             "kafka.max.block.ms": "20000", "kafka.buffer.memory": "33554432"},
        ),
    }  # fmt: skip


NAMES = ("by key", "binary", "topic column", "option over column", "partition column", "some partitions",
         "partition, no key", "more columns", "empty keys", "spaces", "gzip", "zstd", "nothing",
         "tuned")  # fmt: skip


def content(kafka: Kafka, connector: str) -> dict[tuple[str, int], list[Any]]:
    """Key, value and headers of every record, by topic and partition, in order."""
    found: dict[tuple[str, int], list[Any]] = {}
    for name in ("one", "two"):
        for partition, _, key, value, _, _, headers in kafka.rows(f"w-{connector}-{name}", PARTITIONS):
            found.setdefault((name, partition), []).append((key, value, headers))
    return found


@pytest.fixture(scope="module", autouse=True)
def made(kafka: Kafka) -> None:
    for connector in ("kafka", "eoslog"):
        for name in ("one", "two"):
            kafka.topic(PARTITIONS, name=f"w-{connector}-{name}")


@pytest.mark.parametrize("name", NAMES)
def test_batch_writes_are_equal(spark: SparkSession, kafka: Kafka, name: str) -> None:
    """Topics grow from case to case; each is compared whole."""
    for connector in ("kafka", "eoslog"):
        frame, options = shapes(spark, kafka, connector)[name]
        writer = frame.write.format(connector).option("kafka.bootstrap.servers", kafka.bootstrap)
        writer.options(**options).mode("append").save()
    assert content(kafka, "eoslog") == content(kafka, "kafka")


@pytest.mark.parametrize("mode", ["append", "complete"])
def test_stream_writes_are_equal(spark: SparkSession, kafka: Kafka, tmp_path: Path, mode: str) -> None:
    """Mode update is Spark's own connector's alone: Spark refuses it for every Python sink."""
    source = kafka.topic(1)
    kafka.put(source, [b"%d" % (i % 5) for i in range(100)])
    for connector in ("kafka", "eoslog"):
        frame = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
        read = frame.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40").load()
        value = F.col("value").cast("string")
        written = read.select(value.alias("key"), F.concat(F.lit("v"), value).alias("value"))
        if mode != "append":
            written = read.groupBy(value.alias("key")).agg(F.count("*").cast("string").alias("value"))
        query = written.coalesce(1).writeStream.format(connector).outputMode(mode)
        query = query.option("kafka.bootstrap.servers", kafka.bootstrap).option("topic", f"w-{connector}-two")
        query = query.option("checkpointLocation", str(tmp_path / connector))
        assert all_available(query).awaitTermination(120)
    ours, theirs = content(kafka, "eoslog"), content(kafka, "kafka")
    if mode == "complete":  # groups come out of a shuffle in any order
        ours, theirs = ({at: sorted(r, key=str) for at, r in c.items()} for c in (ours, theirs))
    assert ours == theirs
