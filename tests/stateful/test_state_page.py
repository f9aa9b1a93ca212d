"""docs/state.md as its reader types it: the checkpoint is lost while the query does not run, and restored, by
the program and by the command."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import ROOT, blocks_of
from tests.kit.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    with EmbeddedBroker() as broker:
        yield Kafka(broker.bootstrap)


def eoslog(kafka: Kafka, *command: str) -> str:
    called = [sys.executable, "-m", "eoslog", *command, "--bootstrap-server", kafka.bootstrap]
    done = subprocess.run(called, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_the_page(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    blocks = blocks_of(ROOT / "docs" / "state.md")
    shell = next(block.code for block in blocks if block.language == "bash")
    (code,) = [block.code for block in blocks if block.language == "python"]
    eoslog(kafka, *shlex.split(shell)[1:])
    for name in ("orders", "totals"):
        kafka.topic(name=name)
    given = {"kafka.bootstrap.servers": kafka.bootstrap}
    checkpoint = tmp_path / "checkpoint"
    put = 0

    def totals() -> DataFrame:
        read = spark.readStream.format("eoslog").options(**given, subscribe="orders")
        rows = read.option("startingOffsets", "earliest").load()
        at = F.timestamp_seconds(F.col("value").cast("string").cast("long"))
        counted = rows.withColumn("at", at).withWatermark("at", "1 second")
        found = counted.groupBy(F.window("at", "10 seconds")).count()
        return found.select(
            F.to_json(F.struct(F.unix_seconds("window.start").alias("s"), "count")).alias("value")
        )

    def typed_and_run(batches: int) -> None:
        nonlocal put
        names: dict[str, Any] = {"kafka": given, "totals": totals()}
        exec(code.replace("./", f"{tmp_path}/"), names)
        query = names["query"]
        for _ in range(batches):
            kafka.put("orders", [b"%d" % (1000 + n) for n in range(put, put + 7)])
            put += 7
            query.processAllAvailable()
        query.stop()

    typed_and_run(3)
    shutil.rmtree(checkpoint)
    typed_and_run(3)
    shutil.rmtree(checkpoint)
    said = eoslog(kafka, "checkpoint", "restore", str(checkpoint), "--transactional-id", "totals")
    assert "is restored" in said and "for the state alone" in said
    typed_and_run(3)
    until(lambda: len(kafka.rows("totals")) >= 5, "the windows", 60)
    found = [json.loads(value) for _, _, _, value, *_ in kafka.rows("totals")]
    closed = [start for start in range(1000, 1070, 10) if start + 10 <= 1000 + put - 2]
    assert sorted(found, key=lambda one: one["s"]) == [{"s": start, "count": 10} for start in closed]
