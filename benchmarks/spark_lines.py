"""The table's lines about Spark: eoslog and Spark's own connector in one session, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from benchmarks import spark_works
from benchmarks.context import Context
from benchmarks.lines import (
    AT_LEAST,
    EXACTLY,
    FLUSHED,
    NO_WRITE,
    NOTHING_KEPT,
    PAGE_CACHE,
    Goal,
    Result,
    Section,
    Turns,
)
from benchmarks.spark import OURS, THEIRS, Bench, Run

SOURCE = {100: 2_000_000, 1000: 600_000}
SINK = {100: 3_000_000, 1000: 600_000}
COPY = {100: 4_000_000, 1000: 800_000}
"""Rows of a run: so many that the start of a query, a second or two with a Python source, is a small part."""
SINK_GOAL = {100: 1.5, 1000: 1.2}
EO, ALO = "eoslog, exactly once", "kafka, at least once"
ON_OWN = "eoslog on its broker"
NO_SINK, NOTHING = "Python sink that does nothing", "Python source and sink that do nothing"
FLOOR = (NOTHING_KEPT, "none")
"""What a figure is worth that only shows what Spark itself takes: no Python connector can be faster."""

Work = Callable[..., Run]


def warm(context: Context) -> Bench:
    """Spark and an Apache Kafka that has taken records before, from both connectors.

    A broker's JVM takes some tens of millions of records to reach its speed: until then each costs it up to
    three times the CPU, on the cores that Spark works on too.
    """
    bench = context.spark
    if not bench.warm:
        for connector in (OURS, THEIRS) * context.sizes.broker_warm_ups:
            spark_works.sink_batch(bench, connector, bench.peer, context.sizes.records(SINK[100]), 100)
        bench.warm = True
    return bench


def _rate(work: Work, *what: Any) -> float:
    return work(*what).rate


def _named(work: str, size: int) -> str:
    return f"{work}, {size:,} B"


def in_turns(context: Context, runs: Mapping[str, Callable[[], float]]) -> Turns:
    return Turns.take(runs, context.sizes.spark_rounds, context.sizes.spark_warm_ups)


def _rows(context: Context, full: dict[int, int]) -> list[tuple[int, int]]:
    """Size of a record and number of rows, of each run."""
    return [(size, context.sizes.records(full[size])) for size in context.sizes.spark_bytes]


def source(context: Context) -> list[Result]:
    bench, results = context.spark, []
    for size, rows in _rows(context, SOURCE):
        runs = {
            name: partial(_rate, spark_works.source_batch, bench, name, bench.peer, rows, size)
            for name in (OURS, THEIRS)
        }
        taken = in_turns(context, runs)
        for name in (OURS, THEIRS):
            spark_works.check_source(bench, name, bench.peer, rows, size)
        worth = {OURS: (NOTHING_KEPT, NO_WRITE), THEIRS: (NOTHING_KEPT, NO_WRITE)}
        work = _named("Spark source, batch, both on Apache Kafka", size)
        results.append(Result("spark-source", work, "rows/s", Goal("ratio", 2.0), taken.figures(worth)))
    return results


def _sinks(context: Context, line: str, title: str, work: Work) -> list[Result]:
    bench, results = warm(context), []
    for size, rows in _rows(context, SINK):
        runs = {
            EO: partial(_rate, work, bench, OURS, bench.peer, rows, size),
            ALO: partial(_rate, work, bench, THEIRS, bench.peer, rows, size),
            NO_SINK: partial(_rate, work, bench, spark_works.IDLE, bench.peer, rows, size),
        }
        taken = in_turns(context, runs)
        worth = {EO: (PAGE_CACHE, EXACTLY), ALO: (PAGE_CACHE, AT_LEAST), NO_SINK: FLOOR}
        goal = Goal("ratio", SINK_GOAL[size])
        results.append(Result(line, _named(title, size), "rows/s", goal, taken.figures(worth)))
    return results


def sink_batch(context: Context) -> list[Result]:
    return _sinks(
        context, "spark-sink-batch", "Spark sink, batch, both on Apache Kafka", spark_works.sink_batch
    )


def sink_stream(context: Context) -> list[Result]:
    title = "Spark sink, stream, both on Apache Kafka"
    return _sinks(context, "spark-sink-stream", title, spark_works.sink_stream)


def copies(context: Context) -> list[Result]:
    """In turns: both connectors on Apache Kafka, eoslog on the bundled broker, and Python doing nothing."""
    bench, results = warm(context), []
    for size, rows in _rows(context, COPY):
        runs = {
            EO: partial(_rate, spark_works.copy, bench, OURS, bench.peer, rows, size),
            ALO: partial(_rate, spark_works.copy, bench, THEIRS, bench.peer, rows, size),
            ON_OWN: partial(_rate, spark_works.copy, bench, OURS, bench.own, rows, size),
            NOTHING: partial(_rate, spark_works.idle_copy, bench, rows, size),
        }
        taken = in_turns(context, runs)
        theirs = {ALO: (PAGE_CACHE, AT_LEAST), NOTHING: FLOOR}
        figures = taken.figures({EO: (PAGE_CACHE, EXACTLY), **theirs})
        work = _named(f"Spark copy topic to topic, {rows:,} rows, both on Apache Kafka", size)
        goal = Goal("ratio", SINK_GOAL[size])
        results.append(Result("spark-copy", work, "rows/s", goal, figures))
        figures = taken.figures({ON_OWN: (FLUSHED, EXACTLY), **theirs})
        work = _named("all-in-one: this copy on our broker against kafka on Apache Kafka", size)
        results.append(Result("all-in-one", work, "rows/s", Goal("ratio", 1.3), figures))
    return results


def guarantees(context: Context) -> list[Result]:
    """Exactly once against at least once: micro-batches of about a second, and what that says of 30 s."""
    bench, size = warm(context), 100
    per_batch = context.sizes.records(600_000)
    both = {"exactly once": {}, "at least once": spark_works.AT_LEAST_ONCE}
    runs = {
        name: partial(spark_works.paced, bench, bench.peer, per_batch, size, more)
        for name, more in both.items()
    }
    taken = in_turns(context, runs)
    exactly, least = (taken.values[name] for name in both)
    results = []
    for seconds, bound in ((1.0, 0.97), (30.0, 0.995)):
        extra = [a - b for a, b in zip(exactly, least, strict=True)]
        middle = statistics.median(extra)
        rates = {
            "exactly once": [seconds / (seconds + one) for one in extra],
            "at least once": [1.0 for _ in extra],
        }
        worth = {"exactly once": (PAGE_CACHE, EXACTLY), "at least once": (PAGE_CACHE, AT_LEAST)}
        note = (
            f"micro-batches of {per_batch:,} rows took {statistics.median(exactly):.3f} s and "
            f"{statistics.median(least):.3f} s: {1000 * middle:.0f} ms more at this size; "
            f"reckoned for {seconds:g} s of work"
        )
        work = f"ours exactly once against ours at least once, rows/s at {seconds:g} s triggers"
        figures = Turns(rates).figures(worth)
        results.append(Result("guarantee", work, "of 1", Goal("ratio", bound), figures, note))
    return results


SECTIONS = [
    Section("spark-source", source),
    Section("spark-sink-batch", sink_batch),
    Section("spark-sink-stream", sink_stream),
    Section("spark-copy", copies),
    Section("guarantee", guarantees),
]
