"""A cluster is upgraded from Apache Kafka 3.9 to 4.3, and rolled back in between, under a query that lives.

As operators do it: one process after another is stopped in order and started as the other version, then the
features go up (transaction.version 0 to 2, KIP-890). Each of these comes while the query stands in the
middle of a batch, at another point each time. Brokers of two versions serve it all the while.
"""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.peer_cluster import ThreeNodes
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from tests.connector.cluster.cluster_bench import ClusterBench
from tests.scenarios.apache_kafka import JARS, KafkaMissing

pytestmark = pytest.mark.kafka

OLD = JARS.with_name("kafka-3.9.1")
ROLLED = (
    ("some tasks prepared", JARS, ()),  # none named: the controller
    ("decided, some winners finished", JARS, (1,)),
    ("decision staged", JARS, (2,)),
    ("all tasks prepared", OLD, (1,)),
    ("decision sent, no answer read", JARS, (1,)),
    ("decided, no winner finished", JARS, (3,)),
)


def transaction_version(nodes: ThreeNodes) -> int:
    with Cluster(ClientConfig(parse_addresses(nodes.bootstrap))) as cluster:
        return cluster.transaction_version()


def raise_features(nodes: ThreeNodes) -> None:
    tool = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.FeatureCommand"]
    what = ["--bootstrap-server", nodes.bootstrap, "upgrade", "--release-version", "4.3"]
    subprocess.run([*tool, *what], check=True, capture_output=True)


@pytest.mark.timeout(1200)
def test_a_rolling_upgrade_and_a_step_back(tmp_path: Path) -> None:
    if not any(OLD.glob("kafka-clients-*.jar")):
        raise KafkaMissing(f"no Kafka in {OLD}: make test-connector-cluster fetches it by Maven")
    with ThreeNodes(OLD, controller_apart=True) as nodes:
        bench = ClusterBench(nodes, tmp_path / "checkpoint")
        before = transaction_version(nodes)

        def in_mid_batch(at: str, what: Callable[[], None]) -> None:
            bench.query = replace(bench.query, batches=bench.query.batches + 2)
            assert bench.disturb(bench.query, at, bench.query.batches - 1, what) == "done", at
            assert bench.all_there(), at
            nodes.wait_until_healthy()

        for at, version, which in ROLLED:
            in_mid_batch(at, lambda version=version, which=which: nodes.become(version, *which))  # type: ignore[misc]
        assert transaction_version(nodes) == before < 2
        in_mid_batch("all tasks prepared", lambda: raise_features(nodes))
        assert transaction_version(nodes) == 2
        in_mid_batch("begun", lambda: None)
        print(f"{bench.query.batches} batches, waits after each change: {bench.waits} s")
