"""How long a micro-batch of a small stream takes, from trigger to trigger, source and sink."""

from __future__ import annotations

import json
import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.spark import PARTITIONS, Bench
from benchmarks.spark_works import IDLE, WARM_UP_BATCHES

PAUSE_SECONDS = 0.02
ROWS_AT_A_TIME = 8


@contextmanager
def trickle(bootstrap: str, topic: str, size: int) -> Iterator[list[int]]:
    """A small stream into a topic: 400 rows a second, values of `size` bytes, or their time with size 0."""
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


def batch_ms(bench: Bench, connector: str, bootstrap: str, batches: int, size: int = 100) -> float:
    """The median of `batches` micro-batches of a query from a small stream to a topic, in ms.

    Checks that the sink's topic holds every row in the end.
    """
    if connector == IDLE:
        frame = bench.spark.readStream.format(IDLE).option("rows", 16).option("size", size).load()
        query = _start(bench, frame, IDLE, {})
        found = _times(query, batches)
        query.stop()
        return statistics.median(found)
    to = {"kafka.bootstrap.servers": bootstrap}
    with bench.topic(bootstrap) as source, bench.topic(bootstrap) as topic:
        with trickle(bootstrap, source, size) as sent:
            read = bench.spark.readStream.format(connector).options(**to).option("subscribe", source)
            frame = read.option("startingOffsets", "earliest").load().select("key", "value")
            query = _start(bench, frame, connector, {**to, "topic": topic})
            found = _times(query, batches)
        query.processAllAvailable()
        query.stop()
        arrived = bench.sum_of(bench.load("kafka", bootstrap, topic)).rows
        assert arrived == sent[0], f"{arrived} rows of {sent[0]} arrived"
    return statistics.median(found)


def traced_batches(
    bench: Bench, connector: str, bootstrap: str, batches: int, more: dict[str, str]
) -> list[dict[str, Any]]:
    """The progress reports of so many micro-batches of the same copy."""
    to = {"kafka.bootstrap.servers": bootstrap}
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


def delay_ms(bench: Bench, connector: str, bootstrap: str, trigger: float, seconds: float) -> float:
    """The median age in ms of records when a read_committed reader of the sink gets them.

    A record carries the time of its making; the first seconds of the query are left out.
    """
    to = {"kafka.bootstrap.servers": bootstrap}
    with bench.topic(bootstrap) as source, bench.topic(bootstrap) as topic, trickle(bootstrap, source, 0):
        read = bench.spark.readStream.format(connector).options(**to).option("subscribe", source)
        frame = read.option("startingOffsets", "earliest").load().select("key", "value")
        writer = frame.writeStream.format(connector).options(**to).option("topic", topic)
        query = (
            writer.option("checkpointLocation", bench.checkpoint())
            .trigger(processingTime=f"{trigger} seconds")
            .start()
        )
        try:
            ages = _ages(bootstrap, topic, seconds)
        finally:
            query.stop()
    assert ages, f"no record in {topic} within {seconds} s"
    return statistics.median(ages)


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
