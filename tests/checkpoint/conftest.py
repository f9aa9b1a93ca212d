"""Checkpoints that are edited: of a query in Spark, on a broker of its own, and made without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.checkpointkit import EditedQuery, decide, lines, plan
from tests.connector.brokers import Kafka, start_broker


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    with start_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture
def query(spark: SparkSession, hasty: Kafka, tmp_path: Path) -> EditedQuery:
    return EditedQuery(spark, hasty, tmp_path)


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    """A topic with 30 rows."""
    kafka = Kafka(broker.bootstrap)
    topic = kafka.topic()
    kafka.put(topic, [b"%d" % number for number in range(30)])
    return topic


@pytest.fixture
def cluster(broker: EmbeddedBroker) -> Cluster:
    """The broker, as the client sees it."""
    return Cluster(ClientConfig((("127.0.0.1", broker.port),)))


@pytest.fixture
def plain(tmp_path: Path, topic: str) -> Path:
    """A checkpoint of Spark's own source, whose batches end at 10 and 20."""
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    for batch, end in enumerate((10, 20)):
        plan(tmp_path, batch, lines({topic: {"0": end}}))
    return tmp_path


@pytest.fixture
def decided(plain: Path, cluster: Cluster, topic: str) -> Path:
    """The same, of a query whose sink has decided batch 1 and committed its end to a group."""
    decide(cluster, plain, topic, 1)
    return plain


@pytest.fixture
def state(broker: EmbeddedBroker) -> str:
    """A topic for state.topic."""
    return Kafka(broker.bootstrap).topic(cleanup_policy="compact")


@pytest.fixture
def saved(plain: Path, cluster: Cluster, topic: str, state: str) -> Path:
    """As `decided`, with the checkpoint saved under the decision."""
    decide(cluster, plain, topic, 1, state=state)
    return plain


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedBroker]:
    """Another cluster."""
    with EmbeddedBroker(in_thread=True) as broker:
        yield broker
