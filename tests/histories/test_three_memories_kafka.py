"""Cells of the table of three memories on Apache Kafka itself: the imitation of Spark runs the connector with
its real client, and folders of the node's data are put back while it is down.

`pytest -m kafka tests/histories/test_three_memories_kafka.py`; make .peers/kafka-4.3.1 fetches the node."""

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from eoslog.client.wire import cluster as client
from eoslog.client.wire.connection import BrokerConnection
from tests.connector.brokers import Kafka
from tests.histories import three_memories
from tests.histories.ground import SimGround
from tests.histories.processes import machine
from tests.histories.real_cluster import RealCluster
from tests.histories.spark_ground import LONG_SECONDS, SINK, SOURCE, RealTime
from tests.histories.stage import stage
from tests.histories.three_memories import Mode
from tests.scenarios.apache_kafka import ApacheKafka

pytestmark = pytest.mark.kafka

SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "auto.create.topics.enable": "false",
}


KEPT = [
    ("unnoted", "301", False, "exact"),
    ("unnoted", "303", False, "exact"),
    ("unnoted", "122", True, "ParticipantsLost (replay): exact"),
    ("unnoted", "311", False, "exact"),
    ("noted", "101", True, "DecisionGone (committed): exact"),
    ("noted", "121", True, "RowsGone (option): lacks 4"),
    ("noted", "330", False, "RowsGone (option): lacks 4"),
    ("living", "330", False, "RowsGone (option): lacks 4"),
]


class Node:
    """A node as RealCluster has its broker."""

    def __init__(self, node: ApacheKafka) -> None:
        self.node, self.host, self.port, self.bootstrap = node, node.host, node.port, node.bootstrap
        self.data = node._directory / "data"

    def kill(self) -> None:
        """SIGKILL."""
        self.node.kill()


class KafkaCluster(RealCluster):
    """See ground.Cluster."""

    def __init__(self, folder: Path, node: ApacheKafka) -> None:
        self._folder, self.broker = folder, Node(node)  # type: ignore[assignment]
        self._kafka = Kafka(node.bootstrap)
        self.opener = lambda _: None

    def become(self, tv: int, keeps: bool) -> None:
        """It is what it is."""

    def snapshot(self) -> Path:
        """A copy of its disk as a crash at this moment would leave it. Markers that are on their way have a
        moment to be written."""
        time.sleep(0.5)
        node: Any = self.broker
        copy = self._copy()
        os.kill(node.node.pid, signal.SIGSTOP)
        try:
            shutil.copytree(self.broker.data, copy, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        finally:
            os.kill(node.node.pid, signal.SIGCONT)
        return copy

    def _start(self) -> None:
        node: Any = self.broker
        node.node.restart()


class NodeTime(RealTime):
    """Time that passes by itself, as Clock tells it."""

    passed = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        """A coordinator that is loading shows nothing open: a long wait takes all of its time."""
        time.sleep(min(seconds, LONG_SECONDS))

    @property
    def now(self) -> float:
        """Seconds."""
        return time.monotonic()

    @property
    def ms(self) -> int:
        """Milliseconds since 1970."""
        return int(time.time() * 1000)


class KafkaGround(SimGround):
    """A node of Apache Kafka, and Spark imitated."""

    def __init__(self, folder: Path, node: ApacheKafka) -> None:
        self._folder, self.apps = folder, []
        cluster: Any = KafkaCluster(folder, node)
        clock: Any = NodeTime(cluster.is_open)
        self.cluster, self.clock, self.sites = cluster, clock, {node.bootstrap: cluster}
        named = {"kafka.bootstrap.servers": node.bootstrap}
        self.source, self.sink = {**SOURCE, **named}, {**SINK, **named}

    @contextmanager
    def around(self, warned: Counter[str]) -> Iterator[None]:
        """See Ground."""
        with (
            stage({}, warned),
            patch.object(client, "BrokerConnection", BrokerConnection),
            machine(self._folder / "tmp"),
        ):
            yield


@pytest.mark.parametrize(("driver", "cell", "rests", "ends"), KEPT)
def test_a_cell_on_apache_kafka(driver: str, cell: str, rests: bool, ends: str, tmp_path: Path) -> None:
    with ApacheKafka(SETTINGS) as node:
        ground = KafkaGround(tmp_path, node)
        # A node with much other load may not have closed what timed out, in one transaction or in both: then
        # decided rows are committed yet.
        fewer = ends.replace("lacks 4", "lacks 2")
        played = three_memories.play(tmp_path, Mode(rests=rests), driver, cell, ground)
        assert played in (ends, fewer, "exact")
