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
    Goal,
    Result,
    Section,
    Turns,
)

OURS, THEIRS_FLUSHED = "eoslog broker", "Apache Kafka, flush.messages=1"
UNFLUSHED, THEIRS = "eoslog broker, flush.mode=os", "Apache Kafka"
PAIRS = {FLUSHED: (OURS, THEIRS_FLUSHED), PAGE_CACHE: (UNFLUSHED, THEIRS)}
"""Like for like: a figure is compared with that of the peer that keeps records as well."""
CLIENT_ALONE = "the client with its own broker in memory"
WITHIN_100_MS = "transactions of 100 ms"
Work = Callable[[Subject, int, int], float]


def _subjects(context: Context) -> dict[str, Subject]:
    ours, theirs = context.brokers
    return {
        OURS: ours, THEIRS_FLUSHED: context.flushed_peer, UNFLUSHED: context.unflushed, THEIRS: theirs
    }  # fmt: skip


def _beside(
    context: Context, line: str, title: str, work: Work, full: int, size: int, guarantee: str
) -> list[Result]:
    """One work on both brokers, with each durability; a reader has none."""
    records, reads = context.sizes.records(full), guarantee == NO_WRITE
    pairs = {NOTHING_KEPT: (OURS, THEIRS)} if reads else PAIRS
    subjects = _subjects(context)
    runs = {name: partial(work, subjects[name], records, size) for pair in pairs.values() for name in pair}
    taken = Turns.take(runs, context.sizes.rounds)
    return [
        Result(
            line,
            f"{title}, {size:,} B" + ("" if reads else f", {kept}"),
            "records/s",
            Goal("ratio", 1.0),
            taken.figures(dict.fromkeys(pair, (kept, guarantee))),
        )
        for kept, pair in pairs.items()
    ]


IDEMPOTENT = "idempotent, each once"


def produce(context: Context) -> list[Result]:
    works = [
        ("confluent-kafka, idempotent producer", broker.idempotent, 500_000, 1000, IDEMPOTENT),
        ("confluent-kafka, idempotent producer", broker.idempotent, 1_500_000, 100, IDEMPOTENT),
        ("confluent-kafka, transactions of 100 ms", broker.transactions, 500_000, 1000, EXACTLY),
        ("confluent-kafka, ordered at least once", broker.in_order, 500_000, 1000, AT_LEAST),
    ]
    return [result for work in works for result in _beside(context, "broker-produce", *work)]


def sizes(context: Context) -> list[Result]:
    """More sizes for the picture."""
    works = [(10, 1_500_000), (10_000, 50_000)]
    title = "confluent-kafka, idempotent producer"
    return [
        result
        for size, full in works
        for result in _beside(context, "broker-sizes", title, broker.idempotent, full, size, IDEMPOTENT)
    ]


def consume(context: Context) -> list[Result]:
    title = "confluent-kafka, consumer"
    return _beside(context, "broker-consume", title, broker.consume, 1_000_000, 1000, NO_WRITE)


def java(context: Context) -> list[Result]:
    worth = {"ordered": AT_LEAST, "transactions": EXACTLY, "Consumer": NO_WRITE}
    results = []
    for name, work in broker.java_works(context.jars).items():
        guarantee = next((said for part, said in worth.items() if part in name), IDEMPOTENT)
        title = name.removesuffix(", records/s")
        results += _beside(context, "broker-java", title, work, 300_000, 1000, guarantee)
    return results


def small_transactions(context: Context) -> list[Result]:
    subjects = _subjects(context)
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
    times = Turns({name: values[1:] for name, values in p50.items()})
    results = []
    for kept, pair in PAIRS.items():
        worth = {**dict.fromkeys(pair, (kept, EXACTLY)), CLIENT_ALONE: (NOTHING_KEPT, "none")}
        work, line = f"confluent-kafka, transactions of one record, {kept}", "broker-small"
        results += [
            Result(line, f"{work}, per second", "1/s", Goal("ratio", 1.0), taken.figures(worth)),
            Result(line, f"{work}, p50", "ms", Goal("times", 1.0), times.figures(worth)),
        ]
    return results


BESIDE = ("at least once in order", "acks=0")


def _costs(
    context: Context, line: str, client: str, kept: Sequence[str], works: Sequence[Work]
) -> list[Result]:
    """What transactions of 100 ms cost a producer, on our broker and on Apache Kafka."""
    subjects, records = _subjects(context), context.sizes.records(300_000)
    costs: dict[str, dict[str, list[float]]] = {beside: {} for beside in BESIDE}

    def run(name: str) -> float:
        transactions, *others = (work(subjects[name], records, 1000) for work in works)
        for beside, rate in zip(BESIDE, others, strict=True):
            costs[beside].setdefault(name, []).append(100 * (1 - transactions / rate))
        return transactions

    pairs = {one: PAIRS[one] for one in kept}
    Turns.take({name: partial(run, name) for pair in pairs.values() for name in pair}, context.sizes.rounds)
    return [
        Result(
            line,
            f"what {WITHIN_100_MS} cost against {beside}, {client}, 1,000 B, {one}",
            "%",
            Goal("above", 0.0),
            Turns({name: values[1:] for name, values in found.items()}).figures(
                dict.fromkeys(pair, (one, EXACTLY))
            ),
        )
        for beside, found in costs.items()
        for one, pair in pairs.items()
    ]


def cost(context: Context) -> list[Result]:
    works = [broker.transactions, broker.in_order, broker.not_acknowledged]
    return _costs(context, "broker-cost", "confluent-kafka", [*PAIRS], works)


def java_cost(context: Context) -> list[Result]:
    """With the tool that the authors of KIP-98 measured with, and as they did: without syncs."""
    jars = context.jars
    works: list[Work] = [
        lambda s, n, z: broker.java_transactions(s, jars, n, z),
        lambda s, n, z: broker.java_produces(s, jars, n, z, settings=broker.JAVA_IN_ORDER),
        lambda s, n, z: broker.java_produces(s, jars, n, z, settings=broker.JAVA_UNACKNOWLEDGED),
    ]
    return _costs(context, "broker-java-cost", "Java ProducerPerformance", [PAGE_CACHE], works)


SECTIONS = [
    Section("broker-produce", produce),
    Section("broker-sizes", sizes),
    Section("broker-consume", consume),
    Section("broker-java", java),
    Section("broker-small", small_transactions),
    Section("broker-cost", cost),
    Section("broker-java-cost", java_cost),
]
