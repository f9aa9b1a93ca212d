"""`eoslog exporter`: metrics of a whole cluster for Prometheus, without Spark.

It shows what no broker of Kafka shows: who holds readers back, and what each eoslog sink has decided. It asks
the cluster at each scrape, as `eoslog top` does. `FAMILIES` is the one table of what is shown;
docs/monitoring.md repeats it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import click

from eoslog.client.wire.cluster import Cluster
from eoslog.commands.session import CommandSession, cluster_command
from eoslog.commands.transactions import HeldPartition, find_held, last_decision
from eoslog.connector.commit.decision import Decision
from eoslog.errors import EoslogError
from eoslog.metrics import address_of
from eoslog.prometheus import COUNTER, GAUGE, Family, Sample, prometheus
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.names_by_sink import sinks_of_groups
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.top.cluster_snapshot import ClusterSnapshot, look

logger = logging.getLogger(__name__)

_HELD = ("topic", "partition", "holder")
_SINK = ("sink",)

FAMILIES: tuple[Family, ...] = (
    Family("eoslog_cluster_up", GAUGE, (), "1 if the cluster has answered, else 0", "1"),
    Family("eoslog_cluster_brokers", GAUGE, (), "brokers that answer", "all of yours"),
    Family("eoslog_cluster_partitions_without_leader", GAUGE, (), "partitions without a leader", "0"),
    Family("eoslog_cluster_unreadable", GAUGE, (), "parts of this page that were refused; the log says which",
           "0"),
    Family("eoslog_cluster_open_transactions", GAUGE, (), "transactions that are open or being ended",
           "some, while queries run"),
    Family("eoslog_cluster_held_back_records", GAUGE, _HELD,
           "offsets that an open transaction keeps from readers of committed data", "goes away"),
    Family("eoslog_cluster_held_back_seconds", GAUGE, _HELD, "how long the exporter has seen it stand still",
           "some seconds"),
    Family("eoslog_cluster_group_lag", GAUGE, ("group", "topic", "partition"),
           "offsets between what a group has committed and the log's end", "does not grow for long"),
    Family("eoslog_cluster_sink_decisions", COUNTER, _SINK, "batches that the sink has decided, ever",
           "grows"),
    Family("eoslog_cluster_sink_batch", GAUGE, ("sink", "query"),
           "number of the last micro-batch, and the id of its query", "grows"),
    Family("eoslog_cluster_sink_unchanged_seconds", GAUGE, _SINK,
           "how long the exporter has seen no further decision",
           "a few trigger intervals at most"),
)  # fmt: skip
"""`holder`: the sink whose transaction it is, else the transactional id, else `producer id N`."""


class ClusterMetrics:
    """What is known of a cluster. `clock` returns seconds; it need not be of the day."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._clock, self._lock = cluster, clock, threading.Lock()
        self._stood: dict[TopicPartition, tuple[int, float]] = {}
        self._decided: dict[str, tuple[int, float]] = {}

    def samples(self) -> list[Sample]:
        """All values of this moment. A cluster that does not answer has one: eoslog_cluster_up."""
        with self._lock:
            try:
                return list(self._samples())
            except (EoslogError, KafkaError) as error:
                logger.warning("the cluster did not answer: %s", error)
                return [Sample("eoslog_cluster_up", (), 0)]

    def _samples(self) -> Iterator[Sample]:
        seen = look(self._cluster)
        for problem in seen.problems:
            logger.warning("%s", problem)
        yield from _of_cluster(seen)
        behind = [where for where, partition in seen.partitions.items() if partition.stable < partition.end]
        yield from self._held(find_held(self._cluster, behind))
        sinks = sinks_of_groups({one.name: one.topics for one in seen.groups})
        yield from _lags(seen)
        for sink in sorted(set(sinks.values())):
            decision = last_decision(self._cluster, sink)
            if decision is not None:
                yield from self._of_sink(sink, decision)

    def _held(self, held: list[HeldPartition]) -> Iterator[Sample]:
        now = self._clock()
        before, self._stood = self._stood, {}
        for one in held:
            stable, since = before.get(one.where, (-1, now))
            since = since if stable == one.stable else now
            self._stood[one.where] = (one.stable, since)
            labels = (one.where[0], str(one.where[1]), _holder(one))
            yield Sample("eoslog_cluster_held_back_records", labels, one.end - one.stable)
            yield Sample("eoslog_cluster_held_back_seconds", labels, now - since)

    def _of_sink(self, sink: str, decision: Decision) -> Iterator[Sample]:
        now = self._clock()
        sequence, since = self._decided.get(sink, (decision.sequence, now))
        self._decided[sink] = (decision.sequence, since if sequence == decision.sequence else now)
        yield Sample("eoslog_cluster_sink_decisions", (sink,), decision.sequence)
        batch = decision.batch
        yield Sample("eoslog_cluster_sink_batch", (sink, batch.query_id), batch.batch_id)
        yield Sample("eoslog_cluster_sink_unchanged_seconds", (sink,), now - self._decided[sink][1])

    def describe(self) -> Iterator[Any]:
        """The families, for prometheus_client."""
        yield from prometheus(FAMILIES, ())

    def collect(self) -> Iterator[Any]:
        """The families with their values, for prometheus_client."""
        yield from prometheus(FAMILIES, self.samples())


def _of_cluster(seen: ClusterSnapshot) -> Iterator[Sample]:
    yield Sample("eoslog_cluster_up", (), 1)
    yield Sample("eoslog_cluster_brokers", (), len(seen.brokers))
    yield Sample("eoslog_cluster_partitions_without_leader", (), seen.without_leader)
    yield Sample("eoslog_cluster_unreadable", (), len(seen.problems))
    yield Sample("eoslog_cluster_open_transactions", (), len(seen.transactions))


def _lags(seen: ClusterSnapshot) -> Iterator[Sample]:
    for group in seen.groups:
        for (topic, partition), offset in group.places.items():
            view = seen.partitions.get((topic, partition))
            if view is not None:
                labels = (group.name, topic, str(partition))
                yield Sample("eoslog_cluster_group_lag", labels, max(view.end - offset, 0))


def _holder(held: HeldPartition) -> str:
    if held.holder is None:
        return ""
    return held.holder.sink or held.holder.name or f"producer id {held.holder.producer.producer_id}"


@click.command()
@click.option(
    "--listen", default="127.0.0.1:9188", show_default=True, metavar="HOST:PORT",
    help="Where to serve /metrics. There is no authentication.",
)  # fmt: skip
@cluster_command
def command(session: CommandSession, listen: str) -> None:
    """Serve metrics of a cluster for Prometheus: who holds readers back, lag, what each sink has decided.

    Each scrape asks the cluster. Ctrl-C ends it. Needs eoslog[metrics].
    """
    from prometheus_client import CollectorRegistry, start_http_server

    try:
        host, port = address_of(listen)
    except ValueError as error:
        raise click.UsageError(f"--listen: {error}") from error
    session.cluster.metadata([])  # a wrong address is said now
    registry = CollectorRegistry()
    registry.register(ClusterMetrics(session.cluster))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise click.ClickException(f"--listen {listen}: {error}. Give another address") from error
    session.say(f"eoslog exporter ready at http://{host}:{server.server_port}/metrics")
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
        server.server_close()
