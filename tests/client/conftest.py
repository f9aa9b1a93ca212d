"""The broker of the connector's tests, and a realm for the tests that log in by Kerberos."""

from collections.abc import Iterator

import pytest

from tests.connector.conftest import broker, kafka, pytest_collection_modifyitems
from tests.kit.kerberos import ALICE, BROKER, Kdc

__all__ = ["broker", "kafka", "pytest_collection_modifyitems"]


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    """With keytabs of a broker and of alice."""
    with Kdc() as started:
        started.keytab(BROKER)
        started.keytab(ALICE)
        yield started
