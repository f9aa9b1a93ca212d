"""A new version of a query runs beside the old one on its batches, and is compared."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.spark_session import all_available

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
Given = dict[str, str]
Version = Callable[[DataFrame], DataFrame]


class Pair:
    """A running query and its shadow, over one source of two partitions."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka, self.folder = spark, kafka, folder
        self.source, self.topic, self.into = kafka.topic(2), kafka.topic(2), kafka.topic(2)
        self.id = f"{self.topic}-v1"
        self.group = f"{self.topic}-group"

    def put(self, first: int, count: int) -> None:
        for p in range(2):
            self.kafka.put(self.source, [b"%d" % n for n in range(first, first + count)], p)

    def _start(
        self,
        name: str,
        version: Version,
        reads: dict[str, str],
        writes: dict[str, str],
        trigger: dict[str, Any],
    ) -> StreamingQuery:
        shared = {"kafka.bootstrap.servers": self.kafka.bootstrap}
        reads = {
            "subscribe": self.source,
            "startingOffsets": "earliest",
            "kafka.group.id": self.group,
            **reads,
        }
        rows = self.spark.readStream.format("eoslog").options(**shared, **reads).load()
        writer = version(rows).writeStream.format("eoslog").options(**shared, **writes)
        writer = writer.option("checkpointLocation", str(self.folder / name))
        query: StreamingQuery = (
            all_available(writer) if "availableNow" in trigger else writer.trigger(**trigger).start()
        )
        return query

    def old(self, version: Version, trigger: dict[str, Any], **reads: str) -> StreamingQuery:
        writes = {"topic": self.topic, "transactional.id": self.id, "kafka.group.id": self.group}
        return self._start("old", version, reads, writes, trigger)

    def shadow(
        self, version: Version, trigger: dict[str, Any], start: str = "earliest", **writes: str
    ) -> StreamingQuery:
        named = {"shadow.of": self.id, "shadow.topic": self.topic, "shadow.into": self.into}
        writes = {"topic": self.into, "transactional.id": f"{self.id}-shadow", **writes}
        return self._start("new", version, {**named, "startingOffsets": start}, writes, trigger)

    def ends(self, name: str) -> list[dict[str, Any]]:
        found = sorted((self.folder / name / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in found]


def report(pair: Pair, *more: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "eoslog", "shadow", "report", str(pair.folder / "new"), "--json", *more]
    command += ["--bootstrap-server", pair.kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode < 2, done.stderr
    return done.returncode, json.loads(done.stdout)


def plain(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("key", "value")


def test_batches_end_where_those_of_the_running_query_do(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    pair = Pair(spark, kafka, tmp_path)
    pair.put(0, 10)
    old = pair.old(plain, {"processingTime": "0 seconds"})
    shadow = pair.shadow(plain, {"processingTime": "0 seconds"}, start="committed")
    for step in range(1, 200):
        pair.put(10 * step, 10)
        time.sleep(0.1)
        if len(pair.ends("new")) > 4 and step > 30:
            break
    old.processAllAvailable()
    shadow.processAllAvailable()
    for query in (old, shadow):
        query.stop()
        assert query.exception() is None
    stood = [[end[pair.source] for end in pair.ends(name)] for name in ("old", "new")]
    assert all(end in stood[0] for end in stood[1]), stood
    done, said = report(pair)
    assert done == 0 and said["equal"] and said["decisions_behind"] == 0, said
    assert said["counts"]["running"] == said["counts"]["shadow"] > 0
    assert said["counts"]["late"] == 0 and len(said["steps"]) > 3, said


def test_a_planted_bug_is_found_in_its_batch(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    pair = Pair(spark, kafka, tmp_path)
    now = {"availableNow": True}
    for step in range(5):
        pair.put(10 * step, 10)
        for start, version in ((pair.old, plain), (pair.shadow, wrong_at_33)):
            query = start(version, now)
            assert query.awaitTermination(240)
            assert query.exception() is None
    done, said = report(pair)
    assert done == 1 and said["differs_first_in_batch"] == 3
    assert [step["missing"] for step in said["steps"]] == [0, 0, 0, 2, 0]
    command = [
        sys.executable,
        "-m",
        "eoslog",
        "shadow",
        "report",
        str(tmp_path / "new"),
        "--bootstrap-server",
    ]
    text = subprocess.run([*command, kafka.bootstrap], capture_output=True, text=True, timeout=120).stdout
    for name, said_as in ((pair.topic, "totals"), (pair.into, "totals_v2")):
        text = text.replace(name, said_as)
    shown = next(block.code for block in blocks_of(ROOT / "docs" / "shadow.md") if block.language == "text")
    assert text == shown.partition("\n")[2]
    assert {(one["kind"], one["value"]) for one in said["differences"]} == {
        ("missing", "33"),
        ("extra", "-33"),
    }


def wrong_at_33(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("key", "if(value = X'3333', X'2D3333', value) as value")


def counted(rows: DataFrame) -> DataFrame:
    """Rows a minute, written when the watermark is past it. A value is a number of seconds."""
    timed = rows.selectExpr("timestamp_seconds(cast(cast(value as string) as bigint)) as at")
    windows = timed.withWatermark("at", "10 seconds").groupBy(functions.window("at", "1 minute")).count()
    return windows.selectExpr("cast(window.start as string) as key", "cast(count as string) as value")


def test_an_aggregation_with_a_watermark(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Its rows come when the watermark says, which depends on where batches end."""
    pair = Pair(spark, kafka, tmp_path)
    now = {"availableNow": True}
    for step in range(4):
        pair.put(100 * step, 100)
        for start in (pair.old, pair.shadow):
            assert start(counted, now).awaitTermination(240)
    done, said = report(pair)
    assert done == 0 and said["equal"] and said["counts"]["running"] >= 5, said
    assert len(said["steps"]) >= 4 and said["counts"]["late"] == 0, said


def test_a_shadow_writes_nothing_of_the_running_query(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    pair = Pair(spark, kafka, tmp_path)
    pair.put(0, 5)
    now = {"availableNow": True}
    assert pair.old(plain, now).awaitTermination(240)
    before = kafka.rows(pair.topic, 2, committed=False)
    for wrong, says in (
        ({"topic": pair.topic}, "a shadow writes to the topic of shadow.into"),
        ({"transactional.id": pair.id}, "would stop it"),
        ({"kafka.group.id": pair.group}, "give the writer of the shadow another one"),
    ):
        query = pair.shadow(plain, now, **wrong)
        with pytest.raises(StreamingQueryException, match=says):
            query.awaitTermination(240)
    assert kafka.rows(pair.topic, 2, committed=False) == before
    pair.put(5, 5)
    assert pair.old(plain, now).awaitTermination(240), "it was not fenced"


def test_a_shadow_s_checkpoint_does_not_take_over(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Under the running query's names or its own it stops, and nothing is written."""
    pair = Pair(spark, kafka, tmp_path)
    once: dict[str, Any] = {"availableNow": True}

    pair.put(0, 10)
    pair.old(plain, once).awaitTermination()
    pair.shadow(plain, once).awaitTermination()
    pair.put(10, 10)
    pair.old(plain, once).awaitTermination()
    before = kafka.rows(pair.topic, 2)
    pair.put(20, 10)
    names = {"topic": pair.topic, "transactional.id": pair.id, "kafka.group.id": pair.group}
    for given in (names, names | {"transactional.id": f"{pair.id}-shadow", "kafka.group.id": "its-own"}):
        query = pair._start("new", plain, {}, given, once)
        with pytest.raises(StreamingQueryException, match="Let it take over: eoslog shadow take-over"):
            query.awaitTermination()
    assert kafka.rows(pair.topic, 2) == before
    pair.old(plain, once).awaitTermination()
    assert len(kafka.rows(pair.topic, 2)) == len(before) + 20, "it was not fenced"
