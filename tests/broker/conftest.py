"""Fixtures for the tests of the broker."""

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in request.node.name)


@pytest.fixture
def wire(broker: EmbeddedBroker) -> Iterator[Wire]:
    """A raw connection to the module's broker."""
    with Wire(broker.host, broker.port) as opened:
        yield opened
