"""What dies in the middle of a batch, on a Spark with executors of its own: executors, Python workers, the
driver's own Python processes, the whole application; and source topics that change meanwhile.

Part of `make test-executors`; the short part of it is test_executors.py. Each test proves that what it is
named for really happened.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.cimpl import NewPartitions

from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, STARTED, UNDECIDED, WRITING
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(4 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One application for most tests here."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.parametrize("at", [STARTED, WRITING, PREPARED])
@pytest.mark.parametrize("kind", ["stream", "write"])
def test_executor_killed(cluster: SparkCluster, kafka: Kafka, tmp_path: Path, at: str, kind: str) -> None:
    """Its task is tried again on another one; what it left open is cleared with the batch."""
    copy = Copy(kafka, tmp_path)
    batch = 1 if kind == "stream" else 0
    cluster.order({"at": at, "batch": batch, "do": "wait"})
    cluster.tell(copy.stream() if kind == "stream" else copy.write())
    first, second = cluster.wait_for(2, at, batch=batch)
    assert first["jvm"] != second["jvm"]
    cluster.kill_executor(first["jvm"])
    again = cluster.wait_for(1, PREPARED, batch=batch, partition=first["partition"], attempt=1)
    assert again[0]["jvm"] != first["jvm"]
    cluster.go(at)
    assert cluster.answer()["error"] is None
    copy.check()


@pytest.mark.parametrize("at", [STARTED, WRITING, PREPARED])
def test_python_workers_killed(cluster: SparkCluster, kafka: Kafka, tmp_path: Path, at: str) -> None:
    """Those of the sink, and with them those that read for it."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": at, "batch": 1, "do": "wait"})
    cluster.tell(copy.stream())
    places = cluster.wait_for(2, at, batch=1)
    workers = cluster.task_workers()
    assert {place["pid"] for place in places} <= {worker.pid for worker in workers}
    for worker in workers:
        worker.kill()
    cluster.wait_for_others(batch=1, partitions={0, 1})
    assert cluster.answer()["error"] is None
    copy.check()


@pytest.mark.parametrize("at", [UNDECIDED, DECIDED])
def test_driver_processes_killed(cluster: SparkCluster, kafka: Kafka, tmp_path: Path, at: str) -> None:
    """The Python processes that begin and commit for the driver: Spark does not try again, the query stops
    with an error, and goes on where it was when it is started again."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": at, "batch": 1, "do": "wait"})
    cluster.tell(copy.stream(batches=3))
    (committer,) = cluster.wait_for(1, at, batch=1)
    planners = cluster.planners()
    assert committer["pid"] in {planner.pid for planner in planners}
    for planner in planners:
        planner.kill()
    assert "Python worker exited unexpectedly" in str(cluster.answer()["error"])
    assert cluster.process.poll() is None, "the application lives on"
    cluster.order()
    cluster.tell(copy.stream(batches=3))
    assert cluster.answer()["error"] is None
    copy.check()
    written = len(copy.visible(committed=False))
    assert (written > len(copy.rows)) == (at == UNDECIDED), "what is decided is not written again"


@pytest.mark.parametrize("at", [UNDECIDED, DECIDED])
def test_a_query_that_replays_differently_is_killed(kafka: Kafka, tmp_path: Path, at: str) -> None:
    """The whole application; the batch has the rows of one run, whole, by the marks that each run makes."""
    copy = Copy(kafka, tmp_path)
    with SparkCluster(tmp_path / "first") as first:
        first.order({"at": at, "batch": 1, "do": "wait"})
        first.tell(copy.stream(noise=True))
        first.wait_for(1, at, batch=1)
    written = set(copy.visible(committed=False))
    with SparkCluster(tmp_path / "again") as again:
        again.order()
        again.tell(copy.stream(noise=True))
        assert again.answer()["error"] is None
    rows = copy.visible()
    assert [row.partition(b"@")[0] for row in rows] == copy.rows
    half = len(copy.rows) // 2
    of_the_first_run = len(written.intersection(rows))
    assert of_the_first_run == (len(copy.rows) if at == DECIDED else half)
    assert copy.open() == []


def test_the_source_gets_partitions(cluster: SparkCluster, kafka: Kafka, tmp_path: Path) -> None:
    """While a batch is written; they are read from their beginning by the next run."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": WRITING, "batch": 1, "do": "wait"})
    cluster.tell(copy.stream())
    cluster.wait_for(2, WRITING, batch=1)
    kafka.admin.create_partitions([NewPartitions(copy.source, 3)])[copy.source].result(10)
    more = [b"%06d" % number for number in range(len(copy.rows), len(copy.rows) + 100)]
    kafka.put(copy.source, more, partition=2)
    cluster.go(WRITING)
    assert cluster.answer()["error"] is None
    copy.check()
    cluster.tell(copy.stream())
    assert cluster.answer()["error"] is None
    copy.rows += more
    copy.check()


def test_the_source_goes_away(cluster: SparkCluster, kafka: Kafka, tmp_path: Path) -> None:
    """Between two batches of a run: the query stops and names the topic; the batch before it is whole."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": UNDECIDED, "batch": 0, "do": "wait"})
    cluster.tell(copy.stream())
    cluster.wait_for(1, UNDECIDED, batch=0)
    kafka.admin.delete_topics([copy.source])[copy.source].result(10)
    cluster.go(UNDECIDED)
    assert copy.source in str(cluster.answer()["error"])
    assert len(set(copy.visible())) == len(copy.visible()) == len(copy.rows) // 2
    assert copy.open() == []


def test_executors_killed_again_and_again(cluster: SparkCluster, kafka: Kafka, tmp_path: Path) -> None:
    """In every batch one of them, through a shuffle or not (EOSLOG_EXECUTORS_ROUNDS batches)."""
    rounds = int(os.environ.get("EOSLOG_EXECUTORS_ROUNDS", "6"))
    copy = Copy(kafka, tmp_path, rows=3_000 * rounds)
    cluster.order(*({"at": WRITING, "batch": batch, "do": "wait"} for batch in range(rounds)))
    cluster.tell(copy.stream(batches=rounds, shuffle=True))
    for batch in range(rounds):
        first, *_ = cluster.wait_for(2, WRITING, batch=batch)
        cluster.kill_executor(first["jvm"])
        cluster.wait_for(1, PREPARED, batch=batch, partition=first["partition"])
        for pid in {note["pid"] for note in cluster.notes(WRITING, batch=batch)} - {first["pid"]}:
            cluster.go_alone(WRITING, pid)
    assert cluster.answer()["error"] is None
    copy.check()
