"""Fixtures for the tests of shadows."""

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """A broker of these tests' own."""
    with EmbeddedBroker() as broker:
        yield Kafka(broker.bootstrap)
