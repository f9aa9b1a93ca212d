"""Spark's Kafka connector and eoslog beside each other: topics, options drawn at random, what each says."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from confluent_kafka import TopicPartition as ClientPartition
from pyspark.sql import DataFrame, SparkSession

from eoslog.protocol.topic_partitions import TopicPartition
from tests.connector.brokers import Kafka

CONNECTORS = ("kafka", "eoslog")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Outcome:
    """What came of a query: rows, or the text of the error that refused it."""

    rows: list[Row] | None
    refused: str = ""


def outcome(ask: Callable[[], list[Row]]) -> Outcome:
    """Run it. Whatever Spark raises is an outcome, too: the caller says which errors are right."""
    try:
        return Outcome(ask())
    except Exception as error:
        return Outcome(None, str(error))


def read(spark: SparkSession, connector: str, options: dict[str, str]) -> list[Row]:
    """Rows of a batch read, by topic, partition and offset."""
    return rows_of(spark.read.format(connector).options(**options).load())


def rows_of(frame: DataFrame) -> list[Row]:
    """Every column of every row, sorted by place."""
    rows = [tuple(map(_plain, row)) for row in frame.collect()]
    return sorted(rows, key=lambda row: row[2:5])


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [tuple(map(_plain, one)) for one in value]
    return value


# -- draws ---------------------------------------------------------------------------------------
# Option combinations drawn at random: everything that decides which rows a read gives. Pure.

T = 1_700_000_000_000


@dataclass(frozen=True)
class Topic:
    """A log to read: by partition its first offset and its end (high watermark)."""

    name: str
    bounds: dict[int, tuple[int, int]]


def draw(random: Random, topics: list[Topic], *, stream: bool) -> dict[str, str]:
    """Options of one read, without the brokers' addresses."""
    chosen = random.sample(topics, random.randint(1, 3))
    bounds = {(t.name, p): bound for t in chosen for p, bound in t.bounds.items()}
    options, bounds = _where(random, chosen, bounds)
    options |= _start(random, bounds, stream)
    if not stream:
        options |= _end(random, bounds)
    if random.random() < 0.4:
        options["minPartitions"] = str(random.randint(1, 9))
    if random.random() < 0.3:
        options["maxRecordsPerPartition"] = str(random.randint(5, 200))
    options["includeHeaders"] = random.choice(("true", "false", "TRUE"))
    options["kafka.isolation.level"] = random.choice(("read_committed", "read_uncommitted"))
    options["failOnDataLoss"] = random.choice(("true", "false"))
    return {_any_case(random, name): value for name, value in options.items()}


def _where(
    random: Random, chosen: list[Topic], bounds: dict[TopicPartition, tuple[int, int]]
) -> tuple[dict[str, str], dict[TopicPartition, tuple[int, int]]]:
    names = [t.name for t in chosen]
    how = random.choice(("subscribe", "subscribePattern", "assign"))
    if how == "subscribe":
        return {how: random.choice((",", " , ")).join(names)}, bounds
    if how == "subscribePattern":
        return {how: "|".join(names)}, bounds
    some = dict(random.sample(sorted(bounds.items()), random.randint(1, len(bounds))))
    return {how: json.dumps(_nested(dict.fromkeys(some, 0), listed=True))}, some


