"""What the Spark benchmarks time: each function does one run and returns rows a second.

Every run checks what arrived; the check is not in the time. A run begins with the call of Spark's reader or
writer and ends when Spark says that it is done, so planning, workers and commits are in it.
"""

from __future__ import annotations

import statistics

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.idle_source import Handed, Idle
from benchmarks.spark import OURS, PARTITIONS, Bench, Run

AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}
WARM_UP_BATCHES = 5
"""Micro-batches of a query that are not counted: connections, coordinators and names are new in them."""
IDLE = Idle.name()
"""As a connector: what Spark takes for a Python source and sink that do nothing. Nothing arrives anywhere."""
HANDED = Handed.name()
"""Such a source whose rows come with the plan."""


def source_batch(bench: Bench, connector: str, bootstrap: str, rows: int, size: int) -> Run:
    """Read a topic to Spark's noop sink."""
    topic = bench.filled(bootstrap, rows, size)
    with bench.timed(rows) as run:
        bench.load(connector, bootstrap, topic).write.format("noop").mode("overwrite").save()
    return run


def check_source(bench: Bench, connector: str, bootstrap: str, rows: int, size: int) -> None:
    """The same topic read with the connector gives the rows that were sent."""
    bench.check(bootstrap, bench.filled(bootstrap, rows, size), rows, size, connector)


def sink_batch(
    bench: Bench, connector: str, bootstrap: str, rows: int, size: int, more: dict[str, str] | None = None
) -> Run:
    """Write made rows to a fresh topic."""
    with bench.topic(bootstrap) as topic:
        frame = bench.rows(rows, size)
        with bench.timed(rows) as run:
            writer = frame.write.format(connector).option("topic", topic).options(**(more or {}))
            writer.option("kafka.bootstrap.servers", bootstrap).mode("append").save()
        _check_sink(bench, connector, bootstrap, topic, rows, size)
    return run


def small_write(bench: Bench, connector: str, bootstrap: str, rows: int, tasks: int) -> float:
    """Seconds that a write of so many rows in so many tasks takes."""
    with bench.topic(bootstrap) as topic:
        frame = bench.spark.range(0, rows, 1, tasks).selectExpr("cast(cast(id as string) as binary) as value")
        with bench.timed(rows) as run:
            writer = frame.write.format(connector).option("topic", topic)
            if connector == IDLE:
                writer = writer.option("lean", "true")
            writer.option("kafka.bootstrap.servers", bootstrap).mode("append").save()
        if connector != IDLE:
            arrived = bench.sum_of(
                bench.load("kafka", bootstrap, topic).selectExpr("value as key", "value")
            ).rows
            assert arrived == rows, f"{arrived} rows of {rows} arrived"
    return run.seconds


def _check_sink(bench: Bench, connector: str, bootstrap: str, topic: str, rows: int, size: int) -> None:
    if connector != IDLE:
        bench.check(bootstrap, topic, rows, size)


def sink_stream(
    bench: Bench, connector: str, bootstrap: str, rows: int, size: int, more: dict[str, str] | None = None
) -> Run:
    """Write made rows as one micro-batch of a streaming query to a fresh topic."""
    filler = "x" * (size - 10)
    with bench.topic(bootstrap) as topic:
        made = bench.spark.readStream.format("rate-micro-batch").option("numPartitions", PARTITIONS)
        frame = made.option("rowsPerBatch", rows).load().selectExpr(
            "cast(cast(value as string) as binary) as key",
            f"cast(concat(cast(value + 1000000000 as string), '{filler}') as binary) as value",
        )  # fmt: skip
        with bench.timed(rows) as run:
            _run(bench, frame, connector, bootstrap, topic, more)
        _check_sink(bench, connector, bootstrap, topic, rows, size)
    return run


def copy(
    bench: Bench, connector: str, bootstrap: str, rows: int, size: int, more: dict[str, str] | None = None
) -> Run:
    """Copy a topic to a fresh one with a streaming query."""
    source = bench.filled(bootstrap, rows, size)
    with bench.topic(bootstrap) as topic:
        reader = bench.spark.readStream.format(connector).option("subscribe", source)
        reader = reader.option("startingOffsets", "earliest").option("kafka.bootstrap.servers", bootstrap)
        with bench.timed(rows) as run:
            _run(bench, reader.load().select("key", "value"), connector, bootstrap, topic, more)
        bench.check(bootstrap, topic, rows, size)
    return run


def idle_copy(bench: Bench, rows: int, size: int) -> Run:
    """As many rows as a copy, from a source that makes them in memory to a sink that drops them."""
    reader = bench.spark.readStream.format(IDLE).option("size", size)
    frame = reader.option("rows", rows // PARTITIONS).load()
    with bench.timed(rows) as run:
        _run(bench, frame, IDLE, "", "", None)
    return run


def _run(
    bench: Bench, frame: DataFrame, connector: str, bootstrap: str, topic: str, more: dict[str, str] | None
) -> StreamingQuery:
    """A query from its start to its end, all that was there written."""
    writer = frame.writeStream.format(connector).option("topic", topic).options(**(more or {}))
    writer = writer.option("kafka.bootstrap.servers", bootstrap)
    query: StreamingQuery = (
        writer.option("checkpointLocation", bench.checkpoint()).trigger(availableNow=True).start()
    )
    assert query.awaitTermination(600), "the query has not ended within 600 s"
    return query


def paced(
    bench: Bench,
    bootstrap: str,
    rows: int,
    size: int,
    more: dict[str, str],
    batches: int = 6,
    connector: str = OURS,
    reading: dict[str, str] | None = None,
) -> float:
    """Seconds of a micro-batch of `rows` rows of a copy, the median of `batches` after the first few. `more`:
    options of the sink, `reading`: of the source."""
    whole = rows * (batches + WARM_UP_BATCHES)
    source = bench.filled(bootstrap, whole, size)
    with bench.topic(bootstrap) as topic:
        reader = bench.spark.readStream.format(connector).option("subscribe", source).options(**reading or {})
        reader = reader.option("startingOffsets", "earliest").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.option("maxOffsetsPerTrigger", rows).load().select("key", "value")
        query = _run(bench, frame, connector, bootstrap, topic, more)
        bench.check(bootstrap, topic, whole, size)
    times = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    return float(statistics.median(times[WARM_UP_BATCHES:]) / 1000)
