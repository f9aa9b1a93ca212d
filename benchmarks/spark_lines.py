"""The table's lines about Spark: eoslog and Spark's own connector in one session, in turns.

Small work has three subjects: Spark's Kafka connector and eoslog on Apache Kafka, eoslog on its own broker.
Where it says what a limit is made of, a fourth: a Python source and sink that do nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks import spark_works
from benchmarks.results import (
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

if TYPE_CHECKING:
    from benchmarks.run import Context


# -- much work -------------------------------------------------------------------------------------

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


# -- small work: micro-batches of a small stream, ages of records, short jobs ----------------------

SHORT_COPIES = {100: (1_000_000, 0.6, 0.75), 1000: (300_000, 0.75, 0.9)}
"""Rows of a copy that ends within some three seconds, and the goals on Apache Kafka and on our broker."""
TRANSACTIONS = "Python sink that makes librdkafka's transactions, one a task"
"""And one a batch, from a source that does nothing: the limit of a sink that works by transactions."""
WORTH = {
    EO: (PAGE_CACHE, EXACTLY),
    ON_OWN: (FLUSHED, EXACTLY),
    ALO: (PAGE_CACHE, AT_LEAST),
    NOTHING: FLOOR,
    NO_SINK: FLOOR,
    TRANSACTIONS: (PAGE_CACHE, "each task's rows once, no outcome in common"),
}
READS = {name: FLOOR if name == NOTHING else (NOTHING_KEPT, NO_WRITE) for name in WORTH}
_WHERE = {EO: "both on Apache Kafka", ON_OWN: "ours on our broker"}

Timed = Callable[[Bench, str, str], float]
"""Of a connector on a broker: one figure."""


def _runs(bench: Bench, work: Timed, idle: str | None = None) -> dict[str, Callable[[], float]]:
    """The subjects; `idle`: what the one that does nothing is called."""
    found: dict[str, Callable[[], float]] = {
        EO: partial(work, bench, OURS, bench.peer),
        ALO: partial(work, bench, THEIRS, bench.peer),
        ON_OWN: partial(work, bench, OURS, bench.own),
    }
    return found if idle is None else {**found, idle: partial(work, bench, spark_works.IDLE, bench.peer)}


def _results(
    line: str,
    work: str,
    unit: str,
    taken: Turns,
    goals: tuple[float, float] | None,
    worth: dict[str, tuple[str, str]],
) -> list[Result]:
    """A line of each of our two subjects beside Spark's connector; goals: of the times, in this order. None:
    no Python sink could reach one."""
    rest = {name: worth[name] for name in taken.values if name not in _WHERE}
    return [
        Result(
            line,
            f"{work}, {where}",
            unit,
            Goal("shown") if goals is None else Goal("times", goals[number]),
            taken.figures({subject: worth[subject], **rest}),
        )
        for number, (subject, where) in enumerate(_WHERE.items())
    ]


def micro_batches(context: Context) -> list[Result]:
    """The median time of a micro-batch, trigger 0 s."""
    return _micro_batches(context, "micro-batch", "micro-batch p50")


def light_micro_batches(context: Context) -> list[Result]:
    """The same with the file manager that docs recommend for checkpoints on a local disk."""
    with warm(context).light_checkpoints():
        return _micro_batches(context, "micro-batch-light", "micro-batch p50, light checkpoint")


def _micro_batches(context: Context, line: str, title: str) -> list[Result]:
    bench, batches = warm(context), max(context.sizes.records(12), 5)
    works = (
        ("a stream of 1,000 rows/s to noop", spark_works.source_ms, (0.8, 1.0), None),
        ("200 rows of Spark to a topic", spark_works.sink_ms, None, 1.1),
        ("a stream of 1,000 rows/s to a topic", spark_works.copy_ms, (1.0, 1.0), 1.25),
    )
    results = []
    for name, work, goals, of_limit in works:
        runs = _runs(bench, partial(_batch, work, batches), NOTHING)
        if of_limit is not None:
            runs[TRANSACTIONS] = partial(work, bench, spark_works.C_TRANSACTIONS, bench.peer, batches)
        taken = in_turns(context, runs)
        worth = READS if of_limit is None else WORTH
        results += _results(line, f"{title}, {name}", "ms", taken, goals, worth)
        if of_limit is not None:
            beside = f"{title}, {name}, beside the least that transactions take"
            figures = taken.figures({EO: WORTH[EO], TRANSACTIONS: WORTH[TRANSACTIONS]})
            results.append(Result(line, beside, "ms", Goal("times", of_limit), figures))
    return results


def _batch(
    work: Callable[[Bench, str, str, int], float], batches: int, bench: Bench, connector: str, bootstrap: str
) -> float:
    return work(bench, connector, bootstrap, batches)


def foreach_batches(context: Context) -> list[Result]:
    """What foreachBatch takes with two topics."""
    bench, batches = warm(context), max(context.sizes.records(12), 5)
    taken = in_turns(context, _runs(bench, partial(_batch, spark_works.foreach_ms, batches)))
    work = "micro-batch p50, foreachBatch to two topics"
    return _results("foreach-batch", work, "ms", taken, (1.2, 1.2), WORTH)


def small_writes(context: Context) -> list[Result]:
    """What a write costs that has hardly any rows: beginning, tasks, committing.

    A transaction a task is the most of it where tasks are many, in C too: there that is what it is held to.
    """
    bench, results = warm(context), []
    for rows, tasks, goals in ((100, 1, (2.5, 2.5)), (100, 10, None), (1000, 100, None)):

        def write(
            bench: Bench, connector: str, bootstrap: str, rows: int = rows, tasks: int = tasks
        ) -> float:
            return spark_works.small_write(bench, connector, bootstrap, rows, tasks)

        runs = _runs(bench, write, NO_SINK)
        runs[TRANSACTIONS] = partial(write, bench, spark_works.C_TRANSACTIONS, bench.peer)
        taken = in_turns(context, runs)
        work = f"df.write of {rows:,} rows in {tasks} tasks"
        results += _results("small-write", work, "s", taken, goals, WORTH)
        figures = taken.figures({EO: WORTH[EO], TRANSACTIONS: WORTH[TRANSACTIONS]})
        beside = f"{work}, beside the least that transactions take"
        results.append(Result("small-write", beside, "s", Goal("times", 1.25), figures))
    return results


def short_copies(context: Context) -> list[Result]:
    """Copies so small that the start of the query is most of them."""
    bench, results = warm(context), []
    for size, (full, *goals) in SHORT_COPIES.items():
        rows = context.sizes.records(full)

        def copy(bench: Bench, connector: str, bootstrap: str, rows: int = rows, size: int = size) -> float:
            if connector == spark_works.IDLE:
                return spark_works.idle_copy(bench, rows, size).seconds
            return spark_works.copy(bench, connector, bootstrap, rows, size).seconds

        taken = in_turns(context, _runs(bench, copy, NOTHING))
        work = f"copy of {rows:,} rows of {size:,} B, availableNow: mostly the start of a query"
        results += _results("spark-short", work, "s", taken, (goals[0], goals[1]), WORTH)
    return results


def delays(context: Context) -> list[Result]:
    """How old a record is when a read_committed reader of the sink gets it, over triggers."""
    bench, results = warm(context), []
    for trigger, turns in ((0.0, context.sizes.spark_rounds), (0.5, 1), (1.0, 1), (2.0, 1)):
        seconds = max(4 * trigger, 3.0)
        tails: dict[str, list[float]] = {}

        def age(name: str, run: Callable[[], list[float]], tails: dict[str, list[float]] = tails) -> float:
            ages = run()
            tails.setdefault(name, []).append(ages[int(len(ages) * 0.99)])
            return statistics.median(ages)

        where = {EO: (OURS, bench.peer), ALO: (THEIRS, bench.peer), ON_OWN: (OURS, bench.own)}
        if not trigger:
            where[TRANSACTIONS] = (spark_works.C_TRANSACTIONS, bench.peer)
        runs = {
            name: partial(age, name, partial(spark_works.ages_ms, bench, *at, trigger, seconds))
            for name, at in where.items()
        }
        taken = Turns.take(runs, turns, warm_ups=1 if trigger == 0 else 0)
        work = f"of a record when it is readable in the sink, trigger {trigger:g} s"
        if trigger:
            figures = taken.figures({name: WORTH[name] for name in where})
            results.append(Result("delay", f"age p50 {work}", "ms", Goal("shown"), figures))
            continue
        results += _results("delay", f"age p50 {work}", "ms", taken, (1.0, 1.0), WORTH)
        late = Turns({name: values[1:] for name, values in tails.items()})
        results += _results("delay", f"age p99 {work}", "ms", late, (1.0, 1.0), WORTH)
        figures = taken.figures({EO: WORTH[EO], TRANSACTIONS: WORTH[TRANSACTIONS]})
        beside = f"age p50 {work}, beside the least that transactions take"
        results.append(Result("delay", beside, "ms", Goal("times", 1.1), figures))
    return results


BATCH_SIZES = (10, 100, 1_000, 3_000, 10_000, 100_000, 1_000_000)
WITH_THE_PLAN, BY_TASKS = "eoslog, rows with the plan", "eoslog, rows by tasks"
MOST_WITH_THE_PLAN = 100_000
"""Rows that are tried: Spark keeps them in its driver."""


def batch_sizes(context: Context) -> list[Result]:
    """A copy in micro-batches of so many rows, each way that rows can come to Spark."""
    bench, results = warm(context), []
    ways = {
        EO: (OURS, {}),
        BY_TASKS: (OURS, {"small.batch.max.offsets": "0"}),
        WITH_THE_PLAN: (
            OURS,
            {"small.batch.max.offsets": str(MOST_WITH_THE_PLAN), "small.batch.max.bytes": str(2**28)},
        ),
        ALO: (THEIRS, {}),
    }
    worth = {name: WORTH[ALO if name == ALO else EO] for name in ways}
    for rows in BATCH_SIZES:
        batches = 12 if rows <= 10_000 else 5
        runs = {
            name: partial(spark_works.paced, bench, bench.peer, rows, 100, {}, batches, connector, reading)
            for name, (connector, reading) in ways.items()
            if rows <= MOST_WITH_THE_PLAN or name != WITH_THE_PLAN
        }
        taken = Turns.take(runs, 3 if rows <= 100_000 else 1, warm_ups=1 if rows == BATCH_SIZES[0] else 0)
        in_ms = Turns({name: [1000 * value for value in values] for name, values in taken.values.items()})
        figures = in_ms.figures({name: worth[name] for name in runs})
        work = f"micro-batch p50, a copy of {rows:,} rows of 100 B a batch"
        results.append(Result("batch-sizes", work, "ms", Goal("shown"), figures))
    return results


SECTIONS = [
    Section("spark-source", source),
    Section("spark-sink-batch", sink_batch),
    Section("spark-sink-stream", sink_stream),
    Section("spark-copy", copies),
    Section("guarantee", guarantees),
    Section("spark-short", short_copies),
    Section("small-write", small_writes),
    Section("micro-batch", micro_batches),
    Section("micro-batch-light", light_micro_batches),
    Section("foreach-batch", foreach_batches),
    Section("delay", delays),
    Section("batch-sizes", batch_sizes),
]
