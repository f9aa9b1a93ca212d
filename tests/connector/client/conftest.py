"""A realm for the tests that log in by Kerberos."""

from collections.abc import Iterator

import pytest

from tests.broker.security.kdc import BROKER, Kdc
from tests.connector.client.kerberoskit import ALICE


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    """With keytabs of a broker and of alice."""
    with Kdc() as started:
        started.keytab(BROKER)
        started.keytab(ALICE)
        yield started
