"""Where the connector's tests run: on the bundled broker, or on an Apache Kafka node of their own.

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
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eoslog.client.admin import transactions
from eoslog.client.admin.group_offsets import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.kfake.kfake import Kfake
from tests.scenarios.apache_kafka import JARS, ApacheKafka, kafka_on_zookeeper

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
    rules = [
        AclBinding(
            ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:*", "*",
            AclOperation.ALL, AclPermissionType.DENY,
        )
        for topic in ("__consumer_offsets", "__transaction_state")
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_acls(rules).values():
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
