"""Topics on which filters are tried: times out of order, nulls, transactions, gaps, brokers' times."""

import uuid
from random import Random
from typing import NamedTuple

import pyarrow as pa
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.encode import encode_batches
from tests.connector.brokers import ON_KAFKA
from tests.connector.stock_kafka import Kafka
from tests.kit.waiting import until

T = 1_700_000_000_000
EAGER = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}
"""The broker's options: compaction at once."""
_LEAST = 1 << (20 if ON_KAFKA else 10)
"""The smallest segment that the broker allows."""
_SMALL_SEGMENTS = {"segment_bytes": str(_LEAST)}


class Topics(NamedTuple):
    """Names by kind."""

    plain: str
    transactional: str
    compacted: str
    switched: str

    @property
    def partitions(self) -> dict[str, int]:
        return {self.plain: 3, self.transactional: 2, self.compacted: 1, self.switched: 1}


def make_topics(kafka: Kafka) -> Topics:
    """Fill the topics; the last of the producers leaves its transaction open."""
    return Topics(_plain(kafka), _transactional(kafka), _compacted(kafka), _switched(kafka))


def _name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def _put(kafka: Kafka, topic: str, partition: int, times: list[int], key: bytes | None = None) -> None:
    """A batch with these times, which may be -1, as stock clients do not write it."""
    values = pa.array([None if n % 5 == 0 else b"%d" % n * 9 for n in range(len(times))], pa.binary())
    keys = pa.array([key if n % 3 else None for n in range(len(times))], pa.binary())
    stamps = pa.array(times, pa.int64())
    cluster = shared_cluster(ClientConfig(parse_addresses(kafka.bootstrap)))
    with Producer(cluster, identity=None) as producer:
        for batch in encode_batches(keys, values, None, stamps, codec=0, max_batch_bytes=900_000):
            producer.send(topic, partition, batch)
        producer.flush()


def _plain(kafka: Kafka) -> str:
    """Three partitions: about rising, at random, and with records without a time."""
    topic, random = kafka.topic(3, _name("plain"), **_SMALL_SEGMENTS), Random(1)
    for step in range(40):
        _put(kafka, topic, 0, [T + 100 * step + random.randrange(120) for _ in range(5)])
        _put(kafka, topic, 1, [T + random.randrange(4000) for _ in range(5)])
        if step % 4 == 0:
            _put(kafka, topic, 2, [random.choice([-1, 0, 1, T + 50 * step]) for _ in range(5)])
    return topic


def _transactional(kafka: Kafka) -> str:
    topic, random = kafka.topic(2, _name("transactional"), **_SMALL_SEGMENTS), Random(2)
    producer = kafka.transactional(topic)
    for number in range(12):
        producer.begin_transaction()
        for i in range(6):
            at = T + 300 * number + random.randrange(600)
            producer.produce(topic, b"%d" % i * 20, None if i % 2 else b"k", partition=i % 2, timestamp=at)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.abort_transaction if number % 3 == 1 else producer.commit_transaction)(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0, timestamp=T + 10)
    assert producer.flush(20) == 0
    _LEFT_OPEN.append(producer)
    kafka.put(topic, [b"behind"], 0, timestamp=T + 5000)
    return topic


_LEFT_OPEN: list[object] = []
"""Producers whose transactions are to stay open."""


def _compacted(kafka: Kafka) -> str:
    """Gaps, whole batches gone, among them those with the largest times."""
    config = {**_SMALL_SEGMENTS, "min_cleanable_dirty_ratio": "0.01", "cleanup_policy": "compact"}
    topic, random = kafka.topic(1, _name("compacted"), **config), Random(3)
    for step in range(60):
        at = T + 3900 if step == 7 else T + 60 * step + random.randrange(200)
        kafka.put(
            topic, [random.randbytes(_LEAST // 12)], 0, key=b"k%d" % (random.randrange(8)), timestamp=at
        )
    until(lambda: len(kafka.rows(topic)) < 40, "the topic is compacted")
    return topic


def _switched(kafka: Kafka) -> str:
    """First the producers' times, far ahead and out of order, then the broker's."""
    topic, random = kafka.topic(1, _name("switched"), **_SMALL_SEGMENTS), Random(4)
    for _ in range(10):
        _put(kafka, topic, 0, [T + random.randrange(3_000_000) for _ in range(4)])
    resource = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry(
                "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
            )
        ],
    )
    for future in kafka.admin.incremental_alter_configs([resource]).values():
        future.result(20)
    for _ in range(5):
        _put(kafka, topic, 0, [T] * 4)
    return topic
