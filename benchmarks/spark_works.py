"""What the Spark benchmarks time: a function does one run, and checks what arrived; the check is not in the
time.

A run begins with the call of Spark's reader or writer and ends when Spark says that it is done, so
planning, workers and commits are in it. Of a small stream: how long a micro-batch takes, and how old its
records are when they can be read.
"""

from __future__ import annotations

import json
import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.limits import CTransactions, Handed, Idle
from benchmarks.spark import OURS, PARTITIONS, Bench, Run

# -- rows a second ---------------------------------------------------------------------------------

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


# -- milliseconds of a micro-batch, ages of records ------------------------------------------------

PAUSE_SECONDS = 0.02
ROWS_AT_A_TIME = 20
MADE = 200
"""Rows that Spark makes for a micro-batch."""
C_TRANSACTIONS = CTransactions.name()
"""As a connector: what transactions take without a common outcome, by a client in C."""


@contextmanager
def trickle(bootstrap: str, topic: str, size: int) -> Iterator[list[int]]:
    """A small stream into a topic: 1,000 rows a second, values of `size` bytes, or their time with size 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": "true"})
    sent, over = [0], threading.Event()

    def run() -> None:
        while not over.wait(PAUSE_SECONDS):
            for _ in range(ROWS_AT_A_TIME):
                value = b"v" * size if size else b"%f" % time.time()
                producer.produce(topic, value, key=b"%d" % sent[0])
                sent[0] += 1
            producer.poll(0)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield sent
    finally:
        over.set()
        thread.join()
        assert producer.flush(30) == 0


def source_ms(bench: Bench, connector: str, bootstrap: str, batches: int) -> float:
    """The median of `batches` micro-batches of a query from a small stream to Spark's noop sink, in ms.

    Checks that Spark has counted each row once in the end.
    """
    if connector == IDLE:
        return _idle_ms(bench, _handed(bench), "noop", batches)
    with bench.topic(bootstrap) as source:
        with trickle(bootstrap, source, 100) as sent:
            query = _start(bench, _stream(bench, connector, bootstrap, source), "noop", {})
            found = _times(query, batches)
        query.processAllAvailable()
        query.stop()
        seen = sum(one["numInputRows"] for one in query.recentProgress)
        assert seen == sent[0], f"{seen} rows of {sent[0]} were read"
    return statistics.median(found)


def sink_ms(bench: Bench, connector: str, bootstrap: str, batches: int) -> float:
    """The same of a query that writes 200 rows made by Spark in each micro-batch, in four tasks.

    Checks that each row arrived once that Spark says it has written.
    """
    made = bench.spark.readStream.format("rate-micro-batch").option("numPartitions", PARTITIONS)
    frame = (
        made.option("rowsPerBatch", MADE).load().selectExpr("cast(cast(value as string) as binary) as value")
    )
    if connector == IDLE:
        return _idle_ms(bench, frame, IDLE, batches)
    with bench.topic(bootstrap) as topic:
        query = _start(bench, frame, connector, _to(bootstrap, topic=topic))
        found = _times(query, batches)
        query.stop()
        rows = (
            bench.load("kafka", bootstrap, topic).selectExpr("count(*)", "count(distinct value)").collect()[0]
        )
        least = max(one["batchId"] + 1 for one in query.recentProgress) * MADE
        assert least <= rows[0] == rows[1] <= least + MADE, f"{rows} rows arrived, {least} were written"
    return statistics.median(found)


def copy_ms(bench: Bench, connector: str, bootstrap: str, batches: int) -> float:
    """The same of a query from a small stream to a topic.

    Checks that the sink's topic holds every row in the end.
    """
    if connector == IDLE:
        return _idle_ms(bench, _handed(bench), IDLE, batches)
    if connector == C_TRANSACTIONS:
        return _written_ms(bench, _handed(bench), connector, bootstrap, batches)
    with bench.topic(bootstrap) as source, bench.topic(bootstrap) as topic:
        with trickle(bootstrap, source, 100) as sent:
            frame = _stream(bench, connector, bootstrap, source)
            query = _start(bench, frame, connector, _to(bootstrap, topic=topic))
            found = _times(query, batches)
        query.processAllAvailable()
        query.stop()
        arrived = bench.sum_of(bench.load("kafka", bootstrap, topic)).rows
        assert arrived == sent[0], f"{arrived} rows of {sent[0]} arrived"
    return statistics.median(found)


def foreach_ms(bench: Bench, connector: str, bootstrap: str, batches: int) -> float:
    """The same of a query that writes each micro-batch to two topics, by foreachBatch.

    Checks that both topics hold every row in the end.
    """
    with ExitStack() as stack:
        source, *both = (stack.enter_context(bench.topic(bootstrap)) for _ in range(3))
        name = f"two-of-{source}"

        def write(rows: DataFrame, batch: int) -> None:
            for topic in both:
                writer = rows.write.format(connector).options(**_to(bootstrap, topic=topic)).mode("append")
                (writer.option("write.token", f"{name}-{batch}") if connector == OURS else writer).save()

        with trickle(bootstrap, source, 100) as sent:
            stream = _stream(bench, connector, bootstrap, source).writeStream.foreachBatch(write)
            query = stream.option("checkpointLocation", bench.checkpoint()).start()
            found = _times(query, batches)
        query.processAllAvailable()
        query.stop()
        for topic in both:
            arrived = bench.sum_of(bench.load("kafka", bootstrap, topic)).rows
            assert arrived == sent[0], f"{arrived} rows of {sent[0]} arrived in {topic}"
    return statistics.median(found)


def _to(bootstrap: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, **more}


def _stream(bench: Bench, connector: str, bootstrap: str, topic: str) -> DataFrame:
    read = bench.spark.readStream.format(connector).options(**_to(bootstrap, subscribe=topic))
    return read.option("startingOffsets", "earliest").load().select("key", "value")


def _handed(bench: Bench) -> DataFrame:
    """As many rows as a micro-batch of the small stream has, with the plan."""
    read = bench.spark.readStream.format(HANDED).option("rows", ROWS_AT_A_TIME * 2).option("size", 100)
    return read.option("lean", "true").load()


def _idle_ms(bench: Bench, frame: DataFrame, sink: str, batches: int) -> float:
    query = _start(bench, frame, sink, {"lean": "true"} if sink == IDLE else {})
    found = _times(query, batches)
    query.stop()
    return statistics.median(found)


def _written_ms(bench: Bench, frame: DataFrame, connector: str, bootstrap: str, batches: int) -> float:
    with bench.topic(bootstrap) as topic:
        query = _start(bench, frame, connector, _to(bootstrap, topic=topic))
        found = _times(query, batches)
        query.stop()
        reports = [one for one in query.recentProgress if one["numInputRows"]]
        least, a_batch = (sum(one["numInputRows"] for one in reports), reports[0]["numInputRows"])
        arrived = bench.sum_of(bench.load("kafka", bootstrap, topic)).rows
        assert least <= arrived <= least + a_batch, f"{arrived} rows arrived, {least} were written"
    return statistics.median(found)


def traced_batches(
    bench: Bench, connector: str, bootstrap: str, batches: int, more: dict[str, str]
) -> list[dict[str, Any]]:
    """The progress reports of so many micro-batches of the same copy."""
    to = _to(bootstrap)
    with bench.topic(bootstrap) as source, bench.topic(bootstrap) as topic, trickle(bootstrap, source, 100):
        read = bench.spark.readStream.format(connector).options(**to, **more).option("subscribe", source)
        frame = read.option("startingOffsets", "earliest").load().select("key", "value")
        query = _start(bench, frame, connector, {**to, "topic": topic})
        _times(query, batches)
        found = [json.loads(one.json) for one in query.recentProgress]
        query.stop()
    return [one for one in found if one["numInputRows"]][WARM_UP_BATCHES:]


def _start(bench: Bench, frame: DataFrame, connector: str, options: dict[str, Any]) -> StreamingQuery:
    writer = frame.writeStream.format(connector).options(**options)
    return writer.option("checkpointLocation", bench.checkpoint()).start()


def _times(query: StreamingQuery, batches: int) -> list[float]:
    """Times of so many micro-batches with rows, after the first few."""
    deadline = time.monotonic() + 300
    found: dict[int, float] = {}
    while len(found) < batches + WARM_UP_BATCHES:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, f"{len(found)} micro-batches of {batches} within 300 s"
        time.sleep(0.2)
        for one in query.recentProgress:
            if one["numInputRows"]:
                found[one["batchId"]] = float(one["durationMs"]["triggerExecution"])
    return [found[number] for number in sorted(found)][WARM_UP_BATCHES : WARM_UP_BATCHES + batches]


def ages_ms(bench: Bench, connector: str, bootstrap: str, trigger: float, seconds: float) -> list[float]:
    """Ages in ms of records when a read_committed reader of the sink gets them, from low to high.

    A record carries the time of its making; the first seconds of the query are left out. The sink of
    librdkafka's transactions has eoslog's source.
    """
    with bench.topic(bootstrap) as source, bench.topic(bootstrap) as topic, trickle(bootstrap, source, 0):
        frame = _stream(bench, OURS if connector == C_TRANSACTIONS else connector, bootstrap, source)
        writer = frame.writeStream.format(connector).options(**_to(bootstrap, topic=topic))
        writer = writer.option("checkpointLocation", bench.checkpoint())
        query = writer.trigger(processingTime=f"{trigger} seconds").start()
        try:
            ages = _ages(bootstrap, topic, seconds)
        finally:
            query.stop()
    assert ages, f"no record in {topic} within {seconds} s"
    return sorted(ages)


def _ages(bootstrap: str, topic: str, seconds: float) -> list[float]:
    """Ages of what arrives in `seconds`, after the first record and five more seconds."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"ages-{topic}", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": "false", "fetch.wait.max.ms": 10,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ages, begins, deadline = [], math.inf, time.monotonic() + 120
    try:
        while time.monotonic() < min(begins + seconds, deadline):
            for message in consumer.consume(1000, 0.05):
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                now = time.monotonic()
                begins = min(begins, now + 5)
                if now >= begins:
                    ages.append((time.time() - float(message.value() or b"nan")) * 1000)
    finally:
        consumer.close()
    return ages
