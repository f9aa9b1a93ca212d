"""A new version of a query with state takes over from the living one, again and again: `make soak-take-over`.

Each version begins with the state of the one before: `restore_checkpoint` stops that one, and writes its
checkpoint into a new folder. Rows come all the time. At every other take-over Spark's Python processes are
killed first, so that a batch is open. At the end each window of each key must be there once, with the right
count and sum.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psutil
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from eoslog import register
from eoslog.checkpoint import restore_checkpoint
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.spark_session import set_environment, small_session

KEYS, A_SECOND, WINDOW = 5, 100, 10
"""Rows of a second of event time, and seconds of a window."""
START = 1_000_000
PATIENCE_SECONDS, TRIES = 240.0, 5


@dataclass
class Feed:
    """Puts rows all the time; their event time goes ten times as fast as the clock."""

    kafka: Kafka
    topic: str
    rows: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is ended."""
        producer = self.kafka.producer(acks="all", linger_ms=5)
        while not self.ended.wait(0.1):
            for number in range(self.rows, self.rows + A_SECOND):
                producer.produce(self.topic, b"%d" % number, partition=number // A_SECOND % 2)
            producer.flush()
            self.rows += A_SECOND

    def expected(self) -> Counter[tuple[int, int, int, int]]:
        """Key, start, count and sum of each window that is closed at the end."""
        windows: dict[tuple[int, int], list[int]] = {}
        for number in range(self.rows):
            start = (START + number // A_SECOND) // WINDOW * WINDOW
            windows.setdefault((number % KEYS, start), []).append(number)
        last = START + (self.rows - 1) // A_SECOND
        return Counter(
            (key, start, len(numbers), sum(numbers))
            for (key, start), numbers in windows.items()
            if start + WINDOW <= last - WINDOW
        )


@dataclass
class Reader:
    """Reads the target as committed readers do, and notes when something came. `spans`: when the first and
    the last row of each version did."""

    kafka: Kafka
    topic: str
    seen: list[float] = field(default_factory=list)
    rows: Counter[tuple[int, int, int, int]] = field(default_factory=Counter)
    versions: set[int] = field(default_factory=set)
    spans: dict[int, tuple[float, float]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until it is ended and nothing more comes."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.assign([TopicPartition(self.topic, p, 0) for p in range(2)])
        while True:
            message = consumer.poll(0.2)
            if message is None:
                if self.ended.is_set():
                    return
                continue
            assert message.error() is None, message.error()
            one = json.loads(message.value() or b"")
            self.rows[one["k"], one["start"], one["n"], one["sum"]] += 1
            version, now = one["version"], time.monotonic()
            self.versions.add(version)
            self.seen.append(now)
            self.spans[version] = (self.spans.get(version, (now, now))[0], now)


class Versions:
    """The versions of one query, one after the other."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.source, self.target = kafka.topic(2), kafka.topic(2)
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "topic": self.target,
            "transactional.id": "versions",
            "state.topic": kafka.topic(cleanup_policy="compact"),
        }
        self.number, self.restored = 0, 0

    def next(self) -> StreamingQuery:
        """The next version, in the place of the one before."""
        self.number += 1
        checkpoint = str(self._folder / f"checkpoint-{self.number}")
        if restore_checkpoint(checkpoint, self.options) is not None:
            self.restored += 1
        return self.start()

    def start(self) -> StreamingQuery:
        """This version, with its checkpoint. Tried again if Spark has just lost the Python process that it
        asks about the source."""
        for _ in range(TRIES):
            try:
                return self._start()
            except (PySparkException, Py4JError):
                time.sleep(0.5)
        return self._start()

    def _start(self) -> StreamingQuery:
        checkpoint = str(self._folder / f"checkpoint-{self.number}")
        source = {"kafka.bootstrap.servers": self.options["kafka.bootstrap.servers"]}
        read = self._spark.readStream.format("eoslog").options(**source, subscribe=self.source)
        rows = read.option("startingOffsets", "earliest").load()
        number = F.col("value").cast("string").cast("long")
        at = F.timestamp_seconds(F.floor(number / A_SECOND) + START)
        named = rows.select((number % KEYS).alias("k"), number.alias("v"), at.alias("at"))
        window = F.window("at", f"{WINDOW} seconds").alias("w")
        counted = named.withWatermark("at", f"{WINDOW} seconds").groupBy("k", window)
        sums = counted.agg(F.count("*").alias("n"), F.sum("v").alias("sum"))
        start = F.unix_seconds("w.start").alias("start")
        version = F.lit(self.number).alias("version")
        value = F.to_json(F.struct("k", start, "n", "sum", version)).alias("value")
        sink = sums.select(value).writeStream.format("eoslog").options(**self.options)
        sink = sink.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds")
        return sink.start()


def kill_pythons(random: Random) -> int:
    """SIGKILL to all of Spark's Python processes, or to some."""
    killed = 0
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            is_python = one.name().startswith("python") and "pyspark" in " ".join(one.cmdline())
            if is_python and random.random() < 0.7:
                one.kill()
                killed += 1
    return killed


def works(query: StreamingQuery, batches: int) -> bool:
    """Whether the query gets so far; False: it ended."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while query.isActive and len([p for p in query.recentProgress if p["numInputRows"]]) < batches:
        assert time.monotonic() < deadline, "the query does not go on"
        time.sleep(0.05)
    return query.isActive


def run(
    spark: SparkSession, kafka: Kafka, folder: Path, take_overs: int, seed: int, kills: bool = False
) -> int:
    """All take-overs and the audit. Returns how many windows are lost, doubled or wrong."""
    random, versions, took, killed = Random(seed), Versions(spark, kafka, folder), [], 0
    feed, reader = Feed(kafka, versions.source), Reader(kafka, versions.target)
    threads = [threading.Thread(target=one.run, daemon=True) for one in (feed, reader)]
    for thread in threads:
        thread.start()
    query = versions.next()
    gaps, batch_times = [], []
    while versions.number <= take_overs:
        if not works(query, 2):
            query = versions.start()
            continue
        time.sleep(random.random())
        batch_times += [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress]
        if kills and versions.number % 2:
            killed += kill_pythons(random)
        began = time.monotonic()
        query = versions.next()
        took.append(began)
    while not works(query, 1):
        query = versions.start()
    feed.ended.set()
    threads[0].join()
    query.processAllAvailable()
    time.sleep(3.0)
    query.stop()
    reader.ended.set()
    threads[1].join()
    for began in took:
        before = [at for at in reader.seen if at <= began]
        after = [at for at in reader.seen if at > began]
        gaps += [after[0] - before[-1]] if before and after else []
    lost, doubled = wrong_windows(feed, reader)
    batch_times.sort()
    print(
        f"{take_overs} take-overs, {killed} processes killed, {versions.restored} restores, {feed.rows} "
        f"rows, {reader.rows.total()} windows by {len(reader.versions)} versions: {lost} lost or "
        f"wrong, {doubled} doubled or wrong",
        flush=True,
    )
    gaps.sort()
    print(
        f"a micro-batch: median {batch_times[len(batch_times) // 2]:.2f} s, longest {batch_times[-1]:.2f} s;"
        f" readers waited at a take-over: median {gaps[len(gaps) // 2]:.2f} s, longest {gaps[-1]:.2f} s"
    )
    assert versions.restored >= take_overs - 1, "a version began without the state of the one before"
    return lost + doubled


def wrong_windows(feed: Feed, reader: Reader) -> tuple[int, int]:
    """How many windows are lost or wrong, and doubled or wrong. One that closes just now may be there."""
    expected = feed.expected()
    lost, surplus = expected - reader.rows, reader.rows - expected
    later = sum(1 for key in surplus if key[1] + WINDOW > START + feed.rows // A_SECOND - WINDOW - 2)
    return lost.total(), surplus.total() - later


Run = Callable[..., int]
"""A soak: takes Spark, broker, folder, take-overs, seed and its modes. Returns how many windows are lost,
doubled or wrong."""


def main(run: Run, description: str | None, *modes: str) -> int:
    """Run a soak by its command line, in the modes that are given. Exit status 0 if all is exact."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--take-overs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    for mode in modes:
        parser.add_argument(f"--{mode}", action="store_true")
    args = parser.parse_args()
    set_environment()
    with (
        EmbeddedBroker() as broker,
        small_session() as spark,
        tempfile.TemporaryDirectory(prefix="take-over-", ignore_cleanup_errors=True) as folder,
    ):
        register(spark)
        kafka = Kafka(broker.bootstrap)
        given = [bool(getattr(args, mode)) for mode in modes]
        wrong = run(spark, kafka, Path(folder), args.take_overs, args.seed, *given)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(run, __doc__, "kills"))
