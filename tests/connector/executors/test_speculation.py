"""Speculative execution: a task that is slow gets a copy, and both write. Part of `make test-executors`.

Spark starts a copy only on another host than the first attempt's, so this needs a cluster of its own with
two workers on addresses of their own, 127.0.0.2 and 127.0.0.3.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark
import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, STARTED, WRITING
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(4 * PATIENCE_SECONDS)]

EAGER = {
    "spark__speculation": "true",
    "spark__speculation__interval": "100ms",
    "spark__speculation__quantile": "0.5",
    "spark__speculation__multiplier": "1.01",
    "spark__speculation__minTaskRuntime": "100ms",
}
BOUND = {"kafka.transaction.timeout.ms": "120000"}
"""How long a copy may hold readers back that is killed when it comes too late, in any of the batches. Shorter
than a test waits for that; but long: an attempt that has prepared waits for its copy, whose executor may be
slow to begin, and a batch is refused when less than 10 s of its time are left."""


@pytest.fixture(scope="module")
def hasty() -> Iterator[Kafka]:
    """A broker that looks for timed-out transactions all the time."""
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with EmbeddedBroker(config={interval: "100"}) as broker:
        yield Kafka(broker.bootstrap)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Master, two workers, one application."""
    folder = tmp_path_factory.mktemp("speculation")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = os.environ | {
        "EOSLOG_PROBE": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(folder),
    }
    start = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    master = f"spark://127.0.0.1:{port}"
    commands = [["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]]
    for host in ("127.0.0.2", "127.0.0.3"):
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g"]
        commands.append([*worker, master])
    with (folder / "daemons").open("wb") as log:
        daemons = [
            psutil.Popen([*start, *command, "--webui-port", "0"], env=environment, stdout=log, stderr=log)
            for command in commands
        ]
    try:
        with SparkCluster(folder, master, **EAGER) as started:
            yield started
    finally:
        for daemon in daemons:
            for process in (*daemon.children(recursive=True), daemon):
                with contextlib.suppress(psutil.NoSuchProcess):  # it went with its parent
                    process.kill()
            daemon.wait()


def test_a_slow_task_loses_against_its_copy(cluster: SparkCluster, hasty: Kafka, tmp_path: Path) -> None:
    """It stands in the middle of its rows, in an open transaction, when the copy is done."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    cluster.order({"at": WRITING, "batch": 1, "partition": 0, "do": "wait"})
    cluster.tell(copy.stream(batches=3, options=BOUND))
    assert cluster.answer()["error"] is None
    _check_two_attempts(cluster, 1)
    slow = cluster.notes(WRITING, batch=1, partition=0)[0]["attempt"]
    prepared = [note["attempt"] for note in cluster.notes(PREPARED, batch=1, partition=0)]
    assert prepared and slow not in prepared
    copy.check()


@pytest.mark.parametrize("kind", ["stream", "write"])
def test_both_write_all_rows(cluster: SparkCluster, hasty: Kafka, tmp_path: Path, kind: str) -> None:
    """Side by side, to their ends; one of them counts."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    batch = 1 if kind == "stream" else 0
    cluster.order({"at": PREPARED, "batch": batch, "partition": 0, "do": "wait", "visits": 2})
    cluster.tell(copy.stream(options=BOUND) if kind == "stream" else copy.write(options=BOUND))
    cluster.wait_for(2, PREPARED, batch=batch, partition=0)
    assert len(copy.visible(committed=False)) > len(copy.rows), "both have written"
    cluster.go(PREPARED)
    assert cluster.answer()["error"] is None
    _check_two_attempts(cluster, batch)
    copy.check()


def test_the_slow_one_begins_to_write_after_the_decision(
    cluster: SparkCluster, hasty: Kafka, tmp_path: Path
) -> None:
    """What it opens is cleared with the batch. (Spark may have killed it by then.)"""
    copy = Copy(hasty, tmp_path, late_copies=True)
    cluster.order(
        {"at": STARTED, "batch": 1, "partition": 0, "do": "wait"}, {"at": DECIDED, "batch": 1, "do": "wait"}
    )
    cluster.tell(copy.stream(options=BOUND))
    cluster.wait_for(1, DECIDED, batch=1)
    slow = cluster.notes(STARTED, batch=1, partition=0)[0]["pid"]
    cluster.go(STARTED)
    cluster.wait_until(
        "the slow one prepares or dies",
        lambda: cluster.notes(PREPARED, batch=1, pid=slow) or not psutil.pid_exists(slow),
    )
    cluster.go(DECIDED)
    assert cluster.answer()["error"] is None
    _check_two_attempts(cluster, 1)
    copy.check()


def test_the_slow_one_begins_to_write_when_all_is_done(
    cluster: SparkCluster, hasty: Kafka, tmp_path: Path
) -> None:
    """No batch comes after this one. It aborts what it opens; where Spark kills it before that, its time-out
    ends it. Nothing of it is ever seen."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    cluster.order({"at": STARTED, "batch": 0, "partition": 0, "do": "wait"})
    cluster.tell(copy.write(options=BOUND))
    assert cluster.answer()["error"] is None
    slow = cluster.notes(STARTED, batch=0, partition=0)[0]["pid"]
    cluster.go(STARTED)
    cluster.wait_until("the slow one dies", lambda: not psutil.pid_exists(slow))
    prepared = bool(cluster.notes(PREPARED, batch=0, partition=0, pid=slow))
    print(f"the slow one has prepared: {prepared}; open: {len(copy.open())}")
    _check_two_attempts(cluster, 0)
    copy.check()


def _check_two_attempts(cluster: SparkCluster, batch: int) -> None:
    """Partition 0 was run twice at the same time, by two executors. (An attempt whose Python worker does not
    come up within Spark's 10 s fails before it notes anything, and its number is left out.)"""
    attempts = cluster.notes(STARTED, batch=batch, partition=0)
    assert len({note["attempt"] for note in attempts}) == len(attempts) >= 2
    assert len({note["jvm"] for note in attempts}) == 2
