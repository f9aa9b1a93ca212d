"""Fixtures for all tests."""

from collections.abc import Iterator

import pytest

from eoslog.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of the module's own; tests in it keep apart by their topics' names."""
    with EmbeddedBroker() as started:
        yield started
