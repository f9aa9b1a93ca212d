"""Fixtures for all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from eoslog.testing import EmbeddedBroker

# How long one example takes, or its making, says more about the machine than about the code.
settings.register_profile("without a clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without a clock")


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker of the module's own; tests in it keep apart by their topics' names."""
    with EmbeddedBroker() as started:
        yield started
