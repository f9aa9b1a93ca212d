"""Unclean leader election (KIP-320): a replica without the last records becomes the leader, and the log grows
past where a query stands. Topic, cluster and offset are the same; the leader epochs tell."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from benchmarks.peer_cluster import ThreeNodes
from eoslog.client.admin import group_offsets as group_offsets
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.offsets.offsets import epochs_from_json
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss
from tests.connector.brokers import FORMATTING
from tests.connector.source.test_source_stream import reader
from tests.connector.stock_kafka import Kafka, bare
from tests.kit.waiting import until
from tests.scenarios.apache_kafka import JARS, check

pytestmark = pytest.mark.kafka

NO_LIMIT = ReadAllAvailable()
SETTINGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


@pytest.fixture(scope="module")
def started() -> Iterator[ThreeNodes]:
    check()
    with ThreeNodes(JARS, SETTINGS, controller_apart=True, formatting=FORMATTING) as nodes:
        yield nodes


def values(made: StreamReader, start: Any, end: Any) -> list[bytes]:
    """What the tasks of a batch read."""
    batches = (batch for task in made.partitions(start, end) for batch in made.read(task))
    return [value.as_py() for batch in batches for value in batch.column("value")]


def put(kafka: Kafka, topic: str, said: str, count: int) -> None:
    kafka.put(topic, [f"{said}-{number}".encode() for number in range(count)])


def kill_all_but(nodes: ThreeNodes, kept: int) -> None:
    for node in set(nodes.alive) - {kept}:
        nodes.kill(node)
        nodes.wait_until_without(node)


@pytest.mark.timeout(600)
def test_a_replica_without_the_last_records_becomes_the_leader(nodes: ThreeNodes) -> None:
    kafka, topic = Kafka(nodes.bootstrap), f"t-{time.monotonic_ns():x}"
    kafka.admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    put(kafka, topic, "first", 100)
    made = reader(kafka, topic, startingOffsets="earliest")
    began = made.initialOffset()
    half = made.latestOffset(began, NO_LIMIT)
    assert bare(half) == {topic: {"0": 100}}

    # An orderly change of leaders is no loss, in the run and over restarts.
    nodes.kill(first := nodes.leader_of(topic, 0))
    nodes.wait_until_without(first)
    for one in (made, reader(kafka, topic)):
        assert one.latestOffset(half, NO_LIMIT) == half, "another epoch alone is no new offset"
    nodes.start_again(first)
    nodes.wait_until_healthy()

    last = nodes.leader_of(topic, 0)
    kill_all_but(nodes, last)
    put(kafka, topic, "read", 50)
    stood = json.loads(json.dumps(made.latestOffset(half, NO_LIMIT)))
    assert bare(stood) == {topic: {"0": 150}}
    nodes.kill(last)
    for node in set(nodes.nodes) - {last}:
        nodes.start_again(node)
    until(lambda: nodes.leader_of(topic, 0) != last, "another leader", 120)
    put(kafka, topic, "other", 120)
    nodes.start_again(last)
    nodes.wait_until_healthy()

    for judged in (made, reader(kafka, topic)):
        with pytest.raises(DataLoss, match=rf"{topic}-0.*150.*differs from offset 100 on.*failOnDataLoss"):
            judged.latestOffset(stood, NO_LIMIT)
    with pytest.raises(DataLoss, match=r"differs from offset 100 on"):
        reader(kafka, topic).partitions(half, stood)
    with Cluster(
        ClientConfig(parse_addresses(kafka.bootstrap))
    ) as cluster:  # what it held before is lost too
        group_offsets.commit_plain(cluster, "unclean", {(topic, 0): (150, "")}, epochs_from_json(stood))
    options: dict[str, Any] = {"startingOffsets": "committed", "kafka__group__id": "unclean"}
    with pytest.raises(DataLoss, match=r"group unclean.*differs from offset 100 on"):
        reader(kafka, topic, **options).initialOffset()
    careless = reader(kafka, topic, failOnDataLoss="false")
    end = careless.latestOffset(stood, NO_LIMIT)
    assert values(careless, stood, end) == []
    then = careless.latestOffset(end, NO_LIMIT)
    assert values(careless, end, then) == [b"other-%d" % n for n in range(120)]
    assert reader(kafka, topic).latestOffset(then, NO_LIMIT) == then
