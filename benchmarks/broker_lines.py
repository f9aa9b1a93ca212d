"""The table's lines about the bundled broker, beside Apache Kafka where a stock client works on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

OURS, THEIRS, UNFLUSHED = "eoslog broker", "Apache Kafka", "eoslog broker, flush.mode=os"
CLIENT_ALONE = "the client with its own broker in memory"
WITHIN_100_MS = "transactions of 100 ms"
Work = Callable[[Subject, int, int], float]


def _beside(
    context: Context, line: str, title: str, work: Work, full: int, size: int, guarantee: str, *more: Subject
) -> Result:
    """One work on both brokers, and on the bundled one with less durability if `more` has that."""
    records = context.sizes.records(full)
    runs = {
        name: partial(work, subject, records, size)
        for name, subject in zip((OURS, THEIRS, UNFLUSHED), (*context.brokers, *more), strict=False)
    }
    taken = Turns.take(runs, context.sizes.rounds)
    kept = {OURS: FLUSHED}
    reads = guarantee == NO_WRITE
    worth = {name: (NOTHING_KEPT if reads else kept.get(name, PAGE_CACHE), guarantee) for name in runs}
    goal = Goal("ratio", 1.0)
    return Result(line, f"{title}, {size:,} B", "records/s", goal, taken.figures(worth), x=size)


IDEMPOTENT = "idempotent, each once"


def produce(context: Context) -> list[Result]:
    works = [
        ("confluent-kafka, idempotent producer", broker.idempotent, 500_000, 1000, IDEMPOTENT),
        ("confluent-kafka, idempotent producer", broker.idempotent, 1_500_000, 100, IDEMPOTENT),
        ("confluent-kafka, transactions of 100 ms", broker.transactions, 500_000, 1000, EXACTLY),
        ("confluent-kafka, ordered at least once", broker.in_order, 500_000, 1000, AT_LEAST),
    ]
    return [_beside(context, "broker-produce", *work, context.unflushed) for work in works]


def sizes(context: Context) -> list[Result]:
    """More sizes for the picture."""
    works = [(10, 1_500_000), (10_000, 50_000)]
    title = "confluent-kafka, idempotent producer"
    return [
        _beside(context, "broker-sizes", title, broker.idempotent, full, size, IDEMPOTENT)
        for size, full in works
    ]


def consume(context: Context) -> list[Result]:
    return [
        _beside(
            context, "broker-consume", "confluent-kafka, consumer", broker.consume, 1_000_000, 1000, NO_WRITE
        )
    ]


def java(context: Context) -> list[Result]:
    worth = {"ordered": AT_LEAST, "transactions": EXACTLY, "Consumer": NO_WRITE}
    results = []
    for name, work in broker.java_works(context.jars).items():
        guarantee = next((said for part, said in worth.items() if part in name), IDEMPOTENT)
        title = name.removesuffix(", records/s")
        more = () if guarantee == NO_WRITE else (context.unflushed,)
        results.append(_beside(context, "broker-java", title, work, 300_000, 1000, guarantee, *more))
    return results


def small_transactions(context: Context) -> list[Result]:
    subjects = dict(zip((OURS, THEIRS, UNFLUSHED), (*context.brokers, context.unflushed), strict=True))
    p50: dict[str, list[float]] = {name: [] for name in (*subjects, CLIENT_ALONE)}
    count = context.sizes.records(500)

    def run(name: str) -> float:
        if name == CLIENT_ALONE:
            rate, p50_ms = broker.client_alone(count, 1000)
        else:
            rate = broker.small_transactions(subjects[name], count, 1000)
            p50_ms = subjects[name].p50_ms
        p50[name].append(p50_ms)
        return rate

    taken = Turns.take({name: partial(run, name) for name in p50}, context.sizes.rounds)
    worth = {name: (PAGE_CACHE, EXACTLY) for name in subjects} | {OURS: (FLUSHED, EXACTLY)}
    worth[CLIENT_ALONE] = (NOTHING_KEPT, "none")
    work = "confluent-kafka, transactions of one record"
    times = Turns({name: values[1:] for name, values in p50.items()}).figures(worth)
    line = "broker-small"
    return [
        Result(line, f"{work}, per second", "1/s", Goal("ratio", 2.0), taken.figures(worth)),
        Result(line, f"{work}, p50", "ms", Goal("most", 1.5), times),
    ]


COSTS = {
    WITHIN_100_MS: (FLUSHED, EXACTLY),
    "at least once in order": (FLUSHED, AT_LEAST),
    "acks=0": ("none", "at most once"),
}


def _costs(context: Context, line: str, client: str, works: Sequence[Work]) -> list[Result]:
    """What transactions of 100 ms cost a producer on our broker."""
    ours, records = context.brokers[0], context.sizes.records(300_000)
    runs = {name: partial(work, ours, records, 1000) for name, work in zip(COSTS, works, strict=True)}
    taken = Turns.take(runs, context.sizes.rounds)
    results = []
    for beside, bound in (("at least once in order", 0.03), ("acks=0", 0.20)):
        figures: list[Figure] = taken.figures({name: COSTS[name] for name in (WITHIN_100_MS, beside)})
        work = f"cost of {WITHIN_100_MS} on our broker against {beside}, {client}, 1,000 B"
        results.append(Result(line, work, "records/s", Goal("cost", bound), figures))
    return results


def cost(context: Context) -> list[Result]:
    works = [broker.transactions, broker.in_order, broker.not_acknowledged]
    return _costs(context, "broker-cost", "confluent-kafka", works)


def java_cost(context: Context) -> list[Result]:
    """With the tool that the authors of KIP-98 measured with."""
    jars = context.jars
    works: list[Work] = [
        lambda s, n, z: broker.java_transactions(s, jars, n, z),
        lambda s, n, z: broker.java_produces(s, jars, n, z, settings=broker.JAVA_IN_ORDER),
        lambda s, n, z: broker.java_produces(s, jars, n, z, settings=broker.JAVA_UNACKNOWLEDGED),
    ]
    return _costs(context, "broker-java-cost", "Java ProducerPerformance", works)


SECTIONS = [
    Section("broker-produce", produce),
    Section("broker-sizes", sizes),
    Section("broker-consume", consume),
    Section("broker-java", java),
    Section("broker-small", small_transactions),
    Section("broker-cost", cost),
    Section("broker-java-cost", java_cost),
]
