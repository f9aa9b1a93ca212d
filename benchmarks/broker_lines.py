"""The table's lines about the bundled broker, beside Apache Kafka where a stock client works on both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import broker
from benchmarks.broker import Subject
from benchmarks.context import Context
from benchmarks.lines import (
    AT_LEAST,
    EXACTLY,
    FLUSHED,
    NO_WRITE,
    NOTHING_KEPT,
    PAGE_CACHE,
    Figure,
    Goal,
    Result,
    Section,
    Turns,
)

OURS, THEIRS = "eoslog broker", "Apache Kafka"
WITHIN_100_MS = "transactions of 100 ms"
Work = Callable[[Subject, int, int], float]


def _beside(
    context: Context, line: str, title: str, work: Work, full: int, size: int, guarantee: str
) -> Result:
    """One work on both brokers."""
    records = context.sizes.records(full)
    runs = {
        name: partial(work, subject, records, size)
        for name, subject in zip((OURS, THEIRS), context.brokers, strict=True)
    }
    taken = Turns.take(runs, context.sizes.rounds)
    kept = {OURS: FLUSHED, THEIRS: PAGE_CACHE}
    reads = guarantee == NO_WRITE
    worth = {name: (NOTHING_KEPT if reads else kept[name], guarantee) for name in runs}
    goal = Goal("ratio", 1.0)
    return Result(line, f"{title}, {size:,} B", "records/s", goal, taken.figures(worth), x=size)


IDEMPOTENT = "idempotent, each once"


def produce(context: Context) -> list[Result]:
    works = [
        ("confluent-kafka, idempotent producer", broker.idempotent, 200_000, 1000, IDEMPOTENT),
        ("confluent-kafka, idempotent producer", broker.idempotent, 400_000, 100, IDEMPOTENT),
        ("confluent-kafka, transactions of 100 ms", broker.transactions, 200_000, 1000, EXACTLY),
        ("confluent-kafka, ordered at least once", broker.in_order, 200_000, 1000, AT_LEAST),
    ]
    return [_beside(context, "broker-produce", *work) for work in works]


def sizes(context: Context) -> list[Result]:
    """More sizes for the picture."""
    works = [(10, 400_000), (10_000, 20_000)]
    title = "confluent-kafka, idempotent producer"
    return [
        _beside(context, "broker-sizes", title, broker.idempotent, full, size, IDEMPOTENT)
        for size, full in works
    ]


def consume(context: Context) -> list[Result]:
    return [
        _beside(
            context, "broker-consume", "confluent-kafka, consumer", broker.consume, 200_000, 1000, NO_WRITE
        )
    ]


def java(context: Context) -> list[Result]:
    worth = {"ordered": AT_LEAST, "transactions": EXACTLY, "Consumer": NO_WRITE}
    results = []
    for name, work in broker.java_works(context.jars).items():
        guarantee = next((said for part, said in worth.items() if part in name), IDEMPOTENT)
        title = name.removesuffix(", records/s")
        results.append(_beside(context, "broker-java", title, work, 200_000, 1000, guarantee))
    return results


def small_transactions(context: Context) -> list[Result]:
    p50: dict[str, list[float]] = {OURS: [], THEIRS: []}

    def run(name: str, subject: Subject) -> float:
        rate = broker.small_transactions(subject, context.sizes.records(500), 1000)
        p50[name].append(subject.p50_ms)
        return rate

    runs = {name: partial(run, name, subject) for name, subject in zip(p50, context.brokers, strict=True)}
    taken = Turns.take(runs, context.sizes.rounds)
    worth = {OURS: (FLUSHED, EXACTLY), THEIRS: (PAGE_CACHE, EXACTLY)}
    work = "confluent-kafka, transactions of one record"
    times = Turns({name: values[1:] for name, values in p50.items()}).figures(worth)
    line = "broker-small"
    return [
        Result(line, f"{work}, per second", "1/s", Goal("ratio", 2.0), taken.figures(worth)),
        Result(line, f"{work}, p50", "ms", Goal("most", 1.5), times),
    ]


def cost(context: Context) -> list[Result]:
    """What transactions of 100 ms cost a producer on our broker."""
    ours, records = context.brokers[0], context.sizes.records(300_000)
    worth = {
        WITHIN_100_MS: (FLUSHED, EXACTLY),
        "at least once in order": (FLUSHED, AT_LEAST),
        "acks=0": ("none", "at most once"),
    }
    works: list[Work] = [broker.transactions, broker.in_order, broker.not_acknowledged]
    runs = {name: partial(work, ours, records, 1000) for name, work in zip(worth, works, strict=True)}
    taken = Turns.take(runs, context.sizes.rounds)
    results = []
    for beside, bound in (("at least once in order", 0.03), ("acks=0", 0.20)):
        figures: list[Figure] = taken.figures({name: worth[name] for name in (WITHIN_100_MS, beside)})
        work = f"cost of {WITHIN_100_MS} on our broker against {beside}, 1,000 B"
        results.append(Result("broker-cost", work, "records/s", Goal("cost", bound), figures))
    return results


SECTIONS = [
    Section("broker-produce", produce),
    Section("broker-sizes", sizes),
    Section("broker-consume", consume),
    Section("broker-java", java),
    Section("broker-small", small_transactions),
    Section("broker-cost", cost),
]
