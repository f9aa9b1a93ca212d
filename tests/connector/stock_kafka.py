"""A broker as the stock client (confluent-kafka) sees it: what the connector's tests compare with."""

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.kit.waiting import until

QUIET: dict[str, Any] = {"log_level": 0}
"""A client that outlives its broker would say so on standard error, again and again."""


def bare(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """A stream's offsets without the entries that tell the ids of topics and cluster."""
    return {topic: dict(parts) for topic, parts in offsets.items() if ":" not in topic}


class Kafka:
    """A broker and the stock client's view of it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient(QUIET | {"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 1, name: str | None = None, **config: str) -> str:
        """Create a topic of a new name and return it. Old times do no harm: nothing expires by itself."""
        name = name or f"t-{uuid.uuid4().hex[:12]}"
        named = {"retention_ms": "-1"} | config
        new = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in named.items()})
        self.admin.create_topics([new])[name].result(60)
        return name

    def make_anew(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Delete a topic, and create another one of its name once it is gone."""
        self.admin.delete_topics([topic])[topic].result(60)
        until(lambda: topic not in self.admin.list_topics(timeout=10).topics, f"{topic} is gone")
        self.topic(partitions, name=topic, **config)

    def producer(self, **config: Any) -> Producer:
        """A stock producer; configuration with underscores for dots."""
        return Producer(
            QUIET
            | {"bootstrap.servers": self.bootstrap}
            | {k.replace("_", "."): v for k, v in config.items()}
        )

    def transactional(self, transactional_id: str) -> Producer:
        """A stock transactional producer, initialised."""
        producer = self.producer(transactional_id=transactional_id)
        producer.init_transactions(60)
        return producer

    def put(self, topic: str, values: list[bytes], partition: int = 0, **more: Any) -> None:
        """Produce values outside transactions and wait for all of them. Only while no broker is killed: it
        is not idempotent (librdkafka's idempotent producer waits half a second for its id, each time)."""
        producer = self.producer(acks="all", linger_ms=1000)  # flush() does not linger: one batch
        told: list[KafkaError | None] = []
        for value in values:
            producer.produce(
                topic, value, partition=partition, on_delivery=lambda error, _: told.append(error), **more
            )
        assert producer.flush(60) == 0
        assert told == [None] * len(values), [str(error) for error in told if error is not None]

    def rows(self, topic: str, partitions: int = 1, *, committed: bool = True) -> list[tuple[Any, ...]]:
        """Every record as the stock consumer sees it, sorted: (partition, offset, key, value, timestamp
        type, timestamp, headers)."""
        consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": self.bootstrap,
                "group.id": uuid.uuid4().hex,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,  # an end is told by an empty answer: not half a second later
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        found, ended = [], set[int | None]()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"no answer from the stock consumer; ended: {ended}"
            if message.error():
                ended.add(message.partition())
                continue
            found.append(
                (
                    message.partition(),
                    message.offset(),
                    message.key(),
                    message.value(),
                    # librdkafka counts 1 for the producer's time and 2 for the broker's, the log 0 and 1
                    message.timestamp()[0] - 1,
                    message.timestamp()[1],
                    message.headers(),
                )
            )
        consumer.close()
        return sorted(found)


# -- offsets that an admin asks for --------------------------------------------------------------
# Which offset confluent-kafka's admin client is asked for: what makes them has no types there.

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
MAX_TIMESTAMP: OffsetSpec = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]
