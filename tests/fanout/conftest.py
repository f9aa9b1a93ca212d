"""Fixtures for tests of fan-outs."""

from collections.abc import Iterator

import pytest

from tests.fanout.kit import SERVERS


@pytest.fixture(scope="session", autouse=True)
def _shared_servers_end() -> Iterator[None]:
    yield
    for server in SERVERS:
        server.remove()
