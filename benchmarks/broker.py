"""The bundled broker beside Apache Kafka on the same machine, in turns, with the same stock client.

One partition, 1 KB records, confluent-kafka. Ours acknowledges after fdatasync; Apache Kafka with its
default, after the write to the page cache. Each work checks that what arrived is right.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.results import (
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
from eoslog.testing import EmbeddedBroker
from tests.kit.kafka_nodes import ApacheKafka

if TYPE_CHECKING:
    from benchmarks.run import Context


# -- works -----------------------------------------------------------------------------------------

COMMON: dict[str, str | int] = {"metadata.recovery.strategy": "none"}


IN_ORDER: dict[str, str | int] = {
    "enable.idempotence": "false", "acks": "all", "max.in.flight.requests.per.connection": 1,
}  # fmt: skip
UNACKNOWLEDGED: dict[str, str | int] = {"enable.idempotence": "false", "acks": 0}
JAVA_IN_ORDER = ("enable.idempotence=false", "acks=all", "max.in.flight.requests.per.connection=1")
JAVA_UNACKNOWLEDGED = ("enable.idempotence=false", "acks=0")


class Subject:
    """A broker under test."""

    def __init__(self, name: str, bootstrap: str, pid: int) -> None:
        self.name, self.bootstrap, self.process = name, bootstrap, psutil.Process(pid)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **COMMON})
        self._topics = 0
        self._checked: set[tuple[int, int]] = set()
        self._counted: set[tuple[int, str]] = set()
        self.p50_ms = 0.0  # of the last run of transactions of one record

    def topic(self) -> str:
        self._topics += 1
        name = f"bench-{os.getpid()}-{self._topics}"
        self._admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        return name

    def producer(self, **more: str | int) -> Producer:
        return Producer({
            "bootstrap.servers": self.bootstrap, "enable.idempotence": "true", "linger.ms": 5,
            "queue.buffering.max.messages": 500_000, **COMMON, **more,
        })  # fmt: skip

    def wait_for_end(self, topic: str, records: int) -> None:
        """Until the topic holds so many records; 60 s at most."""
        deadline = time.monotonic() + 60
        while self.end(topic) < records and time.monotonic() < deadline:
            time.sleep(0.005)

    def expect_end(self, topic: str, wanted: int) -> None:
        """Markers count too; a broker may write them after the answer to EndTxn: wait first."""
        end = self.end(topic)
        assert end == wanted, f"{topic} on {self.name} ends at {end}, not at {wanted}"

    def sum_of(self, topic: str) -> tuple[int, int]:
        """Count and checksum of the values that a read_committed reader sees."""
        consumer = Consumer({
            "bootstrap.servers": self.bootstrap, "group.id": f"sum-{topic}",
            "isolation.level": "read_committed", "enable.partition.eof": "true", **COMMON,
        })  # fmt: skip
        consumer.assign([TopicPartition(topic, 0, 0)])
        count = checksum = 0
        while True:
            for message in consumer.consume(5000, 0.2):  # waits so long for the last of so many
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    consumer.close()
                    return count, checksum
                count, checksum = count + 1, (checksum + zlib.crc32(message.value() or b"")) % 2**32

    def check_once(self, topic: str, records: int, size: int) -> None:
        """Once for every kind of run: the topic's values are those that were sent."""
        if (records, size) not in self._checked:
            assert self.sum_of(topic) == expected(records, size), f"{topic} on {self.name}"
            self._checked.add((records, size))

    def count_once(self, topic: str, records: int, kind: str) -> None:
        """Once for every kind of run: as many committed records as were sent; their values are the tool's."""
        if (records, kind) not in self._counted:
            found, _ = self.sum_of(topic)
            assert found == records, f"{topic} on {self.name} holds {found} committed records of {records}"
            self._counted.add((records, kind))

    def end(self, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", **COMMON})
        end: int = consumer.get_watermark_offsets(TopicPartition(topic, 0), 10)[1]
        consumer.close()
        return end


def send(producer: Producer, topic: str, records: int, value: bytes, between: Callable[[], None]) -> None:
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        between()


def expected(records: int, size: int) -> tuple[int, int]:
    """Count and checksum of the values that a run sends."""
    return records, zlib.crc32(b"v" * size) * records % 2**32


def idempotent(subject: Subject, records: int, size: int, **settings: str | int) -> float:
    """The first record goes ahead of the clock: librdkafka may wait 0.5 s for a producer id."""
    topic, producer = subject.topic(), subject.producer(**settings)
    producer.produce(topic, b"v" * size, partition=0)
    assert producer.flush(60) == 0
    started = time.perf_counter()
    count = [0]

    def between() -> None:
        count[0] += 1
        if count[0] % 1000 == 0:
            producer.poll(0)

    send(producer, topic, records - 1, b"v" * size, between)
    left = producer.flush(60)
    if settings.get("acks") == 0:
        subject.wait_for_end(topic, records)
    took = time.perf_counter() - started
    assert left == 0, f"{left} records were not acknowledged"
    subject.expect_end(topic, records)
    subject.check_once(topic, records, size)
    return (records - 1) / took


def in_order(subject: Subject, records: int, size: int) -> float:
    """At least once in order, as before there were idempotent producers: one request at a time."""
    return idempotent(subject, records, size, **IN_ORDER)


def not_acknowledged(subject: Subject, records: int, size: int) -> float:
    """acks=0: sent and never heard of again; the topic's end tells when the last has arrived."""
    return idempotent(subject, records, size, **UNACKNOWLEDGED)


def transactions(subject: Subject, records: int, size: int) -> float:
    topic = subject.topic()
    producer = subject.producer(**{"transactional.id": topic})
    producer.init_transactions(30)
    started = time.perf_counter()
    producer.begin_transaction()
    begun, committed, sent = started, 0, 0

    def between() -> None:
        nonlocal begun, committed, sent
        sent += 1
        if sent % 100 == 0:
            producer.poll(0)
            if time.perf_counter() - begun >= 0.1:
                producer.commit_transaction(30)
                producer.begin_transaction()
                begun, committed = time.perf_counter(), committed + 1

    send(producer, topic, records, b"v" * size, between)
    producer.commit_transaction(30)
    took = time.perf_counter() - started
    subject.wait_for_end(topic, records + committed + 1)
    subject.expect_end(topic, records + committed + 1)
    subject.check_once(topic, records, size)
    return records / took


SMALL: dict[str, str | int] = {"enable.idempotence": "true", "linger.ms": 0}


def small_transactions(subject: Subject, records: int, size: int) -> float:
    topic, count = subject.topic(), min(records, 500)
    took, subject.p50_ms = _one_by_one(
        subject.producer(**SMALL, **{"transactional.id": topic}), topic, count, size
    )
    subject.wait_for_end(topic, 2 * count)
    subject.expect_end(topic, 2 * count)
    assert subject.sum_of(topic) == expected(count, size)
    return count / took


def client_alone(records: int, size: int) -> tuple[float, float]:
    """Transactions of one record with the broker that librdkafka has for its own tests: in memory, in the
    same process, nothing kept. Transactions a second, and ms of one: what the client itself takes."""
    settings: dict[str, str | int] = {"test.mock.num.brokers": 1, "transactional.id": "alone", "log_level": 2}
    took, p50_ms = _one_by_one(Producer({**settings, **SMALL}), "alone", records, size)
    return records / took, p50_ms


def _one_by_one(producer: Producer, topic: str, count: int, size: int) -> tuple[float, float]:
    """Seconds in all, and the median of one in ms."""
    producer.init_transactions(30)
    started = time.perf_counter()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, b"v" * size, partition=0)
        producer.commit_transaction(30)
        times.append(time.perf_counter() - began)
    return time.perf_counter() - started, statistics.median(times) * 1000


