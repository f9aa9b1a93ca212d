"""Bad options and rows: refused by both, and what only one of them refuses, with the reason."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peer_kafka import spark_kafka
from tests.connector.differential.both import outcome, read
from tests.connector.differential.draws import Topic
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.kafka

P = "d-plain"
ONE = '{"d-plain":[0]}'
Options = dict[str, str]
QUICK = {"kafka.default.api.timeout.ms": "6000", "kafka.request.timeout.ms": "5000"}  # Java: in this order


def at(offset: int) -> str:
    """An offset of the one partition."""
    return f'{{"{P}":{{"0":{offset}}}}}'


READS: list[Options] = [
    {},
    {"subscribe": P, "assign": ONE},
    {"subscribe": P, "subscribePattern": P},
    {"subscribe": " , "},
    {"subscribePattern": " "},
    {"subscribePattern": "d-("},
    {"assign": "[0]"},
    {"assign": f'{{"{P}":"0"}}'},
    {"subscribe": "no-such-topic"},
    {"subscribe": P, "startingOffsets": "latest"},
    {"subscribe": P, "startingOffsets": "newest"},
    {"subscribe": P, "startingOffsets": f'{{"{P}":{{"0":-1,"1":0,"2":0}}}}'},
    {"subscribe": P, "startingOffsets": at(1)},
    {"subscribe": P, "startingOffsets": '{"other":{"0":1}}'},
    {"subscribe": P, "startingOffsets": '{"d-plain"'},
    {"subscribe": P, "endingOffsets": "earliest"},
    {"subscribe": P, "endingOffsets": f'{{"{P}":{{"0":-2,"1":5,"2":5}}}}'},
    {"assign": ONE, "startingOffsets": at(9), "endingOffsets": at(8)},
    {"subscribe": P, "startingTimestamp": "yesterday"},
    {"subscribe": P, "startingTimestamp": "1900000000000"},
    {"subscribe": P, "startingOffsetsByTimestamp": '{"d-plain":{"0":1}}'},
    {"subscribe": P, "startingOffsetsByTimestampStrategy": "earliest", "startingTimestamp": "1"},
    {"subscribe": P, "minPartitions": "0"},
    {"subscribe": P, "minPartitions": "many"},
    {"subscribe": P, "maxRecordsPerPartition": "-1"},
    {"subscribe": P, "includeHeaders": "yes"},
    {"subscribe": P, "failOnDataLoss": "no"},
    {"subscribe": P, "kafka.auto.offset.reset": "latest"},
    {"subscribe": P, "kafka.key.deserializer": "x"},
    {"subscribe": P, "kafka.value.deserializer": "x"},
    {"subscribe": P, "kafka.interceptor.classes": "x"},
    {"subscribe": P, "kafka.isolation.level": "committed"},
    {"subscribe": P, "kafkaConsumer.pollTimeoutMs": "2m"},
    {"subscribe": P, "fetchOffset.numRetries": "often"},
    {"subscribe": P, "kafka.security.protocol": "TLS"},
    {"subscribe": P, "kafka.bootstrap.servers": "nowhere"},
    {"assign": ONE, "startingOffsets": at(500)},
    {"assign": ONE, "endingOffsets": at(500), "kafkaConsumer.pollTimeoutMs": "2000"},
]  # fmt: skip

ONLY_OURS: list[tuple[Options, str]] = [
    ({"subscribe": P, "kafka.isolation.lvl": "x"}, "an unknown client setting is a misspelt one"),
    ({"subscribe": P, "startingOffset": "earliest"}, "a near miss of an option"),
    ({"subscribe": P, "startingOffsets": "newest", "startingTimestamp": "1"}, "what loses must be right"),
    ({"assign": ONE, "startingOffsets": f'{{"{P}":{{"0":1,"0":2}}}}'}, "one would be lost"),
    ({"subscribe": P, "kafka.partition.assignment.strategi": "x"}, "an unknown client setting"),
    ({"subscribe": P, "kafka.check.crcs": "false"}, "checksums are always checked"),
]  # fmt: skip

NO_RETRY: Options = {"subscribe": P, "fetchOffset.numRetries": "0"}
if spark_kafka().name < "spark-kafka-4.2":
    ONLY_OURS.append((NO_RETRY, "Spark's connector asks once; that of 4.2 refuses it, too"))
else:
    READS.append(NO_RETRY)

ONLY_THEIRS: list[tuple[Options, str]] = [
    ({"subscribe": P, "kafka.enable.auto.commit": "false"}, "it is false here, too"),
]

STREAMS: list[Options] = [
    {"subscribe": P, "endingOffsets": "latest"},
    {"subscribe": P, "endingOffsetsByTimestamp": f'{{"{P}":{{"0":1,"1":1,"2":1}}}}'},
    {"subscribe": P, "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
    {"subscribe": P, "maxTriggerDelay": "soon", "minOffsetsPerTrigger": "1"},
    {"subscribe": P, "maxOffsetsPerTrigger": "few"},
    {"subscribe": "no-such-topic"},
    {"subscribe": P, "startingOffsets": at(1)},
]


def refusals(spark: SparkSession, kafka: Kafka, options: Options) -> dict[str, str]:
    whole = {"kafka.bootstrap.servers": kafka.bootstrap, **QUICK, **options}
    return {c: outcome(lambda c=c: read(spark, c, whole)).refused for c in ("kafka", "eoslog")}  # type: ignore[misc]


def test_both_take_a_good_read(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    assert not any(refusals(spark, kafka, {"subscribe": P}).values())


@pytest.mark.parametrize("options", READS, ids=str)
def test_both_refuse_a_read(spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options) -> None:
    found = refusals(spark, kafka, options)
    assert all(found.values()), found


@pytest.mark.parametrize(("options", "why"), ONLY_OURS, ids=str)
def test_only_eoslog_refuses(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options, why: str
) -> None:
    found = refusals(spark, kafka, options)
    assert found["eoslog"] and not found["kafka"], (why, found)


@pytest.mark.parametrize(("options", "why"), ONLY_THEIRS, ids=str)
def test_only_kafka_refuses(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options, why: str
) -> None:
    found = refusals(spark, kafka, options)
    assert found["kafka"] and not found["eoslog"], (why, found)


@pytest.mark.parametrize("options", STREAMS, ids=str)
def test_both_refuse_a_stream(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], tmp_path: Path, options: Options
) -> None:
    for connector in ("kafka", "eoslog"):

        def ask(connector: str = connector) -> list[Any]:
            frame = spark.readStream.format(connector).options(
                **{"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest", **options}
            )
            query = frame.load().writeStream.format("noop").trigger(availableNow=True)
            query.option("checkpointLocation", str(tmp_path / connector)).start().awaitTermination(60)
            return []

        assert outcome(ask).refused, connector


def value(spark: SparkSession) -> DataFrame:
    return spark.range(3).select(F.col("id").cast("string").alias("value"))


WRITES: dict[str, tuple[Any, Options]] = {
    "no topic": (lambda v: v, {}),
    "no value": (lambda v: v.select(F.col("value").alias("v")), {"topic": P}),
    "value is a number": (lambda v: v.select(F.lit(1).alias("value")), {"topic": P}),
    "key is a number": (lambda v: v.withColumn("key", F.lit(1)), {"topic": P}),
    "partition is text": (lambda v: v.withColumn("partition", F.lit("1")), {"topic": P}),
    "partition is long": (lambda v: v.withColumn("partition", F.lit(1).cast("long")), {"topic": P}),
    "topic is a number": (lambda v: v.withColumn("topic", F.lit(1)), {}),
    "topic is null": (lambda v: v.withColumn("topic", F.lit(None).cast("string")), {}),
    "headers are text": (lambda v: v.withColumn("headers", F.lit("a")), {"topic": P}),
    "no such partition": (lambda v: v.withColumn("partition", F.lit(9)),
                          {"topic": P, "kafka.max.block.ms": "2000"}),
    "negative partition": (lambda v: v.withColumn("partition", F.lit(-1)), {"topic": P}),
    "serializer": (lambda v: v, {"topic": P, "kafka.value.serializer": "x"}),
    "key serializer": (lambda v: v, {"topic": P, "kafka.key.serializer": "x"}),
    "compression": (lambda v: v, {"topic": P, "kafka.compression.type": "rar"}),
    "in flight": (lambda v: v, {"topic": P, "kafka.max.in.flight.requests.per.connection": "6",
                                "kafka.enable.idempotence": "true"}),
    "bad topic": (lambda v: v, {"topic": "a/b"}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_both_refuse_a_write(spark: SparkSession, kafka: Kafka, topics: list[Topic], name: str) -> None:
    change, options = WRITES[name]
    before = kafka.rows(P, 3)
    for connector in ("kafka", "eoslog"):

        def ask(connector: str = connector) -> list[Any]:
            writer = change(value(spark)).write.format(connector).mode("append")
            writer.options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options}).save()
            return []

        assert outcome(ask).refused, connector
    assert kafka.rows(P, 3) == before, "a refused write leaves nothing"


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_save_modes_that_both_refuse(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], mode: str
) -> None:
    for connector in ("kafka", "eoslog"):

        def ask(connector: str = connector) -> list[Any]:
            writer = value(spark).write.format(connector).mode(mode).option("topic", P)
            writer.option("kafka.bootstrap.servers", kafka.bootstrap).save()
            return []

        assert outcome(ask).refused, connector
