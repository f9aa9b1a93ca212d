"""The cluster changes under a query that lives, or between two of its lives: its rules, its version, its
leaders.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin import transaction_states
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.decide import commit
from eoslog.connector.commit.faults import BatchRefused, CommitFault
from eoslog.connector.commit.task_reports import Batch, Report, Run
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.offsets import epochs_from_json
from eoslog.connector.run.runner import Runner
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss
from tests.connector.brokers import FORMATTING, Kafka, bare
from tests.connector.cluster.test_nodes import ClusterBench
from tests.connector.sink.test_round_trips import prepare
from tests.connector.source.test_source_stream import reader
from tests.kit.kafka_nodes import ThreeNodes
from tests.kit.program import until
from tests.scenarios.apache_kafka import JARS, ApacheKafka, KafkaMissing, check

# -- rules ---------------------------------------------------------------------------------------
# The cluster's rules change under a query that lives, or between two of its lives: two-phase commit is
# switched, transaction.version goes down and up again. On one Apache Kafka node; `make test-connector-
# cluster`.

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


# -- its version ---------------------------------------------------------------------------------
# A cluster is upgraded from Apache Kafka 3.9 to 4.3, and rolled back in between, under a query that lives.
#
# As operators do it: one process after another is stopped in order and started as the other version, then the
# features go up (transaction.version 0 to 2, KIP-890). Each of these comes while the query stands in the
# middle of a batch, at another point each time. Brokers of two versions serve it all the while.

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


# -- unclean leader election ---------------------------------------------------------------------
# Unclean leader election (KIP-320): a replica without the last records becomes the leader, and the log grows
# past where a query stands. Topic, cluster and offset are the same; the leader epochs tell.

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
