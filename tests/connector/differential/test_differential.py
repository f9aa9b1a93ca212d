"""The same queries through Spark's kafka and eoslog: reads, streams, writes, and errors."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from chispa import assert_df_equality
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eoslog.cli import main
from eoslog.connector.spark.libraries import numbers
from eoslog.connector.spark.versions import PYSPARK, works
from tests.checkpoint.checkpointkit import A_BATCH, EditedQuery, fill
from tests.connector.brokers import Kafka, bare
from tests.connector.differential.both import CONNECTORS, Row, Topic, draw, outcome, read, rows_of
from tests.kit.kafka_nodes import spark_kafka
from tests.spark_session import all_available

# -- reads ---------------------------------------------------------------------------------------
# Batch reads: for every option combination both connectors give the same rows, or both refuse.


SEED = int(os.environ.get("SEED", "1"))
DRAWS = int(os.environ.get("DRAWS", "150"))
EMPTY_BEFORE = "4.1"
"""Spark's connector takes a partition whose start lies after its end for an empty one; later it refuses."""


@pytest.mark.kafka
def test_reads_are_equal(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    random = Random(SEED)
    differences, rows, refused, empty = [], 0, 0, 0
    for number in range(DRAWS):
        options = {"kafka.bootstrap.servers": kafka.bootstrap, **draw(random, topics, stream=False)}
        theirs, ours = (outcome(lambda c=c, o=options: read(spark, c, o)) for c in CONNECTORS)  # type: ignore[misc]
        refused += theirs.rows is None and ours.rows is None
        rows += len(theirs.rows or ())
        empty += theirs.rows == []
        is_empty = numbers(PYSPARK) < numbers(EMPTY_BEFORE) and " lies after " in ours.refused
        if theirs.rows != ours.rows and not is_empty:
            differences.append(_difference(number, options, theirs, ours))
    print(f"\nseed {SEED}: {DRAWS} combinations, {rows} rows each, {empty} empty, {refused} refused by both, "
          f"{len(differences)} differ")  # fmt: skip
    assert not differences, "\n\n".join(differences)
    assert rows > 20 * DRAWS, "most draws should give rows"
    assert refused < DRAWS // 3, "most draws should be legal"


def _difference(number: int, options: dict[str, str], theirs: object, ours: object) -> str:
    return f"draw {number} of seed {SEED}: {options}\n  kafka:  {_short(theirs)}\n  eoslog: {_short(ours)}"


def _short(found: object) -> str:
    rows, refused = found.rows, found.refused  # type: ignore[attr-defined]
    return f"refused: {refused[:600]}" if rows is None else f"{len(rows)} rows {rows[:1]} to {rows[-1:]}"


@pytest.mark.kafka
def test_whole_topics_are_the_same_frames(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    """Columns and their types, too."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "includeHeaders": "true"}
    options["kafka.isolation.level"] = "read_committed"  # eoslog's default
    for topic in topics:
        theirs, ours = (
            spark.read.format(c).options(**options, subscribe=topic.name).load() for c in CONNECTORS
        )
        assert_df_equality(ours, theirs, ignore_row_order=True)


# -- streams -------------------------------------------------------------------------------------
# Streams: both connectors cut their batches at the same offsets and give the same rows.

STREAMS = int(os.environ.get("STREAMS", "12"))


def run(
    spark: SparkSession, connector: str, options: dict[str, str], checkpoint: Path
) -> tuple[list[Row], list[Any]]:
    """Rows, and the end offsets of each batch that had any offsets to read, with availableNow."""
    rows: list[Row] = []
    frame = spark.readStream.format(connector).options(**options).load()

    def collect(batch: DataFrame, _: int) -> None:
        rows.extend(rows_of(batch))

    query = frame.writeStream.foreachBatch(collect).option("checkpointLocation", str(checkpoint))
    all_available(query).awaitTermination(300)
    return rows, ends_of(checkpoint)


def ends_of(checkpoint: Path) -> list[Any]:
    """The source's offsets at the end of each batch, without what eoslog adds to them."""
    stored = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    ends = [bare(json.loads(path.read_text().splitlines()[-1])) for path in stored]
    return [end for i, end in enumerate(ends) if i == 0 or end != ends[i - 1]]


def _moves(options: dict[str, str]) -> bool:
    """Whether eoslog could find another beginning if it looked again: a time with the strategy latest."""
    names = {name.lower() for name in options}
    timed = names & {"startingtimestamp", "startingoffsetsbytimestamp"}
    return bool(timed) and "startingoffsetsbytimestampstrategy" in names


@pytest.mark.kafka
def test_streams_are_equal(spark: SparkSession, kafka: Kafka, topics: list[Topic], tmp_path: Path) -> None:
    random = Random(SEED)
    differences, batches, rows = [], 0, 0
    for number in range(STREAMS):
        options = {"kafka.bootstrap.servers": kafka.bootstrap, **draw(random, topics, stream=True)}
        options["maxOffsetsPerTrigger"] = str(random.randint(40, 400))
        found: dict[str, Any] = {}
        for connector in CONNECTORS:
            place = tmp_path / f"{number}-{connector}"
            ends: list[Any] = []

            def ask(connector: str = connector, place: Path = place, ends: list[Any] = ends) -> list[Row]:
                got, cuts = run(spark, connector, options, place)  # noqa: B023
                ends.extend(cuts)
                return sorted(got, key=lambda row: row[2:5])

            found[connector] = outcome(ask).rows, ends
        if _moves(options) and works("now"):  # a first batch without rows stores where the query began
            found["eoslog"][1][:1] = []
        if found["kafka"] != found["eoslog"]:
            said = {c: (None if r is None else len(r), e) for c, (r, e) in found.items()}
            differences.append(f"draw {number} of seed {SEED}: {options}\n  {said}")
        batches += len(found["kafka"][1])
        rows += len(found["kafka"][0] or ())
    print(f"\nseed {SEED}: {STREAMS} streams, {batches} batches, {rows} rows each, {len(differences)} differ")
    assert not differences, "\n\n".join(differences)
    assert batches > 2 * STREAMS and rows > 20 * STREAMS


# -- writes --------------------------------------------------------------------------------------
# Writes: both connectors make the same topics of the same rows.

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


@pytest.fixture(scope="module")
def made(kafka: Kafka) -> None:
    for connector in ("kafka", "eoslog"):
        for name in ("one", "two"):
            kafka.topic(PARTITIONS, name=f"w-{connector}-{name}")


@pytest.mark.kafka
@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("name", NAMES)
def test_batch_writes_are_equal(spark: SparkSession, kafka: Kafka, name: str) -> None:
    """Topics grow from case to case; each is compared whole."""
    for connector in ("kafka", "eoslog"):
        frame, options = shapes(spark, kafka, connector)[name]
        writer = frame.write.format(connector).option("kafka.bootstrap.servers", kafka.bootstrap)
        writer.options(**options).mode("append").save()
    assert content(kafka, "eoslog") == content(kafka, "kafka")


@pytest.mark.kafka
@pytest.mark.usefixtures("made")
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


# -- errors --------------------------------------------------------------------------------------
# Bad options and rows: refused by both, and what only one of them refuses, with the reason.

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

ERRORS_STREAMS: list[Options] = [
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


@pytest.mark.kafka
def test_both_take_a_good_read(spark: SparkSession, kafka: Kafka, topics: list[Topic]) -> None:
    assert not any(refusals(spark, kafka, {"subscribe": P}).values())


@pytest.mark.kafka
@pytest.mark.parametrize("options", READS, ids=str)
def test_both_refuse_a_read(spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options) -> None:
    found = refusals(spark, kafka, options)
    assert all(found.values()), found


@pytest.mark.kafka
@pytest.mark.parametrize(("options", "why"), ONLY_OURS, ids=str)
def test_only_eoslog_refuses(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options, why: str
) -> None:
    found = refusals(spark, kafka, options)
    assert found["eoslog"] and not found["kafka"], (why, found)


@pytest.mark.kafka
@pytest.mark.parametrize(("options", "why"), ONLY_THEIRS, ids=str)
def test_only_kafka_refuses(
    spark: SparkSession, kafka: Kafka, topics: list[Topic], options: Options, why: str
) -> None:
    found = refusals(spark, kafka, options)
    assert found["kafka"] and not found["eoslog"], (why, found)


@pytest.mark.kafka
@pytest.mark.parametrize("options", ERRORS_STREAMS, ids=str)
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


@pytest.mark.kafka
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


@pytest.mark.kafka
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


# -- checkpoints that both go on with --------------------------------------------------------------
# Checkpoints that both connectors go on with, edited or not.


@pytest.mark.kafka
@pytest.mark.parametrize("limit", [None, "30"])
def test_from_kafka_to_eoslog_and_back(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, limit: str | None
) -> None:
    topic = kafka.topic(2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    if limit is not None:
        options["maxOffsetsPerTrigger"] = limit
    for turn, connector in enumerate(("kafka", "eoslog", "kafka", "eoslog")):
        for partition in (0, 1):
            kafka.put(topic, [b"%d %d" % (turn, i) for i in range(40)], partition)
        rows, _ = run(spark, connector, options, tmp_path)
        values = sorted(row[1] for row in rows)
        assert values == sorted([b"%d %d" % (turn, i) for i in range(40)] * 2), (turn, connector)
    assert bare(ends_of(tmp_path)[-1]) == {topic: {"0": 160, "1": 160}}


def copied(
    spark: SparkSession, kafka: Kafka, connector: str, source: str, target: str, checkpoint: Path
) -> None:
    """All of a topic, to another one."""
    frame = spark.readStream.format(connector).option("kafka.bootstrap.servers", kafka.bootstrap)
    read = frame.options(subscribe=source, startingOffsets="earliest").load()
    query = read.selectExpr("value").writeStream.format(connector).option("topic", target)
    query = query.option("kafka.bootstrap.servers", kafka.bootstrap)
    query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    assert query.start().awaitTermination(120)


@pytest.mark.kafka
def test_a_stream_sink_is_changed(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Source and sink at once, in a query that Spark's connector began."""
    source, target = kafka.topic(2), kafka.topic(2)
    for turn, connector in enumerate(("kafka", "eoslog", "eoslog", "kafka")):
        kafka.put(source, [b"%d %d" % (turn, i) for i in range(40)], turn % 2)
        copied(spark, kafka, connector, source, target, tmp_path)
    values = sorted(row[3] for row in kafka.rows(target, 2))
    assert values == sorted(b"%d %d" % (turn, i) for turn in range(4) for i in range(40))


@pytest.mark.kafka
@pytest.mark.parametrize("ended_first", [False, True], ids=["at once", "the batch ended first"])
def test_the_way_back_after_a_kill(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, ended_first: bool
) -> None:
    """docs/migrating.md: Spark's sink writes a decided batch again that Spark has not noted."""
    source, target = kafka.topic(2), kafka.topic(2)

    def shown() -> str:
        asked = ["checkpoint", "show", str(tmp_path), "--bootstrap-server", kafka.bootstrap]
        return CliRunner().invoke(main, asked).output

    def go(connector: str) -> None:
        copied(spark, kafka, connector, source, target, tmp_path)

    kafka.put(source, [b"old %d" % i for i in range(40)])
    go("eoslog")
    assert "go on: " in shown()
    newest = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for lost in (newest, newest.with_name(f".{newest.name}.crc")):
        lost.unlink(missing_ok=True)
    assert "finish: " in shown()
    if ended_first:
        go("eoslog")
        assert "go on: " in shown()
    kafka.put(source, [b"new %d" % i for i in range(40)])
    go("kafka")
    counts = Counter(row[3] for row in kafka.rows(target, 2))
    assert {counts[b"new %d" % i] for i in range(40)} == {1}
    assert {counts[b"old %d" % i] for i in range(40)} == {1 if ended_first else 2}


@pytest.mark.kafka
def test_a_topic_made_anew_is_noticed_by_one_of_them(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for connector in ("kafka", "eoslog"):
        kafka.put(topic, [b"old"] * 5)
        run(spark, connector, options, tmp_path / connector)
        kafka.make_anew(topic)
        kafka.put(topic, [b"new"] * 15)
        found = outcome(lambda c=connector: run(spark, c, options, tmp_path / c)[0])  # type: ignore[misc]
        if connector == "kafka":
            assert found.rows is not None and len(found.rows) < 15, "rows are passed over without a word"
        else:
            assert "created again" in found.refused
        kafka.make_anew(topic)


# -- edited --------------------------------------------------------------------------------------
# Checkpoints of Spark's own kafka source, edited by `eoslog checkpoint`: with Spark's sink, which keeps no
# decisions, and with eoslog's.


class SparksOwn(EditedQuery):
    """From Spark's source to one of the two sinks."""

    def _read(self) -> DataFrame:
        return (
            self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("subscribe", self.source).option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", A_BATCH).load()
        )  # fmt: skip

    def _write(self, sink: str, **halt: str) -> DataStreamWriter:
        if sink != "kafka":
            return super()._write(sink, **halt)
        return (
            self.rows().writeStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", self.target).option("checkpointLocation", str(self.checkpoint))
        )  # fmt: skip


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["kafka", "eoslog"])
@pytest.mark.parametrize("edit", [("rewind", "--by", "17"), ("skip-to", "--by", "17")])
def test_the_audit_counts_what_was_foretold(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, sink: str, edit: tuple[str, ...]
) -> None:
    query = SparksOwn(spark, kafka, tmp_path)
    assert query.run(sink) == ""
    fill(kafka, query.source, "more")
    shown = query.shown()
    assert shown["offset_log"] == "v1" and shown["transactional_id"] == (
        query.sink if sink == "eoslog" else None
    )
    before = shown["partitions"]
    foretold = query.edit(*edit)
    assert sum(foretold.values()) > 0
    assert query.command("undo").exit_code == 0
    assert query.shown()["partitions"] == before
    assert query.edit(*edit) == foretold
    assert query.command("check").exit_code == 0
    assert query.run(sink) == ""
    assert query.audited() == foretold


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_only_the_sink_knows(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Whether a batch that is not noted as done is written: no edit before the query has finished it."""
    query = SparksOwn(spark, kafka, tmp_path)
    assert query.run("kafka") == ""
    newest = max(
        (path for path in (query.checkpoint / "commits").glob("[0-9]*")), key=lambda at: int(at.name)
    )
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()
    assert query.shown()["next_start"].startswith("run again")
    said = query.command("rewind", "--by", "5", "--accept-duplicates", "99")
    assert said.exit_code == 1 and "of its rows are written is not known" in said.output
    assert query.run("kafka") == ""
    assert query.shown()["next_start"].startswith("go on")
