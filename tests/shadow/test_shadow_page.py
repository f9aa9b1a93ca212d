"""docs/shadow.md as its reader types it: a shadow of a running query, then the new version takes over."""

import re
import subprocess
import sys
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
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


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
        old.stop()
        shadow.processAllAvailable()
        shadow.stop()
        (command,) = (line for line in typed("bash", 0).splitlines() if "take-over" in line)
        assert eoslog(kafka, *command.split()[1:]).startswith("done: ")
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
