"""A Spark application for test_orderly_end.py: copies a topic, and is ended in the middle of a batch.

Arguments: bootstrap, source topic, target topic, checkpoint, how it ends: `run@<way>` (until all is copied),
or the ends, one after another, each with a query of its own: `<end>@<place>` of spark_probe.py, or
`<end>:<way>@<place>`. The ways to write are `stream`, `write` (df.write) and `tokens` (`foreachBatch`, with a
token for each batch). What of the sink was open, from its end on, goes to ends.jsonl in the probe's folder.
`wait` at a place is the last one: somebody else ends the application. `late` is a stop after which the tasks
go on for LATE_SECONDS, write something, and are killed then, as Spark is told to wait for them.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.connector.brokers import Kafka
from tests.connector.spark_probe import WRITING, ProbeSource

FOLDER = Path(os.environ["EOSLOG_PROBE"])
LOOKS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
LATE_SECONDS = 4.0
KILL_SECONDS = 6
"""spark.python.task.killTimeout of late tasks."""
LATE_LOOKS = (5.0, 8.0, 9.0)


def main(bootstrap: str, source: str, target: str, checkpoint: str, *ends: str) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
        .config("spark.python.task.killTimeout", f"{KILL_SECONDS if is_late(*ends) else 2}s")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(ProbeSource)
    if ends[0].startswith("run@"):
        copy(spark, ends[0].partition("@")[2], bootstrap, source, target, checkpoint)
        return
    with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
        for number, told in enumerate(ends):
            end, place = told.split("@")
            kind, _, way = end.partition(":")
            name = f"{checkpoint}-{number}"
            prefix = f"{target}-{number}"
            one_end(spark, kind, way or "stream", place, bootstrap, source, prefix, name)
            began, seen = time.monotonic(), {}
            for after in LATE_LOOKS if is_late(told) else LOOKS:
                time.sleep(max(0.0, began + after - time.monotonic()))
                found = transaction_states.list_transactions(cluster, prefix, ["Ongoing"])
                seen[after] = [listing.transactional_id for listing in found]
            written = [json.loads(line) for line in notes()]
            late = [note["at"] for note in written if note["time"] > time.time() - time.monotonic() + began]
            kafka = Kafka(bootstrap)
            kafka.put(prefix, [b"somebody else's"])
            values = [row[3] for row in kafka.rows(prefix, 2)]
            (FOLDER / "orders.json").write_text("[]")
            copy(spark, way or "stream", bootstrap, source, prefix, name)
            note = json.dumps({"end": told, "open": seen, "seen": b"somebody else's" in values, "late": late})
            with (FOLDER / "ends.jsonl").open("a") as file:
                file.write(f"{note}\n")


def one_end(
    spark: SparkSession,
    kind: str,
    way: str,
    place: str,
    bootstrap: str,
    source: str,
    target: str,
    checkpoint: str,
) -> None:
    for path in (*FOLDER.glob("go-*"), *FOLDER.glob("notes.jsonl")):
        path.unlink()
    batch = 0 if way == "write" else 1
    order: list[dict[str, Any]] = [{"at": place, "batch": batch, "do": "wait"}]
    if kind == "late":
        order.append({"at": WRITING, "batch": batch, "do": "wait"})
    (FOLDER / "orders.json").write_text(json.dumps([] if kind == "fail" else order))
    if way == "write":
        frame = everything(spark, bootstrap, source)
        if kind == "wait":
            write(frame, bootstrap, target)
        try:
            write(broken(frame), bootstrap, target)
        except Exception as error:
            print("failed as told:", str(error)[:100])
        return
    copied = rows(spark, bootstrap, source)
    query = start(broken(copied) if kind == "fail" else copied, way, bootstrap, target, checkpoint)
    if kind == "fail":
        try:
            query.awaitTermination()
        except Exception as error:
            print("failed as told:", str(error)[:100])
        return
    if kind == "wait":
        query.awaitTermination()
    while not any(json.loads(line)["at"] == place and json.loads(line)["batch"] == 1 for line in notes()):
        assert query.isActive, query.exception()
        time.sleep(0.02)
    if kind == "late":
        time.sleep(1)  # its rows are on their way: what Spark has sent is there to be written
    threading.Timer(LATE_SECONDS if kind == "late" else 0.5, (FOLDER / f"go-{place}").touch).start()
    query.stop()


def copy(spark: SparkSession, way: str, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    """The same without the end in its midst."""
    if way == "write":
        write(everything(spark, bootstrap, source), bootstrap, target)
    else:
        start(rows(spark, bootstrap, source), way, bootstrap, target, checkpoint).awaitTermination()


def is_late(*ends: str) -> bool:
    return any(end.startswith("late") for end in ends)


def everything(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    read = spark.read.format("eoslog").option("kafka.bootstrap.servers", bootstrap)
    return read.option("subscribe", source).load().select("key", "value")


def notes() -> list[str]:
    path = FOLDER / "notes.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def broken(frame: DataFrame) -> DataFrame:
    fails = udf(lambda value: bytes(value) if b"7777" not in bytes(value) else 1 // 0, "binary")
    return frame.select("key", fails("value").alias("value"))


def rows(spark: SparkSession, bootstrap: str, source: str) -> DataFrame:
    return (
        spark.readStream.format("eoslog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4000)
        .load()
        .select("key", "value")
    )


def options(writer: Any, bootstrap: str, target: str) -> Any:
    return (
        writer.option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.max.request.size", 5000)
        .option("topic", target)
        .option("transactional.id", target)
    )


def write(frame: DataFrame, bootstrap: str, target: str, **more: str) -> None:
    writer = options(frame.write.format("eoslog_probe"), bootstrap, target)
    writer.options(**more).mode("append").save()


def start(frame: DataFrame, way: str, bootstrap: str, target: str, checkpoint: str) -> StreamingQuery:
    def with_token(rows: DataFrame, batch: int) -> None:
        write(rows, bootstrap, target, **{"write.token": f"{Path(checkpoint).name}-{batch}"})

    if way == "tokens":
        writer = frame.writeStream.foreachBatch(with_token)
    else:
        writer = options(frame.writeStream.format("eoslog_probe"), bootstrap, target)
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
