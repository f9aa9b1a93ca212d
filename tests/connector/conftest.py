"""One broker for all tests of the connector, and a stock client to check against.

With EOSLOG_TEST_BROKER=kafka the same tests run on Apache Kafka (brokers.py); with
EOSLOG_TEST_BOOTSTRAP=host:port those that need no broker of their own run on the cluster there.
"""

import os
from collections.abc import Iterator

import pytest

from tests.connector.brokers import BUNDLED_ONLY, ON_KAFKA, Broker, Kafka, start_broker


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On Apache Kafka, leave out what only the bundled broker can be asked."""
    unable = [item for item in items if ON_KAFKA and item.path.name in BUNDLED_ONLY]
    if unable:
        config.hook.pytest_deselected(items=unable)
        items[:] = [item for item in items if item not in unable]


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
