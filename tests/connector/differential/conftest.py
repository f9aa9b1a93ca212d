"""One Spark session with both connectors, and one Apache Kafka node for them: `make test-differential`."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.connector.brokers import Kafka
from tests.connector.differential.both import Topic, make_topics
from tests.kit.kafka_nodes import PEERS, ApacheKafka, spark_kafka

_KAFKA = PEERS / "kafka-4.3.1"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with the jars of Spark's connector."""
    jars = ",".join(map(str, sorted(spark_kafka().glob("*.jar"))))
    assert jars, f"no jars in {spark_kafka()}: run make test-differential, which fetches them"
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
