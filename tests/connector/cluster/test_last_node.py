"""One replica is enough (min.insync.replicas=1, of the topic and of Kafka's own): all nodes but one die
while a query stands at a point of the crash table."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peer_cluster import ThreeNodes
from tests.connector.brokers import FORMATTING
from tests.connector.cluster.cluster_bench import ClusterBench
from tests.scenarios.apache_kafka import JARS, check

pytestmark = pytest.mark.kafka

ONE = {"min.insync.replicas": "1", "transaction.state.log.min.isr": "1"}


@pytest.fixture(scope="module")
def started() -> Iterator[ThreeNodes]:
    check()
    with ThreeNodes(JARS, ONE, controller_apart=True, formatting=FORMATTING) as nodes:
        yield nodes


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "at",
    [
        "begun",
        "a task in the middle of its rows",
        "all tasks prepared",
        "before the decision",
        "decided, some winners finished",
    ],
)
def test_all_nodes_but_one_are_killed(nodes: ThreeNodes, tmp_path: Path, at: str) -> None:
    """The one that led the partition goes first; the others know that before the next is killed."""
    bench = ClusterBench(nodes, tmp_path / "checkpoint", in_sync=1)
    killed: list[int] = []

    def kill_two() -> None:
        for _ in range(2):
            killed.append(bench.leads())
            nodes.kill(killed[-1])
            nodes.wait_until_without(killed[-1])

    assert bench.disturb(bench.query, at, 1, kill_two) == "done"
    assert len(nodes.alive) == 1
    assert bench.all_there()
    print(f"{at}: nodes {killed}, done after {bench.waits} s with one left")
