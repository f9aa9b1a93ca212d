"""Clusters with something to see: a transaction that is open, groups that lag, hundreds of groups and ids."""

from __future__ import annotations

from typing import Self

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eoslog.client.admin import transactions
from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink
from eoslog.protocol.names_by_sink import ANCHOR
from eoslog.protocol.producer_identity import ProducerIdentity

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


# -- a cluster with many names -------------------------------------------------------------------
# A cluster with hundreds of groups and thousands of transactional ids, made cheaply.

MANY_WAIT_S = 90.0
TIMEOUT_MS = 800_000
"""Of transactions that stay open: the broker must not end them before the test does."""
SINKS, IDS_OF_A_SINK, OPEN_OF_A_SINK = 8, 240, 3
IDLE = SINKS - 1
"""The sink that has nothing open."""
GROUPS, OTHER_IDS = 500, 80
"""Of all groups, two for each sink; of all ids, `IDS_OF_A_SINK` with its own."""
READERS = GROUPS - 2 * SINKS


def sink(number: int) -> Sink:
    """A sink by its number: the first has a slash in its id."""
    return Sink("copy/eu" if number == 0 else f"copy-{number}")


def reader(number: int) -> str:
    """The group of a reader; the higher the number, the larger the lag."""
    return f"{'shop' if number % 2 else 'dash'}-reader-{number:03}"


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Groups and ids beside a topic of one partition, which has that many records."""
    with Cluster(client_config(bootstrap, None, MANY_WAIT_S)) as cluster:
        for number in range(READERS):
            commit_plain(cluster, reader(number), {(topic, 0): (max(records - number, 0), "")})
        for number in range(SINKS):
            for group in (sink(number).group, sink(number).finished_group):
                commit_plain(cluster, group, {(ANCHOR, 0): (7, "")})
            _ids(cluster, sink(number), topic, 0 if number == IDLE else OPEN_OF_A_SINK)
        for number in range(OTHER_IDS):
            transactions.init_producer_id(cluster, f"job-{number:02}", TIMEOUT_MS)


def _ids(cluster: Cluster, one: Sink, topic: str, opened: int) -> None:
    transactions.init_producer_id(cluster, one.coordinator, TIMEOUT_MS)
    for number in range(IDS_OF_A_SINK - 1):
        name = one.participant(ParticipantSlot(ProducerIdentity(5, 0), number % 2, "w", number))
        identity = transactions.init_producer_id(cluster, name, TIMEOUT_MS)
        if number < opened:
            transactions.add_partitions(cluster, name, identity, [(topic, 0)])
