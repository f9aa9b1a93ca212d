"""Fixtures for the tests of shadows. EOSLOG_TEST_BROKER=kafka: on Apache Kafka, not on the bundled broker."""

from collections.abc import Iterator

import pytest

from tests.connector.brokers import Kafka, start_broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker of these tests' own."""
    with start_broker() as broker:
        yield Kafka(broker.bootstrap)
