"""Nodes are killed, and leaders and coordinators move, while a query stands at a point of the crash table."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient

from benchmarks.peer_cluster import ThreeNodes
from tests.connector.cluster.cluster_bench import POINTS, REACH_SECONDS, ClusterBench
from tests.kit.waiting import until

# -- a node is killed ----------------------------------------------------------------------------
# A node is killed while a query stands at a point of the crash table, and the query lives on.
#
# First the dead node stays dead until the query is done; then another one is killed in a later batch, and
# comes back while the query goes on. Every batch is there once, in bounded time, without a restart.

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


# -- leaders and coordinators move ---------------------------------------------------------------
# Leaders and coordinators move while a query stands at a point of the crash table; no node dies.
#
# Partitions get a new order of replicas (reassignment), and the first of them is elected (preferred leader
# election), as operators and balancers do: of the target topic, of the coordinators' logs, of all at once.

COORDINATORS = ("__transaction_state", "__consumer_offsets")


def move(nodes: ThreeNodes, topics: list[str]) -> int:
    """Give every partition of the topics another leader; how many there are."""
    admin = KafkaAdminClient(bootstrap_servers=nodes.bootstrap, request_timeout_ms=60_000)
    try:
        wanted: dict[TopicPartition, list[int]] = {}
        for topic in admin.describe_topics(topics):
            for part in topic["partitions"]:
                leader = part["leader_id"]
                others = [node for node in nodes.nodes if node != leader]
                wanted[TopicPartition(topic["name"], part["partition_index"])] = [*others, leader]
        admin.alter_partition_reassignments(wanted)
        _until_done(admin, wanted)
        _elect(nodes, admin, {place: order[0] for place, order in wanted.items()})
    finally:
        admin.close()
    return len(wanted)


def _elect(nodes: ThreeNodes, admin: KafkaAdminClient, leaders: dict[TopicPartition, int]) -> None:
    """Elect until each place has its leader: one that is out of sync just now is not taken."""
    deadline = time.monotonic() + REACH_SECONDS
    left = dict(leaders)
    while left:
        assert time.monotonic() < deadline, f"still led by others than {left}"
        by_topic: dict[str, list[int]] = {}  # the one form that this client understands
        for place in left:
            by_topic.setdefault(place.topic, []).append(place.partition)
        admin.elect_leaders(0, by_topic, raise_errors=False)
        time.sleep(0.2)
        left = {p: node for p, node in left.items() if nodes.leader_of(p.topic, p.partition) != node}


def _until_done(admin: KafkaAdminClient, wanted: dict[TopicPartition, list[int]]) -> None:
    until(
        lambda: not admin.list_partition_reassignments(),
        f"the reassignment to {wanted} is over",
        REACH_SECONDS,
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", POINTS)
def test_leaders_move(nodes: ThreeNodes, tmp_path: Path, at: str) -> None:
    bench = ClusterBench(nodes, tmp_path / "checkpoint")
    moved: list[int] = []

    def move_all() -> None:
        moved.append(move(nodes, [bench.topic, *COORDINATORS]))

    assert bench.disturb(bench.query, at, 1, move_all) == "done"
    assert bench.all_there()
    print(f"{at}: {moved[0]} partitions moved, done after {bench.waits} s")
