"""The scenarios run once for every client, on the bundled broker or on Apache Kafka (--scenario-broker).

A scenario that needs what not every client has says so with `@pytest.mark.needs("feature")`; it is then not
collected for the others.
"""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from eoslog.broker.config import option_table
from eoslog.testing import EmbeddedBroker
from tests.scenarios.apache_kafka import ApacheKafka
from tests.scenarios.cutting_proxy import CuttingProxy
from tests.scenarios.drivers.base import FEATURES, Admin, Client, Place

PYTHON_CLIENTS = {
    "confluent-kafka": ("confluent", "Confluent"),
    "kafka-python": ("kafka_python", "KafkaPython"),
    "aiokafka": ("aio", "AioKafka"),
}
CLIENTS = PYTHON_CLIENTS | {"java": ("java", "Java")}

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
    "auto.create.topics.enable": "true",
    "log.retention.ms": "-1",
    "log.segment.bytes": "1073741824",
}
"""The same for both brokers, so that time-outs come soon.

And no retention: scenarios write records of 2020. The first look at retention, half a minute after the start,
would delete them in the middle of a scenario.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("scenarios")
    group.addoption("--scenario-broker", choices=("eoslog", "kafka"), default="eoslog")
    group.addoption("--scenario-clients", default=",".join(PYTHON_CLIENTS), help="names with commas")
    group.addoption("--scenario-seen", help="write what the scenarios saw to this JSON file")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(feature): only for clients that have this feature")


def _option(config: pytest.Config, name: str, default: str | None) -> Any:
    """An option, or its default when this folder's options came too late for the command line."""
    return config.getoption(name, default)


def _client(name: str) -> Client:
    module, kind = CLIENTS[name]
    made: Client = getattr(importlib.import_module(f"tests.scenarios.drivers.{module}"), kind)()
    return made


def _names(config: pytest.Config) -> list[str]:
    """The clients to run."""
    names: str = _option(config, "--scenario-clients", ",".join(PYTHON_CLIENTS))
    return names.split(",")


_made: dict[str, Client] = {}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "client" not in metafunc.fixturenames:
        return
    names = _names(metafunc.config)
    for name in names:
        _made.setdefault(name, _client(name))
    metafunc.parametrize("client", [_made[name] for name in names], ids=names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unable = [item for item in items if not _able(item)]
    if unable:
        config.hook.pytest_deselected(items=unable)
        items[:] = [item for item in items if item not in unable]


def _able(item: pytest.Item) -> bool:
    """Whether the scenario's client has all that the scenario needs."""
    needed = {mark.args[0] for mark in item.iter_markers("needs")}
    assert needed <= set(FEATURES), f"features that nobody has: {needed - set(FEATURES)}"
    call = getattr(item, "callspec", None)
    return call is None or "client" not in call.params or needed <= call.params["client"].features


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """One Apache Kafka for all."""
    with ApacheKafka(SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker | ApacheKafka]:
    """The broker under test."""
    if _option(request.config, "--scenario-broker", "eoslog") == "kafka":
        yield request.getfixturevalue("apache_kafka")
        return
    known = option_table()
    with EmbeddedBroker(config={k: v for k, v in SETTINGS.items() if k in known}) as started:
        yield started


@pytest.fixture
def every_client(request: pytest.FixtureRequest) -> list[Client]:
    """All clients that are run."""
    return [_made[name] for name in _names(request.config)]


@pytest.fixture
def bootstrap(cluster: EmbeddedBroker | ApacheKafka) -> str:
    """The address of the broker under test."""
    return cluster.bootstrap


@pytest.fixture
def proxy(cluster: EmbeddedBroker | ApacheKafka) -> Iterator[CuttingProxy]:
    """A proxy in front of it."""
    with CuttingProxy(cluster.host, cluster.port) as opened:
        yield opened


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own, for topics, groups and transactional ids."""
    return f"{request.node.originalname.removeprefix('test_')[:40]}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def setting_up(cluster: EmbeddedBroker | ApacheKafka) -> Iterator[Admin]:
    """An admin client that is not under test, to make topics with."""
    from tests.scenarios.drivers.confluent import Confluent

    yield Confluent().admin(cluster.bootstrap)


@pytest.fixture
def topic(setting_up: Admin, name: str) -> Callable[..., list[Place]]:
    """Makes a topic of the test's own; answers its partitions. A suffix tells several apart."""

    def make(partitions: int = 1, suffix: str = "", **configs: str) -> list[Place]:
        options = {key.replace("_", "."): value for key, value in configs.items()}
        setting_up.create_topic(name + suffix, partitions, configs=options)
        return [Place(name + suffix, number) for number in range(partitions)]

    return make


_seen: dict[str, dict[str, Any]] = {}


@pytest.fixture
def seen(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Notes what the client saw, by name: compared between the brokers, whether or not it is asserted."""

    def note(**facts: Any) -> None:
        _seen.setdefault(request.node.name, {}).update(facts)

    return note


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = _option(session.config, "--scenario-seen", None)
    if path:
        Path(path).write_text(json.dumps(_seen, indent=1, sort_keys=True, default=str) + "\n")
