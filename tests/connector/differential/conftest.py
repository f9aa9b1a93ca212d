"""One Spark session with both connectors, and one Apache Kafka node for them: `make test-differential`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.peer_kafka import ApacheKafka
from eoslog.connector.spark.versions import PYSPARK
from tests.connector.differential.draws import Topic
from tests.connector.differential.logs import make_topics
from tests.connector.stock_kafka import Kafka

_PEERS = Path(__file__).parents[3] / ".peers"
_KAFKA = _PEERS / "kafka-4.3.1"
_LINE = ".".join(PYSPARK.split(".")[:2])
_OF_LINE = sorted(_PEERS.glob(f"spark-kafka-{_LINE}.?"))
_SPARK_KAFKA = _OF_LINE[-1] if _OF_LINE else _PEERS / "spark-kafka-4.2.0"
"""Spark's connector of this PySpark's line; there is none of 4.3."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with the jars of Spark's connector."""
    jars = ",".join(map(str, sorted(_SPARK_KAFKA.glob("*.jar"))))
    assert jars, f"no jars in {_SPARK_KAFKA}: run make test-differential, which fetches them"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("eoslog-differential")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The node, as the stock client sees it."""
    with ApacheKafka(_KAFKA) as node:
        yield Kafka(node.bootstrap)


@pytest.fixture(scope="session")
def topics(kafka: Kafka) -> list[Topic]:
    """The logs that reads are drawn over."""
    return make_topics(kafka)
