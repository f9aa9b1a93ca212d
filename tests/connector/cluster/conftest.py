"""Three Apache Kafka nodes under the queries of the crash table: `make test-connector-cluster`.

The controller is a process of its own, so that brokers alone are killed.
"""

from collections.abc import Iterator

import pytest

from tests.connector.brokers import FORMATTING
from tests.kit.kafka_nodes import ThreeNodes
from tests.scenarios.apache_kafka import JARS, check


@pytest.fixture(scope="session")
def started() -> Iterator[ThreeNodes]:
    """Replication 3, and two replicas must have what is acknowledged."""
    check()
    with ThreeNodes(JARS, controller_apart=True, formatting=FORMATTING) as nodes:
        yield nodes


@pytest.fixture
def nodes(started: ThreeNodes) -> Iterator[ThreeNodes]:
    """The same with all nodes alive and in sync, at the beginning of each test."""
    started.wait_until_healthy()
    yield started
    for node in set(started.nodes) - set(started.alive):
        started.start_again(node)
