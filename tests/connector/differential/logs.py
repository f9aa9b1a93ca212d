"""The logs that both connectors read: compressed, transactional, empty, trimmed, with an open end."""

from confluent_kafka import TopicPartition

from tests.connector.differential.draws import T, Topic
from tests.connector.stock_kafka import Kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def make_topics(kafka: Kafka) -> list[Topic]:
    """Fill the topics and tell their bounds. Nothing in them is too old to keep."""
    made = [
        _plain(kafka, "plain", 3, "none"),
        *(_plain(kafka, f"as-{codec}", 1, codec) for codec in CODECS[1:]),
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


def _plain(kafka: Kafka, name: str, partitions: int, codec: str) -> Topic:
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
    for future in kafka.admin.delete_records([TopicPartition(topic, 0, 120)]).values():
        future.result(10)
    return Topic(topic, {0: (120, 300)})
