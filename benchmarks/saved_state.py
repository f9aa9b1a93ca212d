"""`make bench-state`: what it costs to save a query's state (state.topic), in time and bytes a micro-batch.

A count by key over 20,000 keys, in Spark's default state store with two partitions; each micro-batch
changes 1,500 keys or so. The same 110 micro-batches run without state.topic, and with a save every 1, 10
and 100 batches, in turns, on the bundled broker. The first ten batches of each run do not count.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from eoslog import register
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.saved.saved_world import SavedWorld
from tests.spark_session import set_environment, small_session

BATCHES, SETTLE, BATCH, KEYS = 110, 10, 2_000, 20_000
EVERY = (None, 1, 10, 100)
PARTITIONS, VERSIONS = 200, 100


@dataclass
class Spent:
    """Milliseconds of each micro-batch, and of those in which the state was saved; bytes of records in the
    state's topic, by run."""

    batches: list[float] = field(default_factory=list)
    saves: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


def run(
    spark: SparkSession, kafka: Kafka, source: str, every: int | None, spent: Spent, folder: Path
) -> None:
    """One run of the query."""
    target, state = kafka.topic(2), kafka.topic(cleanup_policy="compact")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "transactional.id": target}
    if every is not None:
        options |= {"state.topic": state, "state.every.batches": str(every)}
    read = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
    read = read.option("subscribe", source).option("startingOffsets", "earliest")
    rows = read.option("maxOffsetsPerTrigger", BATCH).load()
    key = F.col("value").cast("string").cast("long") * 7919 % KEYS
    counted = rows.withColumn("at", F.timestamp_seconds(F.lit(1))).withWatermark("at", "1 day")
    found = counted.groupBy(key.alias("k"), F.window("at", "1 day")).count()
    checkpoint = folder / uuid.uuid4().hex
    writer = found.selectExpr("cast(k as string) as value").writeStream.format("eoslog").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    for progress in query.recentProgress:
        if progress["batchId"] < SETTLE:
            continue
        took = progress["durationMs"]["triggerExecution"]
        spent.batches.append(took)
        if every is not None and progress["batchId"] % every == 0:
            spent.saves.append(took)
    if every is not None:
        records = kafka.rows(state, committed=False)
        spent.bytes.append(sum(len(key or b"") + len(value or b"") for _, _, key, value, *_ in records))


def many_partitions(broker: EmbeddedBroker, folder: Path) -> float:
    """Milliseconds of a commit that saves a state of 200 partitions, without Spark. Each has the hundred
    versions that Spark keeps, with their checksums, and a new file of 46 bytes, as when nothing changes."""
    world = SavedWorld(broker, folder)
    for partition in range(PARTITIONS):
        for version in range(1, VERSIONS + 1):
            world.write(f"state/0/{partition}/{version}.delta", "x" * 46)
            world.write(f"state/0/{partition}/.{version}.delta.crc", "x" * 12)
        world.write(f"state/0/{partition}/{VERSIONS - 10}.snapshot", "x" * 200)
    world.plan(VERSIONS - 1)
    took = []
    for number in range(VERSIONS, VERSIONS + 8):
        for partition in range(PARTITIONS):
            world.write(f"state/0/{partition}/{number}.delta", "x" * 46)
        begun = world.begin(number)
        began = time.monotonic()
        world.end(*begun)
        took.append((time.monotonic() - began) * 1000)
    return statistics.median(took)


def lines(spent: dict[int | None, Spent]) -> Iterator[str]:
    """The table of docs/state.md."""
    yield (
        "| a save every | a micro-batch, median (90th percentile) | one with a save, median "
        "| bytes a micro-batch |"
    )
    yield "|---|---|---|---|"
    for every, one in spent.items():
        name = "none" if every is None else "batch" if every == 1 else f"{every} batches"
        high = statistics.quantiles(one.batches, n=10)[-1]
        saves = f"{statistics.median(one.saves):.0f} ms" if one.saves else "-"
        size = f"{statistics.median(one.bytes) / BATCHES:,.0f}" if one.bytes else "-"
        yield f"| {name} | {statistics.median(one.batches):.0f} ms ({high:.0f}) | {saves} | {size} |"


def main() -> None:
    """Run the turns and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    turns = parser.parse_args().turns
    set_environment()
    with EmbeddedBroker() as broker, small_session() as spark, tempfile.TemporaryDirectory() as folder:
        register(spark)
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        kafka = Kafka(broker.bootstrap)
        source = kafka.topic()
        for first in range(0, BATCHES * BATCH, 50_000):
            last = min(first + 50_000, BATCHES * BATCH)
            kafka.put(source, [b"%d" % n for n in range(first, last)])
        spent = {every: Spent() for every in EVERY}
        for turn in range(turns):
            for every in EVERY[turn % 2 * 3 :: 1 - turn % 2 * 2]:
                run(spark, kafka, source, every, spent[every], Path(folder))
                print(
                    f"turn {turn}, every {every}: {statistics.median(spent[every].batches):.0f} ms",
                    flush=True,
                )
        print("\n".join(lines(spent)))
        many = many_partitions(broker, Path(folder) / "many")
        print(f"a commit with {PARTITIONS} partitions: {many:.0f} ms")


if __name__ == "__main__":
    main()
