"""Streams: both connectors cut their batches at the same offsets and give the same rows."""

import json
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eoslog.connector.spark.versions import works
from tests.connector.differential.both import CONNECTORS, Row, outcome, rows_of
from tests.connector.differential.draws import Topic, draw
from tests.connector.stock_kafka import Kafka, bare
from tests.spark_session import all_available

pytestmark = pytest.mark.kafka

SEED = int(os.environ.get("SEED", "1"))
DRAWS = int(os.environ.get("STREAMS", "12"))


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


def test_streams_are_equal(spark: SparkSession, kafka: Kafka, topics: list[Topic], tmp_path: Path) -> None:
    random = Random(SEED)
    differences, batches, rows = [], 0, 0
    for number in range(DRAWS):
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
    print(f"\nseed {SEED}: {DRAWS} streams, {batches} batches, {rows} rows each, {len(differences)} differ")
    assert not differences, "\n\n".join(differences)
    assert batches > 2 * DRAWS and rows > 20 * DRAWS