def _start(random: Random, bounds: dict[TopicPartition, tuple[int, int]], stream: bool) -> dict[str, str]:
    word = random.choice(("earliest", "Earliest", " earliest "))
    each = {
        place: -2 if random.random() < 0.3 else random.randint(first, (first + end) // 2)
        for place, (first, end) in bounds.items()
    }
    times = {place: T + random.randint(-50, 400) for place in bounds}
    forms: list[dict[str, str]] = [
        {"startingOffsets": word},
        {"startingOffsets": json.dumps(_nested(each))},
        {"startingTimestamp": str(T + random.randint(-50, 400))},
        {"startingOffsetsByTimestamp": json.dumps(_nested(times))},
        {"startingOffsets": word, "startingTimestamp": str(T + random.randint(0, 200))},
        {"startingOffsets": word, "startingOffsetsByTimestamp": json.dumps(_nested(times))},
    ]
    if not stream:
        forms.append({})
    form = random.choice(forms)
    if random.random() < 0.7:
        form["startingOffsetsByTimestampStrategy"] = random.choice(("latest", "LATEST"))
    return form


def _end(random: Random, bounds: dict[TopicPartition, tuple[int, int]]) -> dict[str, str]:
    each = {
        place: -1 if random.random() < 0.3 else random.randint((first + end + 1) // 2, end)
        for place, (first, end) in bounds.items()
    }
    times = {place: T + random.randint(100, 700) for place in bounds}
    return random.choice(
        (
            {},
            {"endingOffsets": "latest"},
            {"endingOffsets": json.dumps(_nested(each))},
            {"endingTimestamp": str(T + random.randint(200, 700))},
            {"endingOffsetsByTimestamp": json.dumps(_nested(times))},
            {"endingOffsets": "latest", "endingTimestamp": str(T + random.randint(200, 700))},
        )
    )


def _nested(numbers: dict[TopicPartition, int], *, listed: bool = False) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), number in numbers.items():
        found.setdefault(topic, {})[str(partition)] = number
    if listed:
        return {topic: [int(p) for p in parts] for topic, parts in found.items()}
    return dict(found)


def _any_case(random: Random, name: str) -> str:
    return random.choice((name, name, name.lower(), name.upper()))


# -- topics --------------------------------------------------------------------------------------
# The logs that both connectors read: compressed, transactional, empty, trimmed, with an open end.

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_topics(kafka: Kafka) -> list[Topic]:
    """Fill the topics and tell their bounds. Nothing in them is too old to keep."""
    made = [
        _plain_log(kafka, "plain", 3, "none"),
        *(_plain_log(kafka, f"as-{codec}", 1, codec) for codec in CODECS[1:]),
        _holes(kafka),
        _transactions(kafka, "closed", leave_open=False),
        _transactions(kafka, "open", leave_open=True),
        _trimmed(kafka),
    ]
    return [*made, Topic(kafka.topic(2, name="d-empty"), {0: (0, 0), 1: (0, 0)})]


def _fill(kafka: Kafka, topic: str, partitions: list[int], codec: str = "none", count: int = 300) -> None:
    producer = kafka.producer(enable_idempotence=True, compression_type=codec, linger_ms=5)
    for i in range(count):
        producer.produce(
            topic,
            None if i % 13 == 0 else b"value %d" % i * (i % 5),
            None if i % 3 == 0 else b"key %d" % (i % 17),
            partition=partitions[i % len(partitions)],
            timestamp=T + i,
            headers=[("h", b"%d" % i), ("null", None), ("h", b"")] if i % 4 == 0 else None,
        )
    assert producer.flush(30) == 0


def _plain_log(kafka: Kafka, name: str, partitions: int, codec: str) -> Topic:
    topic = kafka.topic(partitions, name=f"d-{name}")
    _fill(kafka, topic, list(range(partitions)), codec)
    return Topic(topic, dict.fromkeys(range(partitions), (0, 300 // partitions)))


def _holes(kafka: Kafka) -> Topic:
    """Partition 1 is empty, and the time is the broker's."""
    topic = kafka.topic(3, name="d-holes", message_timestamp_type="LogAppendTime")
    _fill(kafka, topic, [0, 2], "zstd", 100)
    return Topic(topic, {0: (0, 50), 1: (0, 0), 2: (0, 50)})


def _transactions(kafka: Kafka, name: str, *, leave_open: bool) -> Topic:
    topic = kafka.topic(2, name=f"d-{name}")
    producer = kafka.transactional(f"d-{name}")
    for number, commit in enumerate((True, False, False, True, False)):
        producer.begin_transaction()
        for i in range(40):
            at = T + number * 40 + i
            producer.produce(topic, b"%d %d" % (number, i), b"k%d" % i, partition=i % 2, timestamp=at)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    if leave_open:
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0, timestamp=T + 250)
        assert producer.flush(20) == 0
        _fill(kafka, topic, [0], count=10)
        _LEFT_OPEN.append(producer)
    return Topic(topic, {0: (0, 105), 1: (0, 105)})


_LEFT_OPEN: list[object] = []
"""Producers whose transactions are to stay open."""


def _trimmed(kafka: Kafka) -> Topic:
    topic = kafka.topic(1, name="d-trimmed")
    _fill(kafka, topic, [0], "lz4")
    for future in kafka.admin.delete_records([ClientPartition(topic, 0, 120)]).values():
        future.result(10)
    return Topic(topic, {0: (120, 300)})
