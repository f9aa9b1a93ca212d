"""Brokers with faults, in a process and in a thread."""

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create


@pytest.fixture(scope="module", params=["process", "thread"])
def shared(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_thread=request.param == "thread", faults=True) as broker:
        create(broker.bootstrap, "t", 2)
        yield broker


@pytest.fixture
def faulty(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """A broker with a topic `t` of two partitions and no faults left from other tests."""
    yield shared
    shared.faults.disarm()


@pytest.fixture
def wire(faulty: EmbeddedBroker) -> Iterator[Wire]:
    with Wire(faulty.host, faulty.port) as opened:
        yield opened
