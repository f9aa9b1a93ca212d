"""Shadows in a real Spark, and docs/shadow.md as its reader types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.docs.reader import ROOT, all_match, blocks_of
from tests.kit.program import until
from tests.spark_session import all_available

# -- shadows ---------------------------------------------------------------------------------------
# A new version of a query runs beside the old one on its batches, and is compared.


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
    assert all_match(text.splitlines(), shown.splitlines()[1:]), text
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


# -- the page --------------------------------------------------------------------------------------
# docs/shadow.md as its reader types it: a shadow of a running query, then the new version takes over.


def eoslog(kafka: Kafka, *command: str) -> str:
    called = [sys.executable, "-m", "eoslog", *command, "--bootstrap-server", kafka.bootstrap]
    done = subprocess.run(called, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout.splitlines()[-1]


def version(rows: DataFrame) -> DataFrame:
    return rows.select("key", "value")


def first_version(
    spark: SparkSession,
    folder: Path,
    new: Callable[[DataFrame], DataFrame],
    options: dict[str, str],
    names: dict[str, str],
) -> StreamingQuery:
    """The running query, from the beginning of orders to totals."""
    source = spark.readStream.format("eoslog").options(**options).option("subscribe", "orders")
    rows = new(source.option("startingOffsets", "earliest").load())
    sink = rows.writeStream.format("eoslog").options(**options, **names).option("topic", "totals")
    sink = sink.option("checkpointLocation", str(folder / "checkpoint-v1"))
    return sink.trigger(processingTime="0 seconds").start()


def test_the_page(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Under load all the time; what was written is exact."""
    for name in ("orders", "totals", "totals_v2"):
        kafka.topic(2, name=name)
    options = {"kafka.bootstrap.servers": kafka.bootstrap}
    names = {"kafka.group.id": "totals", "transactional.id": "totals-v1"}
    old = first_version(spark, tmp_path, version, options, names)
    put = 0

    def more(seconds: float) -> bool:
        nonlocal put
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            kafka.put("orders", [b"%d" % n for n in range(put, put + 10)], put // 10 % 2)
            put += 10
        return False

    def typed(number: int) -> Any:
        code = [block.code for block in blocks_of(ROOT / "docs" / "shadow.md") if block.language == "python"]
        given: dict[str, Any] = {"spark": spark, "kafka": options, "new_version": version}
        exec(code[number].replace("./", f"{tmp_path}/"), given)
        return given["query"]

    until(lambda: old.lastProgress is not None or more(0.5), "the old version's first batch", 240)
    shadow = typed(0)
    until(
        lambda: len(list((tmp_path / "checkpoint-v2/commits").glob("[0-9]*"))) > 3 or more(0.5),
        "batches",
        240,
    )
    shadow.stop()
    said = eoslog(kafka, "shadow", "report", str(tmp_path / "checkpoint-v2"))
    assert said.startswith("equal: "), said
    new = typed(1)
    until(lambda: not old.isActive or more(0.5), "the old version stops", 240)
    more(2)
    new.processAllAvailable()
    new.stop()
    with pytest.raises(StreamingQueryException, match=r"SinkFenced|TakenOver"):
        old.awaitTermination()
    said = eoslog(kafka, "audit", "orders", "--to", "totals", "--order", "none")
    assert said == f"right: {put:,} records are in the target exactly once", said


def test_the_page_with_another_state(spark: SparkSession, tmp_path: Path) -> None:
    """A version that adds up takes over from one that counts; each window is there once."""

    def windows(rows: DataFrame, sums: bool) -> DataFrame:
        seconds = rows.selectExpr("cast(cast(value as string) as bigint) as n")
        timed = seconds.withColumn("at", functions.timestamp_seconds("n")).withWatermark("at", "10 seconds")
        found = [functions.count("*"), functions.sum("n")][: 1 + sums]
        grouped = timed.groupBy(functions.window("at", "1 minute")).agg(functions.to_json(
            functions.struct(*found)).alias("value"))  # fmt: skip
        return grouped.selectExpr("cast(unix_seconds(window.start) as string) as key", "value")

    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        for name in ("orders", "totals", "totals_v2"):
            kafka.topic(2, name=name)
        options = {"kafka.bootstrap.servers": kafka.bootstrap}
        names = {"kafka.group.id": "totals", "transactional.id": "totals-v1"}
        old = first_version(spark, tmp_path, partial(windows, sums=False), options, names)
        put = 0

        def more(rounds: int) -> bool:
            nonlocal put
            for _ in range(rounds):
                for p in (0, 1):
                    kafka.put("orders", [b"%d" % n for n in range(put, put + 50)], p)
                put += 50
            return False

        def typed(language: str, number: int) -> str:
            page = blocks_of(ROOT / "docs" / "shadow.md")
            code = [block.code for block in page if block.language == language][number]
            return code.replace("./", f"{tmp_path}/")

        def started(code: str) -> Any:
            given: dict[str, Any] = {
                "spark": spark, "kafka": options, "new_version": lambda rows: windows(rows, sums=True),
            }  # fmt: skip
            exec(code, given)
            return given["query"]

        until(lambda: more(1) or (tmp_path / "checkpoint-v1/commits/3").exists(), "batches", 240)
        shadow = started(typed("python", 0).replace('"committed"', '"earliest"'))
        until(lambda: more(1) or (tmp_path / "checkpoint-v2/commits/3").exists(), "batches", 240)
        (command,) = (line for line in typed("bash", 0).splitlines() if "take-over" in line)
        said = list[str]()
        thread = threading.Thread(target=lambda: said.append(eoslog(kafka, *command.split()[1:])))
        thread.start()
        until(lambda: not thread.is_alive() or more(1), "the take-over", 240)
        assert said and said[0].startswith("done: "), said
        until(lambda: not old.isActive or more(1), "the old version stops", 240)
        assert re.search("SinkFenced|TakenOver", str(old.exception())), old.exception()
        shadow.processAllAvailable()
        more(3)
        shadow.processAllAvailable()
        shadow.stop()
        new = started(typed("python", 3))
        more(3)
        new.processAllAvailable()
        new.stop()
        closed = (put - 11) // 60
        assert sorted(int(row[2]) for row in kafka.rows("totals", 2)) == [60 * n for n in range(closed)]


def test_the_page_with_state(spark: SparkSession, tmp_path: Path) -> None:
    """A query that keeps state is taken over under load; its rows come twice, and are written once."""

    def stateful(rows: DataFrame) -> DataFrame:
        return rows.dropDuplicates(["value"]).select("key", "value")

    with EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        for name in ("orders", "totals"):
            kafka.topic(2, name=name)
        kafka.topic(name="totals_state", cleanup_policy="compact")
        options = {"kafka.bootstrap.servers": kafka.bootstrap}
        names = {"kafka.group.id": "totals", "transactional.id": "totals-v1", "state.topic": "totals_state"}
        old = first_version(spark, tmp_path, stateful, options, names)
        put = 0

        def more(rounds: int) -> bool:
            nonlocal put
            for _ in range(rounds):
                first = max(put - 30, 0)
                kafka.put("orders", [b"%d" % n for n in range(first, put + 10)], put // 10 % 2)
                put += 10
            return False

        until(lambda: more(1) or (tmp_path / "checkpoint-v1/commits/3").exists(), "batches", 240)
        code = [block.code for block in blocks_of(ROOT / "docs" / "shadow.md") if block.language == "python"]
        given: dict[str, Any] = {"spark": spark, "kafka": options, "new_version": stateful}
        exec(code[2].replace("./", f"{tmp_path}/"), given)
        new = given["query"]
        until(lambda: more(1) or not old.isActive, "the old version stops", 240)
        more(5)
        new.processAllAvailable()
        new.stop()
        fenced = str(old.exception())  # in one session Spark stops it: it is the same query
        assert fenced == "None" or re.search("SinkFenced|TakenOver|CheckpointOlder", fenced), fenced
        assert sorted(int(row[3]) for row in kafka.rows("totals", 2)) == list(range(put))
