"""The pytest plugin: the fixtures `eoslog_broker` and `eoslog_session_broker`.

    def test_retries(eoslog_broker):
        eoslog_broker.faults.drop_answer("Produce")
        ...

    @pytest.mark.eoslog_broker(config={"num.partitions": "4"}, in_thread=True)
    def test_with_four_partitions(eoslog_broker): ...

Nothing of eoslog but this file is imported before a test asks for a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from eoslog.testing import EmbeddedBroker

_MARK = "eoslog_broker"
_ARGUMENTS = ("data", "port", "flush", "config", "log_level", "timeout", "in_thread")
_FLUSH = ("fsync", "os")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options: the flush mode and where the brokers run, for all tests."""
    group = parser.getgroup("eoslog")
    group.addoption(
        "--eoslog-flush",
        choices=_FLUSH,
        help="flush mode of the brokers of eoslog_broker: fsync (durable) or os (as Kafka)",
    )
    group.addoption(
        "--eoslog-in-thread",
        action="store_true",
        default=None,
        help="run the brokers of eoslog_broker in a thread of the test process",
    )
    parser.addini("eoslog_flush", "flush mode of the brokers of eoslog_broker: fsync or os", default="fsync")
    parser.addini("eoslog_in_thread", "run these brokers in a thread", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}({', '.join(_ARGUMENTS)}): how to make the broker of the fixture eoslog_broker; the "
        "arguments are those of eoslog.testing.EmbeddedBroker",
    )


def _defaults(config: pytest.Config) -> dict[str, Any]:
    flush = config.getoption("--eoslog-flush") or config.getini("eoslog_flush")
    if flush not in _FLUSH:
        raise pytest.UsageError(f"eoslog_flush = {flush}: must be {' or '.join(_FLUSH)}")
    in_thread = config.getoption("--eoslog-in-thread")
    if in_thread is None:
        in_thread = config.getini("eoslog_in_thread")
    return {"flush": flush, "in_thread": in_thread, "faults": True}


@pytest.fixture
def eoslog_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """A broker for one test, on an empty directory, with faults on demand."""
    from eoslog.testing import EmbeddedBroker

    arguments = _defaults(request.config)
    for marker in reversed(list(request.node.iter_markers(_MARK))):  # the nearest one wins
        unknown = set(marker.kwargs) - set(_ARGUMENTS)
        if marker.args or unknown:
            given = [*map(repr, marker.args), *sorted(unknown)]
            raise pytest.UsageError(
                f"marker {_MARK} of {request.node.nodeid} does not know {', '.join(given)}; "
                f"it takes {', '.join(_ARGUMENTS)}, all by name"
            )
        arguments |= marker.kwargs
    with EmbeddedBroker(**arguments) as broker:
        yield broker


@pytest.fixture(scope="session")
def eoslog_session_broker(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    """One broker that all tests of the run share: use topic and group names of your own."""
    from eoslog.testing import EmbeddedBroker

    with EmbeddedBroker(**_defaults(request.config)) as broker:
        yield broker
