"""A shadow takes over from the living version, again and again, with its own state: `make soak-shadows`.

Each version keeps another state than the one before. Its shadow reads the source from the beginning, and
follows the living version while rows come all the time. Then the living version is stopped, or its Python
processes are killed, and those of the shadow with them. The shadow takes over, and goes on. At the end each
window of each key must be there once, with the right count and sum.

With `--live` nobody is stopped: the shadow takes over while both run, or while their processes are killed.
With `--rests` the living version begins a batch every REST seconds, not as soon as the last one has ended.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from random import Random

from click.testing import CliRunner
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from eoslog.cli import main as eoslog
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from tests.connector.brokers import Kafka
from tests.stateful.soak_take_over import (
    A_SECOND,
    KEYS,
    PATIENCE_SECONDS,
    START,
    TRIES,
    WINDOW,
    Feed,
    Reader,
    kill_pythons,
    main,
    works,
    wrong_windows,
)

AGAIN = ("batches after the one", "a transaction is open", "has not done batch", "has no batch")
"""What a take-over says if the shadow has to run for longer."""
REST = 8
APART = 0.1
"""Rows so many seconds apart are of two batches."""
FOLLOWED = 5
"""Batches that a shadow does before it takes over."""


class Versions:
    """The versions of one query. The one with `number` runs; the next is its shadow."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path, seconds: int) -> None:
        self._spark, self._kafka, self._folder, self._seconds = spark, kafka, folder, seconds
        self.source, self.target, self.into = kafka.topic(2), kafka.topic(2), ""
        self.number, self.added, self.tries = 0, 0, 0
        self.options: dict[int, tuple[dict[str, str], dict[str, str]]] = {}

    def live(self, *, as_shadow: bool = False) -> StreamingQuery:
        """Start the version that has the query's place. `as_shadow`: with the options that it had before."""
        writes = {"topic": self.target, "transactional.id": "versions", "kafka.group.id": "versions-group"}
        given = self.options[self.number] if as_shadow and self.number in self.options else ({}, writes)
        return self._start(self.number, *given, seconds=self._seconds)

    def shadow(self) -> StreamingQuery:
        """Start the next version beside it."""
        named = {"shadow.of": "versions", "shadow.topic": self.target, "shadow.into": self.into}
        writes = {"topic": self.into, "transactional.id": f"shadow-{self.number + 1}"}
        given = self.options[self.number + 1] = {**named, "kafka.group.id": "versions-group"}, writes
        return self._start(self.number + 1, *given)

    def has_taken_over(self) -> bool:
        """Whether the shadow has the place now."""
        noted = NotedSink.read(Checkpoint.at(str(self._folder / f"{self.number + 1}")))
        return noted is not None and noted.sink == "versions"

    def take_over_live(self, live: StreamingQuery, shadow: StreamingQuery) -> StreamingQuery:
        """Have the shadow take over while both run. What was killed is started again first."""
        place, deadline = str(self._folder / f"{self.number + 1}"), time.monotonic() + PATIENCE_SECONDS
        while not self.has_taken_over():
            self.tries += 1
            assert time.monotonic() < deadline, (live.exception(), shadow.exception())
            if not live.isActive:
                live = self.live()
            if not shadow.isActive:
                shadow = self.shadow()
            if not works(shadow, 1):
                continue
            command = ["shadow", "take-over", place, "--live", "--key", "--json", "--wait", "30"]
            done = CliRunner().invoke(eoslog, [*command, "--bootstrap-server", self._kafka.bootstrap])
            if done.exit_code == 0:
                self.added += json.loads(done.stdout)["rows"]
            else:
                print(f"take-over {self.number + 1}: {done.output.strip()[:300]}", flush=True)
        self.number += 1
        return shadow

    def take_over(self, shadow: StreamingQuery) -> StreamingQuery:
        """Have the shadow take the place of the version that was stopped, and start it there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        command = ["shadow", "take-over", str(self._folder / f"{self.number + 1}"), "--key", "--json"]
        command += ["--fence", "--bootstrap-server", self._kafka.bootstrap]
        while True:
            self.tries += 1
            self._rest(shadow)
            done = CliRunner().invoke(eoslog, command)
            if done.exit_code == 0:
                break
            assert time.monotonic() < deadline and any(said in done.output for said in AGAIN), done.output
            shadow = self.shadow()
        self.added += json.loads(done.stdout)["rows"]
        self.number += 1
        return self.live()

    def _rest(self, shadow: StreamingQuery) -> None:
        try:
            shadow.processAllAvailable()
        except PySparkException:  # its Python processes were killed
            return
        shadow.stop()
        time.sleep(0.2)

    def _start(
        self, number: int, reads: dict[str, str], writes: dict[str, str], seconds: int = 0
    ) -> StreamingQuery:
        """Tried again if Spark has just lost the Python process that it asks about the source."""
        for _ in range(TRIES):
            try:
                return self._query(number, reads, writes, seconds)
            except (PySparkException, Py4JError):
                time.sleep(0.5)
        return self._query(number, reads, writes, seconds)

    def _query(
        self, number: int, reads: dict[str, str], writes: dict[str, str], seconds: int
    ) -> StreamingQuery:
        shared = {"kafka.bootstrap.servers": self._kafka.bootstrap}
        read = self._spark.readStream.format("eoslog").options(**shared, **reads, subscribe=self.source)
        rows = read.option("startingOffsets", "earliest").load()
        n = F.col("value").cast("string").cast("long")
        at = F.timestamp_seconds(F.floor(n / A_SECOND) + START)
        named = rows.select((n % KEYS).alias("k"), n.alias("v"), at.alias("at"))
        window = F.window("at", f"{WINDOW} seconds").alias("w")
        counted = named.withWatermark("at", f"{WINDOW} seconds").groupBy("k", window)
        kept = [F.count("*").alias("n"), F.sum("v").alias("sum"), F.max("v").alias("max")][: 2 + number % 2]
        sums = counted.agg(*kept)
        start = F.unix_seconds("w.start").alias("start")
        value = F.to_json(F.struct("k", start, "n", "sum", F.lit(number).alias("version"))).alias("value")
        key = F.concat_ws(" ", "k", F.unix_seconds("w.start")).alias("key")
        sink = sums.select(key, value).writeStream.format("eoslog").options(**shared, **writes)
        sink = sink.option("checkpointLocation", str(self._folder / f"{number}"))
        return sink.trigger(processingTime=f"{seconds} seconds").start()


def run(
    spark: SparkSession,
    kafka: Kafka,
    folder: Path,
    take_overs: int,
    seed: int,
    kills: bool = False,
    live: bool = False,
    rests: bool = False,
) -> int:
    """All take-overs and the audit. Returns how many windows are lost, doubled or wrong."""
    random, versions, killed = Random(seed), Versions(spark, kafka, folder, REST * rests), 0
    feed, reader = Feed(kafka, versions.source), Reader(kafka, versions.target)
    threads = [threading.Thread(target=one.run, daemon=True) for one in (feed, reader)]
    for thread in threads:
        thread.start()
    running, took, batches = versions.live(), [], list[float]()
    while versions.number < take_overs:
        if not works(running, 3):
            running = versions.live(as_shadow=random.random() < 0.5)
            continue
        versions.into = kafka.topic(2)
        shadow = versions.shadow()
        assert works(shadow, FOLLOWED), shadow.exception()
        time.sleep(random.random())
        batches += [p["durationMs"]["triggerExecution"] / 1000 for p in running.recentProgress]
        if live:
            before = versions.number
            after = threading.Timer(8 * random.random(), lambda: kill_pythons(random))
            if kills and before % 2:
                killed += 1
                after.start()
            running = versions.take_over_live(running, shadow)
            after.cancel()
            if rests and works(running, FOLLOWED + 5):
                running.stop()
                running = versions.live()
            continue
        if kills and versions.number % 2:
            killed += kill_pythons(random)
        took.append(time.monotonic())
        running.stop()
        running = versions.take_over(shadow)
    while not works(running, 1):
        running = versions.live()
    feed.ended.set()
    threads[0].join()
    running.processAllAvailable()
    time.sleep(3.0)
    running.stop()
    reader.ended.set()
    threads[1].join()
    lost, doubled = wrong_windows(feed, reader)
    waits = sorted(
        min(at for at in reader.seen if at > began) - max(at for at in reader.seen if at <= began)
        for began in took
    ) or sorted(reader.spans[n + 1][0] - reader.spans[n][1] for n in range(take_overs))
    batches.sort()
    between = (after - before for before, after in pairwise(reader.seen))
    usual = sorted((Counter(at for at in between if at > APART) - Counter(waits)).elements())
    print(
        f"{take_overs} take-overs in {versions.tries} tries, {killed} processes killed, {feed.rows} rows, "
        f"{reader.rows.total()} windows by {len(reader.versions)} versions, {versions.added} of them added "
        f"at take-overs: {lost} lost or wrong, {doubled} doubled or wrong; readers "
        f"waited: median {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s, and "
        f"otherwise {usual[len(usual) // 2]:.2f} s and {usual[-1]:.2f} s; a micro-batch of the "
        f"running version: median {batches[len(batches) // 2]:.2f} s, longest {batches[-1]:.2f} s",
        flush=True,
    )
    return lost + doubled


if __name__ == "__main__":
    sys.exit(main(run, __doc__, "kills", "live", "rests"))
