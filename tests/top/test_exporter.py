"""`eoslog exporter` on a real cluster: who holds readers back, lag, what sinks have decided, for Prometheus.

With EOSLOG_TEST_BROKER=kafka the cluster is Apache Kafka.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eoslog.client.admin.groups import commit_plain
from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import client_config
from eoslog.connector.commit.decision import Decision, encode
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.exporter import FAMILIES, ClusterMetrics
from eoslog.prometheus import COUNTER
from eoslog.protocol.names_by_sink import ANCHOR
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.docs.reader import ROOT
from tests.top.busy import OPEN, Busy


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def cluster(busy: Busy) -> Iterator[Cluster]:
    with Cluster(client_config(busy.bootstrap, None, 30.0)) as cluster:
        yield cluster


def decide(cluster: Cluster, sink: Sink, sequence: int, batch: int, topic: str) -> None:
    """Commit a decision of the sink as its driver does, kept in `topic`."""
    decision = Decision(sequence, Batch("query-1", batch), ProducerIdentity(1, 0), (), ())
    chunks = encode(decision, sink, 1)
    commit_plain(cluster, sink.group, {(topic, number): chunk for number, chunk in chunks.items()})


def seen(metrics: ClusterMetrics, family: str) -> dict[tuple[str, ...], Any]:
    return {labels: value for name, labels, value in metrics.samples() if name == family}


@pytest.mark.parametrize(("name", "topic"), [("copy/eu", ANCHOR), ("other", "clicks")])
def test_a_sink_has_its_last_decision_and_no_lag(cluster: Cluster, name: str, topic: str) -> None:
    """Also if option decision.topic names another topic for decisions."""
    clock = Clock()
    metrics = ClusterMetrics(cluster, clock)
    decide(cluster, Sink(name), 5, 12, topic)
    unchanged = "eoslog_cluster_sink_unchanged_seconds"
    assert seen(metrics, unchanged)[name,] == 0
    clock.now += 30
    assert seen(metrics, unchanged)[name,] == 30
    decide(cluster, Sink(name), 6, 13, topic)
    assert seen(metrics, unchanged)[name,] == 0
    assert seen(metrics, "eoslog_cluster_sink_decisions")[name,] == 6
    assert seen(metrics, "eoslog_cluster_sink_batch")[name, "query-1"] == 13
    lag = seen(metrics, "eoslog_cluster_group_lag")
    assert lag.pop(("dashboard", "clicks", "0")) == 45
    assert set(lag) == {("shop", "orders", "0")}


def test_a_transaction_that_holds_readers_back_is_named(cluster: Cluster) -> None:
    clock = Clock()
    metrics = ClusterMetrics(cluster, clock)
    place = ("payments", "0", OPEN)
    assert seen(metrics, "eoslog_cluster_held_back_seconds") == {place: 0}
    clock.now += 75
    assert seen(metrics, "eoslog_cluster_held_back_seconds") == {place: 75}
    (held,) = seen(metrics, "eoslog_cluster_held_back_records").values()
    assert held == 10
    assert seen(metrics, "eoslog_cluster_open_transactions") == {(): 1}
    assert seen(metrics, "eoslog_cluster_unreadable") == {(): 0}


def test_the_command_serves_until_it_is_interrupted_and_says_a_wrong_address(busy: Busy) -> None:
    words = [sys.executable, "-m", "eoslog", "exporter", "--bootstrap-server", busy.bootstrap]
    with subprocess.Popen([*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as exporter:
        assert exporter.stdout is not None
        ready = exporter.stdout.readline()
        found = re.fullmatch(r"eoslog exporter ready at (http://127\.0\.0\.1:\d+/metrics)\n", ready)
        assert found is not None, ready
        with urllib.request.urlopen(found[1]) as answer:
            text = answer.read().decode()
        exporter.send_signal(signal.SIGINT)
        assert exporter.wait(120) == 0
    names = {family.name for family in text_string_to_metric_families(text)}
    assert names >= {family.name for family in FAMILIES}
    for wrong, said in {"9188": "HOST:PORT", busy.bootstrap: "Give another address"}.items():
        done = subprocess.run([*words, "--listen", wrong], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and said in done.stderr, done.stderr


def test_a_cluster_that_is_gone_is_down() -> None:
    with Cluster(client_config("127.0.0.1:1", None, 1.0)) as cluster:
        assert ClusterMetrics(cluster).samples() == [("eoslog_cluster_up", (), 0)]


def test_the_page_has_the_table_of_the_code() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()
    rows = ["| metric | meaning | normal |", "|---|---|---|"]
    for name, kind, labels, meaning, normal in FAMILIES:
        shown = f"{name}_total" if kind == COUNTER else name
        labelled = f"{shown}{{{','.join(labels)}}}" if labels else shown
        rows.append(f"| `{labelled}` | {kind}: {meaning} | {normal} |")
    found = re.search(r"<!-- cluster:.*?-->\n(.*?)\n?<!-- end -->", page, re.S)
    assert found is not None and found[1].strip() == "\n".join(rows)
