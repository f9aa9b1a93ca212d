"""Two brokers to run the examples on, with faults on demand."""

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_thread=True, flush="os") as started:
        yield started


@pytest.fixture(scope="module")
def other() -> Iterator[EmbeddedBroker]:
    """Another cluster."""
    with EmbeddedBroker(in_thread=True, flush="os") as started:
        yield started
