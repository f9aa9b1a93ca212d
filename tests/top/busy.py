"""A cluster with something to see: topics, groups that lag, and a transaction that is open."""

from __future__ import annotations

from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 60.0
TOPICS = {"clicks": 4, "orders": 3, "orders_upper": 3, "payments": 1}
RECORDS = 200  # in `clicks`; the others have less
OPEN = "billing-0"


class Busy:
    """What the tests of top look at. A context manager: the open transaction is aborted at its end."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producer = Producer({"bootstrap.servers": bootstrap})
        long = {"transaction.timeout.ms": 600_000}  # a module's tests may take more than a minute
        self._open = Producer({"bootstrap.servers": bootstrap, "transactional.id": OPEN, **long})

    def __enter__(self) -> Self:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = [NewTopic(name, partitions, 1) for name, partitions in TOPICS.items()]
        for done in admin.create_topics(new).values():
            done.result(WAIT_S)
        for n, name in enumerate(TOPICS):
            self.write(name, RECORDS // (n + 1))
        self._commit("shop", "orders", 40)
        self._commit("dashboard", "clicks", 5)
        self._open.init_transactions(WAIT_S)
        self._open.begin_transaction()
        for n in range(10):
            self._open.produce("payments", b"%d" % n, partition=0)
        assert self._open.flush(WAIT_S) == 0
        return self

    def __exit__(self, *_: object) -> None:
        self._open.abort_transaction(WAIT_S)

    def write(self, topic: str, records: int) -> None:
        """Add records of 300 bytes to a topic's partitions in turn."""
        for n in range(records):
            self._producer.produce(topic, b"v" * 300, partition=n % TOPICS[topic])
        assert self._producer.flush(WAIT_S) == 0

    def _commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()
