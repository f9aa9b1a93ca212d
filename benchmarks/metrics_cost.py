"""`make bench-metrics`: what `eoslog.metrics.serve` costs a micro-batch.

One query after the other copies a topic in micro-batches of 200 rows, as fast as they go, by turns without
metrics and with them. The driver is the Python program; its CPU and that of its JVM stand for themselves. The
callback is what PySpark and eoslog do in the driver when Spark reports a batch, beside the query's thread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Producer
from py4j.clientserver import ClientServerConnection

from benchmarks.spark import OURS, PARTITIONS, Bench
from eoslog import metrics

ROWS = 200
WARM_UP = 10
NAMES = ("without", "with")


class Times(NamedTuple):
    """Milliseconds of wall clock and of the thread's CPU, of each call."""

    wall: list[float]
    cpu: list[float]


class Turn(NamedTuple):
    """A query's micro-batches: their median, and CPU of the driver and its JVM for each; all in ms."""

    p50: float
    driver: float
    jvm: float


@contextmanager
def timed(owner: Any, name: str) -> Iterator[Times]:
    """Time each call of a method, of whatever object."""
    whole: Callable[..., Any] = getattr(owner, name)
    found = Times([], [])

    def timing(*words: Any) -> Any:
        began, cpu = time.perf_counter(), time.thread_time()
        answer = whole(*words)
        found.wall.append(1000 * (time.perf_counter() - began))
        found.cpu.append(1000 * (time.thread_time() - cpu))
        return answer

    setattr(owner, name, timing)
    try:
        yield found
    finally:
        setattr(owner, name, whole)


def fill(bootstrap: str, topic: str, rows: int) -> None:
    """Rows of 100 bytes in all partitions alike."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(rows):
        producer.produce(topic, b"v" * 100, partition=number % PARTITIONS)
    if producer.flush(60):
        raise RuntimeError("rows were not taken")


def turn(bench: Bench, source: str, batches: int) -> Turn:
    """Copy the topic once. Asks nothing of Spark while batches are counted."""
    jvm = bench.spark.sparkContext._gateway
    assert jvm is not None
    processes = psutil.Process(), psutil.Process(jvm.proc.pid)
    to = {"kafka.bootstrap.servers": bench.own}
    with bench.topic(bench.own) as target:
        reader = bench.spark.readStream.format(OURS).options(**to, subscribe=source)
        rows = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=ROWS).load()
        checkpoint = Path(bench.checkpoint())
        writer = rows.select("value").writeStream.format(OURS).options(**to, topic=target)
        query = writer.queryName("copy").option("checkpointLocation", str(checkpoint)).start()
        _until(checkpoint, WARM_UP)
        before, first = [_cpu(one) for one in processes], _done(checkpoint)
        _until(checkpoint, batches + WARM_UP)
        after, last = [_cpu(one) for one in processes], _done(checkpoint)
        query.processAllAvailable()
        query.stop()
    took = [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]
    driver, of_jvm = (1000 * (b - a) / (last - first) for a, b in zip(before, after, strict=True))
    return Turn(statistics.median(took[WARM_UP : WARM_UP + batches]), driver, of_jvm)


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _done(checkpoint: Path) -> int:
    commits = checkpoint / "commits"
    return sum(name.isdecimal() for name in os.listdir(commits)) if commits.exists() else 0


def _until(checkpoint: Path, batches: int) -> None:
    deadline = time.monotonic() + 300
    while _done(checkpoint) < batches:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{_done(checkpoint)} micro-batches of {batches} within 300 s")
        time.sleep(0.05)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="after one of each that warms up")
    parser.add_argument("--batches", type=int, default=80, help="micro-batches that count, of each turn")
    given = parser.parse_args()
    found: dict[str, list[Turn]] = {name: [] for name in NAMES}
    whole, ours, told = Times([], []), Times([], []), Times([], [])
    with Bench(Path("no peer"), Path("no connector")) as bench, bench.topic(bench.own) as source:
        fill(bench.own, source, ROWS * (given.batches + WARM_UP + 5))
        for number in range(given.turns + 1):
            for name in NAMES:
                with (
                    timed(ClientServerConnection, "_call_proxy") as callback,
                    timed(metrics.QueryMetrics, "progressed") as progressed,
                    timed(metrics.QueryMetrics, "told") as messages,
                ):
                    served = metrics.serve(bench.spark, "127.0.0.1:0") if name == "with" else None
                    with nullcontext() if served is None else _closing(served):
                        one = turn(bench, source, given.batches)
                print(f"turn {number}, {name}: {one}", flush=True)
                if number:
                    found[name].append(one)
                    for kept, more in ((whole, callback), (ours, progressed), (told, messages)):
                        kept.wall.extend(more.wall)
                        kept.cpu.extend(more.cpu)
    print(f"| a micro-batch of {ROWS} rows | p50, ms | CPU of the driver, ms | CPU of its JVM, ms |")
    print("|---|---|---|---|")
    for name, turns in found.items():
        columns = [
            f"{statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})"
            for each in zip(*turns, strict=True)
        ]
        print(f"| {name} | " + " | ".join(columns) + " |")
    print("| call | p50, ms | p99, ms | CPU of its thread, p50, ms |\n|---|---|---|---|")
    calls = {"whole callback": whole, "of it eoslog's": ours, "a message of the sink": told}
    for name, times in calls.items():
        p99 = statistics.quantiles(times.wall, n=100)[98]
        figures = (statistics.median(times.wall), p99, statistics.median(times.cpu))
        print(f"| {name} ({len(times.wall)} calls) | " + " | ".join(f"{ms:.3f}" for ms in figures) + " |")


@contextmanager
def _closing(served: metrics.Served) -> Iterator[None]:
    try:
        yield
    finally:
        served.close()


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    main()
