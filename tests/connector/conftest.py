"""One Spark session and one broker for all tests of the connector, and a stock client to check against.

With EOSLOG_TEST_BROKER=kafka the same tests run on Apache Kafka (brokers.py); with
EOSLOG_TEST_BOOTSTRAP=host:port those that need no broker of their own run on the cluster there.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from brokers import BUNDLED_ONLY, ON_KAFKA, Broker, start_broker
from pyspark.sql import SparkSession
from stock_kafka import Kafka

_ROOT = Path(__file__).parents[2]
# Processes that Spark and the tests start find the packages as this one does.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On Apache Kafka, leave out what only the bundled broker can be asked."""
    unable = [item for item in items if ON_KAFKA and item.path.name in BUNDLED_ONLY]
    if unable:
        config.hook.pytest_deselected(items=unable)
        items[:] = [item for item in items if item not in unable]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A small local session, shared by all tests."""
    session = (
        SparkSession.builder.master("local[2]")
        .appName("eoslog-tests")
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """The shared broker."""
    given = os.environ.get("EOSLOG_TEST_BOOTSTRAP")
    if given:
        yield Kafka(given)
        return
    with start_broker() as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker of the module's own, which its tests may kill."""
    with start_broker() as started:
        yield started
