"""The cluster's rules change under a query that lives, or between two of its lives: two-phase commit is
switched, transaction.version goes down and up again. On one Apache Kafka node; `make test-connector-cluster`.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaException

from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.faults import BatchRefused, CommitFault
from eoslog.connector.commit.task_reports import Batch, Report, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.run.runner import Runner
from tests.connector.sink.test_round_trips import prepare
from tests.connector.stock_kafka import Kafka
from tests.scenarios.apache_kafka import JARS, ApacheKafka

pytestmark = pytest.mark.kafka

SINK = Sink("s")
TASKS = 2
PATIENCE_MS = 5_000


class Dead(BaseException):
    """The driver is killed."""


class Mortal(Runner):
    """A driver that may be killed before it commits its own transaction, or its winners."""

    dies_before = ""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, 60_000)
        self.cluster = cluster

    def _do(self, command: c.Command[object]) -> object:
        if isinstance(command, c.End) and command.commit:
            whose = "winners" if "/" in command.participants[0].name else "decision"
            if whose == self.dies_before:
                raise Dead
        return super()._do(command)


@contextmanager
def runner(node: ApacheKafka) -> Iterator[Mortal]:
    addresses = parse_addresses(node.bootstrap)
    config = ClientConfig(addresses, api_timeout_ms=PATIENCE_MS, delivery_timeout_ms=PATIENCE_MS)
    with Cluster(config) as cluster:
        yield Mortal(cluster)


def first_half(made: Mortal, number: int, run: Run | None, topic: str) -> tuple[Run, list[Report]]:
    """A batch up to its tasks' reports."""
    batch = Batch("q", number, str(number))
    begun, run = made.run(begin(SINK, batch, last_run=run, completed=number - 1 if number else None))
    return run, [prepare(made.cluster, begun, topic, partition) for partition in range(TASKS)]


def write(made: Mortal, number: int, run: Run | None, topic: str) -> Run:
    run, reports = first_half(made, number, run, topic)
    made.run(commit(SINK, reports, number))
    return run


def switch(node: ApacheKafka, enabled: str) -> None:
    node.restart({"transaction.two.phase.commit.enable": enabled})


def two_phase_node(enabled: str) -> ApacheKafka:
    """`unstable.api.versions.enable`: Kafka 4.3 has InitProducerId 6, and does not offer it by itself."""
    settings = {"transaction.two.phase.commit.enable": enabled, "unstable.api.versions.enable": "true"}
    return ApacheKafka(settings, ("--feature=transaction.version=2",))


@pytest.mark.parametrize(("before", "after"), [("true", "false"), ("false", "true")])
def test_two_phase_commit_is_switched_in_mid_batch(before: str, after: str) -> None:
    with two_phase_node(before) as node, runner(node) as made:
        kafka = Kafka(node.bootstrap)
        topic = kafka.topic()
        run, reports = first_half(made, 1, write(made, 0, None, topic), topic)
        switch(node, after)
        made.run(commit(SINK, reports, 1))
        write(made, 2, run, topic)
        assert len(kafka.rows(topic)) == 3 * TASKS and not still_open(made)


@pytest.mark.parametrize(("dies_before", "decided"), [("decision", 0), ("winners", 1)])
def test_two_phase_commit_is_switched_off_where_a_dead_driver_has_sealed(
    dies_before: str, decided: int
) -> None:
    with two_phase_node("true") as node:
        kafka = Kafka(node.bootstrap)
        topic = kafka.topic()
        with runner(node) as made:
            _, reports = first_half(made, 1, write(made, 0, None, topic), topic)
            made.dies_before = dies_before
            with pytest.raises(Dead):
                made.run(commit(SINK, reports, 1))
            assert len(still_open(made)) >= TASKS
        switch(node, "false")
        with runner(node) as made:
            begun, _ = made.run(begin(SINK, Batch("q", 1, "1"), completed=0))
            assert begun.decided is not None and begun.decided.batch_id == decided
            assert not still_open(made)
            new = None
            for number in range(decided + 1, 4):
                new = write(made, number, new, topic)
            assert len(kafka.rows(topic)) == 4 * TASKS and not still_open(made)


def test_transaction_version_goes_down_to_1_in_mid_batch_and_up_again_in_another() -> None:
    with ApacheKafka({}, ("--feature=transaction.version=2",)) as node, runner(node) as made:
        kafka = Kafka(node.bootstrap)
        topic = kafka.topic()
        run = write(made, 0, None, topic)
        for number, (verb, level) in enumerate((("downgrade", 1), ("upgrade", 2)), 1):
            run, reports = first_half(made, number, run, topic)
            _feature(node, verb, level)
            made.run(commit(SINK, reports, number))
        write(made, 3, run, topic)
        assert len(kafka.rows(topic)) == 4 * TASKS and not still_open(made)


def test_transaction_version_0_breaks_open_transactional_ids_until_their_coordinator_starts_again() -> None:
    """Kafka 4.3.1 cannot write such an id's state in version 0's format, and lets nobody in after that."""
    with ApacheKafka({}, ("--feature=transaction.version=2",)) as node:
        kafka = Kafka(node.bootstrap)
        topic = kafka.topic()
        with runner(node) as made:
            _, reports = first_half(made, 1, write(made, 0, None, topic), topic)
            _feature(node, "downgrade", 0)
            with pytest.raises(BatchRefused, match=r"UNSUPPORTED_VERSION.*safe to start the query again"):
                made.run(commit(SINK, reports, 1))
        _feature(node, "upgrade", 2)
        with runner(node) as made, pytest.raises(CommitFault, match="CONCURRENT_TRANSACTIONS"):
            write(made, 1, None, topic)
        with pytest.raises(KafkaException):  # nor any other client
            kafka.producer(transactional_id=SINK.id).init_transactions(PATIENCE_MS / 1000)
        node.restart()
        with runner(node) as made:
            write(made, 1, None, topic)
            assert len(kafka.rows(topic)) == 2 * TASKS and not still_open(made)


def still_open(made: Mortal) -> list[str]:
    return [
        found.transactional_id
        for found in transaction_states.list_transactions(made.cluster, "s", ["Ongoing"])
    ]


def _feature(node: ApacheKafka, verb: str, level: int) -> None:
    tool = ["java", "-cp", f"{JARS}/*", "org.apache.kafka.tools.FeatureCommand"]
    what = ["--bootstrap-server", node.bootstrap, verb, "--feature", f"transaction.version={level}"]
    subprocess.run([*tool, *what], check=True, capture_output=True)
