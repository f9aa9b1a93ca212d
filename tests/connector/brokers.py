"""Where the connector's tests run: on the bundled broker, or on an Apache Kafka node of their own.

EOSLOG_TEST_BROKER=kafka makes every broker that a test asks for an Apache Kafka node (KRaft, a process and
directory of its own), of version EOSLOG_TEST_KAFKA (4.3.1 by default). EOSLOG_TEST_TRANSACTION_VERSION=1
formats it for the older transaction protocol (TV1), 0 leaves the level to its version: before 4.0 nothing can
be chosen. A test never asks which one it got: it asks the cluster what it offers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from eoslog.connector.client.wire.cluster import Cluster
from eoslog.connector.client.wire.config import ClientConfig, parse_addresses
from eoslog.protocol.apis import ApiKey
from eoslog.testing import EmbeddedBroker
from tests.scenarios.apache_kafka import JARS, ApacheKafka

ON_KAFKA = os.environ.get("EOSLOG_TEST_BROKER", "eoslog") == "kafka"
_JARS = JARS.with_name(f"kafka-{os.environ.get('EOSLOG_TEST_KAFKA', '4.3.1')}")
_LEVEL = os.environ.get("EOSLOG_TEST_TRANSACTION_VERSION", "2")
FORMATTING = () if _LEVEL == "0" else (f"--feature=transaction.version={_LEVEL}",)
_KEEPS_PREPARED = 6  # the InitProducerId of two-phase commit (KIP-939)

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
    if ON_KAFKA:
        return ApacheKafka(config or {}, FORMATTING, _JARS)
    return EmbeddedBroker(config=config)


def offers_two_phase_commit(bootstrap: str) -> bool:
    """Whether the cluster serves what sealing needs, by its ApiVersions."""
    with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
        return cluster.any_broker().versions[ApiKey.INIT_PRODUCER_ID][1] >= _KEEPS_PREPARED