def consume(subject: Subject, records: int, size: int) -> float:
    topic, producer = subject.topic(), subject.producer()
    send(producer, topic, records, b"v" * size, lambda: None)
    assert producer.flush(60) == 0
    consumer = Consumer({
        "bootstrap.servers": subject.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
        "isolation.level": "read_committed", "enable.auto.commit": "false",
        "fetch.message.max.bytes": 1_048_576, **COMMON,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    got = first = 0
    started = 0.0
    while got < records:
        batch = consumer.consume(min(5000, records - got), 10)
        assert batch and all(m.error() is None for m in batch)
        if not first:
            started, first = time.perf_counter(), len(batch)
        got += len(batch)
    took = time.perf_counter() - started
    consumer.close()
    return (records - first) / took


def java(jars: Path, tool: str, *arguments: str | int) -> str:
    """What one of Kafka's own tools prints."""
    command = ["java", "-Xmx512m", "-cp", f"{jars}/*", f"org.apache.kafka.tools.{tool}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def java_produces(
    subject: Subject, jars: Path, records: int, size: int, *more: str | int, settings: Sequence[str] = ()
) -> float:
    topic = subject.topic()
    said = java(
        jars, "ProducerPerformance", "--topic", topic, "--num-records", records, "--record-size", size,
        "--throughput", -1, *more, "--producer-props", f"bootstrap.servers={subject.bootstrap}",
        *(settings or ("enable.idempotence=true",)),
    )  # fmt: skip
    subject.wait_for_end(topic, records)
    subject.count_once(topic, records, " ".join(map(str, (*more, *settings))))
    return float(re.findall(r"([0-9.]+) records/sec", said)[-1])


def java_transactions(subject: Subject, jars: Path, records: int, size: int) -> float:
    """Transactions of 100 ms."""
    within = ("--transactional-id", f"perf-{os.getpid()}", "--transaction-duration-ms", 100)
    return java_produces(subject, jars, records, size, *within)


def java_consumes(subject: Subject, jars: Path, records: int, size: int) -> float:
    topic, producer = subject.topic(), subject.producer()
    send(producer, topic, records, b"v" * size, lambda: None)
    assert producer.flush(60) == 0
    said = java(
        jars, "ConsumerPerformance", "--topic", topic, "--num-records", records,
        "--bootstrap-server", subject.bootstrap, "--reporting-interval", 100_000,
    )  # fmt: skip
    names, values = (line.split(",") for line in said.strip().splitlines()[-2:])
    found = dict(zip(map(str.strip, names), map(str.strip, values), strict=True))
    assert int(found["data.consumed.in.nMsg"]) >= records, said
    return float(found["fetch.nMsg.sec"])


def java_works(jars: Path) -> dict[str, Callable[[Subject, int, int], float]]:
    """The same by Kafka's own performance tools."""
    return {
        "Java ProducerPerformance idempotent, records/s": lambda s, n, z: java_produces(s, jars, n, z),
        "Java ProducerPerformance, transactions of 100 ms, records/s": lambda s, n, z: java_transactions(
            s, jars, n, z
        ),
        "Java ProducerPerformance, ordered at least once, records/s": lambda s, n, z: java_produces(
            s, jars, n, z, settings=JAVA_IN_ORDER
        ),
        "Java ConsumerPerformance, records/s": lambda s, n, z: java_consumes(s, jars, n, z),
    }


@contextlib.contextmanager
def subjects(jars: Path | None) -> Iterator[list[Subject]]:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(EmbeddedBroker())
        found = [Subject("eoslog", ours.bootstrap, ours.pid)]
        if jars is not None:
            peer = stack.enter_context(ApacheKafka(jars, {"broker.session.timeout.ms": "60000"}))
            found.append(Subject("Apache Kafka", peer.bootstrap, peer.pid))
        for subject in found:
            rss = subject.process.memory_info().rss / 1e6
            print(f"{subject.name}: resident when idle {rss:.0f} MB", flush=True)
        yield found


# -- the disk alone --------------------------------------------------------------------------------

SIZES = {
    1_000: "a small record",
    16_384: "a batch of Java's producer",
    5 * 16_384: "five of them",
    1_000_000: "a batch of librdkafka's",
}
_SYNCS = 300
_PAUSE_SECONDS = 0.0005  # between two: a broker has requests to read


def sync_ms(size: int) -> float:
    """The median of appends of `size` bytes with their syncs to a growing file, beside the brokers' data."""
    data, times = os.urandom(size), []
    with tempfile.TemporaryDirectory(prefix="eoslog-disk-") as directory:
        file = os.open(Path(directory) / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for _ in range(_SYNCS):
                started = time.perf_counter()
                os.write(file, data)
                os.fdatasync(file)
                times.append(time.perf_counter() - started)
                time.sleep(_PAUSE_SECONDS)
        finally:
            os.close(file)
    return statistics.median(times) * 1000


def disk_alone(context: Context) -> list[Result]:
    turns = {size: [sync_ms(size) for _ in range(context.sizes.rounds)] for size in SIZES}
    figures = [Figure(f"{size:,} bytes: {SIZES[size]}", turns[size], FLUSHED, "none") for size in SIZES]
    return [Result("disk", "this disk alone: append and fdatasync", "ms", Goal("shown"), figures)]


# -- lines of the table ----------------------------------------------------------------------------

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


def produce_lines(context: Context) -> list[Result]:
    works = [
        ("confluent-kafka, idempotent producer", idempotent, 500_000, 1000, IDEMPOTENT),
        ("confluent-kafka, idempotent producer", idempotent, 1_500_000, 100, IDEMPOTENT),
        ("confluent-kafka, transactions of 100 ms", transactions, 500_000, 1000, EXACTLY),
        ("confluent-kafka, ordered at least once", in_order, 500_000, 1000, AT_LEAST),
    ]
    return [result for work in works for result in _beside(context, "broker-produce", *work)]


def sizes_lines(context: Context) -> list[Result]:
    """More sizes for the picture."""
    works = [(10, 1_500_000), (10_000, 50_000)]
    title = "confluent-kafka, idempotent producer"
    return [
        result
        for size, full in works
        for result in _beside(context, "broker-sizes", title, idempotent, full, size, IDEMPOTENT)
    ]


def consume_lines(context: Context) -> list[Result]:
    title = "confluent-kafka, consumer"
    return _beside(context, "broker-consume", title, consume, 1_000_000, 1000, NO_WRITE)


def java_lines(context: Context) -> list[Result]:
    worth = {"ordered": AT_LEAST, "transactions": EXACTLY, "Consumer": NO_WRITE}
    results = []
    for name, work in java_works(context.jars).items():
        guarantee = next((said for part, said in worth.items() if part in name), IDEMPOTENT)
        title = name.removesuffix(", records/s")
        results += _beside(context, "broker-java", title, work, 300_000, 1000, guarantee)
    return results


def small_transactions_lines(context: Context) -> list[Result]:
    subjects = _subjects(context)
    p50: dict[str, list[float]] = {name: [] for name in (*subjects, CLIENT_ALONE)}
    count = context.sizes.records(500)

    def run(name: str) -> float:
        if name == CLIENT_ALONE:
            rate, p50_ms = client_alone(count, 1000)
        else:
            rate = small_transactions(subjects[name], count, 1000)
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


def cost_lines(context: Context) -> list[Result]:
    works = [transactions, in_order, not_acknowledged]
    return _costs(context, "broker-cost", "confluent-kafka", [*PAIRS], works)


def java_cost_lines(context: Context) -> list[Result]:
    """With the tool that the authors of KIP-98 measured with, and as they did: without syncs."""
    jars = context.jars
    works: list[Work] = [
        lambda s, n, z: java_transactions(s, jars, n, z),
        lambda s, n, z: java_produces(s, jars, n, z, settings=JAVA_IN_ORDER),
        lambda s, n, z: java_produces(s, jars, n, z, settings=JAVA_UNACKNOWLEDGED),
    ]
    return _costs(context, "broker-java-cost", "Java ProducerPerformance", [PAGE_CACHE], works)


SECTIONS = [
    Section("disk", disk_alone),
    Section("broker-produce", produce_lines),
    Section("broker-sizes", sizes_lines),
    Section("broker-consume", consume_lines),
    Section("broker-java", java_lines),
    Section("broker-small", small_transactions_lines),
    Section("broker-cost", cost_lines),
    Section("broker-java-cost", java_cost_lines),
]
