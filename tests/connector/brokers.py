"""Where the connector's tests run, the bundled broker or Apache Kafka, and a stock client to check against.

EOSLOG_TEST_BROKER=kafka makes every broker that a test asks for an Apache Kafka node (KRaft, a process and
directory of its own), of version EOSLOG_TEST_KAFKA (4.3.1 by default). EOSLOG_TEST_TRANSACTION_VERSION=1
formats it for the older transaction protocol (TV1), 0 leaves the level to its version: before 4.0 nothing
can be chosen. EOSLOG_TEST_ZOOKEEPER=1 gives each node a ZooKeeper, which Kafka had until 3.9.
EOSLOG_TEST_BROKER=kfake makes them nodes of franz-go's kfake. A test never asks which one it got: it asks the
cluster what it offers.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from eoslog.client.admin import transactions
from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.kfake.kfake import Kfake
from tests.kit.program import until
from tests.scenarios.apache_kafka import JARS, ApacheKafka, kafka_on_zookeeper

# -- brokers ---------------------------------------------------------------------------------------
# Where the connector's tests run: on the bundled broker, or on an Apache Kafka node of their own.
#
# EOSLOG_TEST_BROKER=kafka makes every broker that a test asks for an Apache Kafka node (KRaft, a process
# and directory of its own), of version EOSLOG_TEST_KAFKA (4.3.1 by default).
# EOSLOG_TEST_TRANSACTION_VERSION=1 formats it for the older transaction protocol (TV1), 0 leaves the level
# to its version: before 4.0 nothing can be chosen. EOSLOG_TEST_ZOOKEEPER=1 gives each node a ZooKeeper,
# which Kafka had until 3.9. EOSLOG_TEST_BROKER=kfake makes them nodes of franz-go's kfake. A test never
# asks which one it got: it asks the cluster what it offers.


ON_KFAKE = os.environ.get("EOSLOG_TEST_BROKER") == "kfake"
ON_KAFKA = os.environ.get("EOSLOG_TEST_BROKER", "eoslog") == "kafka"
_JARS = JARS.with_name(f"kafka-{os.environ.get('EOSLOG_TEST_KAFKA', '4.3.1')}")
_WITH_ZOOKEEPER = os.environ.get("EOSLOG_TEST_ZOOKEEPER") == "1"
_LEVEL = os.environ.get("EOSLOG_TEST_TRANSACTION_VERSION", "2")
FORMATTING = () if _LEVEL == "0" else (f"--feature=transaction.version={_LEVEL}",)
_ADDS_PARTITIONS = 12  # the Produce that adds partitions to the transaction by itself (KIP-890)
_KEEPS_PREPARED = 6  # the InitProducerId of two-phase commit (KIP-939)

DECISIONS = "decisions"
"""The topic that keeps decisions where the internal topics are hidden."""

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Options of a broker that can hide topics."""

_SHORT_FORMS = (
    "its broker is set up in the bundled broker's short forms, which Kafka wants otherwise: SCRAM users in a "
    "JAAS text (kafka-storage --add-scram), any PEM key (PKCS 8), keys of tokens in a file (a login module)"
)
BUNDLED_ONLY = {
    "test_security.py": _SHORT_FORMS,
    "test_security_spark.py": _SHORT_FORMS,
    "test_visible_at_once.py": "Apache Kafka ends one transaction a request: parts of a batch can be seen",
}
"""Files that do not run on Apache Kafka, and why."""


class Broker(Protocol):
    """A broker of the test's own, which may be killed and started again."""

    host: str
    port: int

    @property
    def bootstrap(self) -> str: ...

    def kill(self) -> None: ...

    def restart(self) -> Any: ...


def start_broker(config: Mapping[str, str] | None = None) -> AbstractContextManager[Broker]:
    """A broker with these options, which both kinds know by the same names."""
    if ON_KAFKA and _WITH_ZOOKEEPER:
        return kafka_on_zookeeper(config or {}, _JARS)
    if ON_KAFKA:
        return ApacheKafka(config or {}, FORMATTING, _JARS)
    if ON_KFAKE:
        return Kfake(config or {})
    return EmbeddedBroker(config=config)


@contextlib.contextmanager
def start_hiding_broker(config: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """A broker that hides its internal topics from clients, as hosted ones do; it has the topic DECISIONS."""
    with start_broker(AUTHORIZER | dict(config or {})) as broker:
        Kafka(broker.bootstrap).topic(3, name=DECISIONS)
        with Cluster(ClientConfig(parse_addresses(broker.bootstrap))) as cluster:
            transactions.init_producer_id(cluster, "first", 60_000)
            commit_plain(cluster, "first", {(DECISIONS, 0): (1, "")})  # now the internal topics are there
        hide_internal_topics(broker.bootstrap)
        yield broker


def hide_internal_topics(bootstrap: str) -> None:
    """From now on clients of a broker that has an AUTHORIZER see no internal topic; those that exist work."""
    hide_topics(bootstrap, "__consumer_offsets", "__transaction_state")


def hide_topics(bootstrap: str, *topics: str) -> None:
    """From now on clients of a broker that has an AUTHORIZER do not see these topics."""
    rules = [
        AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*",
            AclOperation.ALL, AclPermissionType.DENY,
        )
        for topic in topics
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls(rules).values():
        done.result(60)


def show_topics(bootstrap: str) -> None:
    """Clients see every topic again."""
    hidden = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None,  # type: ignore[arg-type]  # None: any
        AclOperation.ANY, AclPermissionType.DENY,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.delete_acls([hidden]).values():
        done.result(60)


def skip_unless_served(bootstrap: str, level: int) -> None:
    """For a test that has the client use this transaction.version, whatever the cluster's own level is."""
    with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
        if level >= transactions.TV2 and cluster.any_broker().versions[ApiKey.PRODUCE][1] < _ADDS_PARTITIONS:
            pytest.skip("this cluster is older than transaction.version 2 (KIP-890, Kafka 4.0)")


def offers_two_phase_commit(bootstrap: str) -> bool:
    """Whether the cluster serves what sealing needs, by its ApiVersions."""
    with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
        return cluster.any_broker().versions[ApiKey.INIT_PRODUCER_ID][1] >= _KEEPS_PREPARED


# -- the stock client ------------------------------------------------------------------------------
# A broker as the stock client (confluent-kafka) sees it: what the connector's tests compare with.


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

    def configure(self, topic: str, name: str, value: str | None) -> None:
        """Give a topic another setting; None: the broker's own again."""
        how = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(name, value or "", incremental_operation=how)
        named = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
        self.admin.incremental_alter_configs([named])[named].result(60)

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

    def put(self, topic: str, values: Sequence[bytes | None], partition: int = 0, **more: Any) -> None:
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
