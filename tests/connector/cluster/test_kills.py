"""A node is killed while a query stands at a point of the crash table, and the query lives on.

First the dead node stays dead until the query is done; then another one is killed in a later batch, and
comes back while the query goes on. Every batch is there once, in bounded time, without a restart.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peer_cluster import ThreeNodes
from tests.connector.cluster.cluster_bench import POINTS, ClusterBench

pytestmark = pytest.mark.kafka

ROLES: dict[str, Callable[[ClusterBench], int]] = {
    "leads a partition": ClusterBench.leads,
    "coordinates the sink": ClusterBench.coordinates_sink,
    "coordinates a participant": ClusterBench.coordinates_participant,
    "coordinates the group": ClusterBench.coordinates_group,
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("at", POINTS)
def test_the_node_that(nodes: ThreeNodes, tmp_path: Path, role: str, at: str) -> None:
    bench = ClusterBench(nodes, tmp_path / "checkpoint")
    victims: list[int] = []

    def kill() -> None:
        victims.append(ROLES[role](bench))
        nodes.kill(victims[-1])

    assert bench.disturb(bench.query, at, 1, kill) == "done"
    assert bench.all_there()

    nodes.start_again(victims[0])
    nodes.wait_until_healthy()
    bench.query = replace(bench.query, batches=4)

    def kill_and_start() -> None:
        kill()
        nodes.start_again(victims[-1])

    assert bench.disturb(bench.query, at, 3, kill_and_start) == "done"
    assert bench.all_there()
    print(f"{role}, {at}: nodes {victims}, done after {bench.waits} s")
