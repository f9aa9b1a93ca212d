"""Tasks that fail, executors and workers that die, in a Spark with executors of its own: every row once.

Each test proves that what it is named for really happened."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pyspark
import pytest
from confluent_kafka.admin import NewPartitions

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, STARTED, UNDECIDED, WRITING
from tests.docs.reader import code_of
from tests.kit.program import ROOT
from tests.spark_session import QUICK_START

# -- losses --------------------------------------------------------------------------------------
# What dies in the middle of a batch, on a Spark with executors of its own: executors, Python workers, the
# driver's own Python processes, the whole application; and source topics that change meanwhile.

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """One application for most tests here."""
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
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


# -- speculation ---------------------------------------------------------------------------------
# Speculative execution: a task that is slow gets a copy, and both write. Part of `make test-executors`.
#
# Spark starts a copy only on another host than the first attempt's, so this needs a cluster of its own with
# two workers on addresses of their own, 127.0.0.2 and 127.0.0.3.

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
def speculating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
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


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_a_slow_task_loses_against_its_copy(speculating: SparkCluster, hasty: Kafka, tmp_path: Path) -> None:
    """It stands in the middle of its rows, in an open transaction, when the copy is done."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    speculating.order({"at": WRITING, "batch": 1, "partition": 0, "do": "wait"})
    speculating.tell(copy.stream(batches=3, options=BOUND))
    assert speculating.answer()["error"] is None
    _check_two_attempts(speculating, 1)
    slow = speculating.notes(WRITING, batch=1, partition=0)[0]["attempt"]
    prepared = [note["attempt"] for note in speculating.notes(PREPARED, batch=1, partition=0)]
    assert prepared and slow not in prepared
    copy.check()


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
@pytest.mark.parametrize("kind", ["stream", "write"])
def test_both_write_all_rows(speculating: SparkCluster, hasty: Kafka, tmp_path: Path, kind: str) -> None:
    """Side by side, to their ends; one of them counts."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    batch = 1 if kind == "stream" else 0
    speculating.order({"at": PREPARED, "batch": batch, "partition": 0, "do": "wait", "visits": 2})
    speculating.tell(copy.stream(options=BOUND) if kind == "stream" else copy.write(options=BOUND))
    speculating.wait_for(2, PREPARED, batch=batch, partition=0)
    assert len(copy.visible(committed=False)) > len(copy.rows), "both have written"
    speculating.go(PREPARED)
    assert speculating.answer()["error"] is None
    _check_two_attempts(speculating, batch)
    copy.check()


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_the_slow_one_begins_to_write_after_the_decision(
    speculating: SparkCluster, hasty: Kafka, tmp_path: Path
) -> None:
    """What it opens is cleared with the batch. (Spark may have killed it by then.)"""
    copy = Copy(hasty, tmp_path, late_copies=True)
    speculating.order(
        {"at": STARTED, "batch": 1, "partition": 0, "do": "wait"}, {"at": DECIDED, "batch": 1, "do": "wait"}
    )
    speculating.tell(copy.stream(options=BOUND))
    speculating.wait_for(1, DECIDED, batch=1)
    slow = speculating.notes(STARTED, batch=1, partition=0)[0]["pid"]
    speculating.go(STARTED)
    speculating.wait_until(
        "the slow one prepares or dies",
        lambda: speculating.notes(PREPARED, batch=1, pid=slow) or not psutil.pid_exists(slow),
    )
    speculating.go(DECIDED)
    assert speculating.answer()["error"] is None
    _check_two_attempts(speculating, 1)
    copy.check()


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_the_slow_one_begins_to_write_when_all_is_done(
    speculating: SparkCluster, hasty: Kafka, tmp_path: Path
) -> None:
    """No batch comes after this one. It aborts what it opens; where Spark kills it before that, its time-out
    ends it. Nothing of it is ever seen."""
    copy = Copy(hasty, tmp_path, late_copies=True)
    speculating.order({"at": STARTED, "batch": 0, "partition": 0, "do": "wait"})
    speculating.tell(copy.write(options=BOUND))
    assert speculating.answer()["error"] is None
    slow = speculating.notes(STARTED, batch=0, partition=0)[0]["pid"]
    speculating.go(STARTED)
    speculating.wait_until("the slow one dies", lambda: not psutil.pid_exists(slow))
    prepared = bool(speculating.notes(PREPARED, batch=0, partition=0, pid=slow))
    print(f"the slow one has prepared: {prepared}; open: {len(copy.open())}")
    _check_two_attempts(speculating, 0)
    copy.check()


def _check_two_attempts(cluster: SparkCluster, batch: int) -> None:
    """Partition 0 was run twice at the same time, by two executors. (An attempt whose Python worker does not
    come up within Spark's 10 s fails before it notes anything, and its number is left out.)"""
    attempts = cluster.notes(STARTED, batch=batch, partition=0)
    assert len({note["attempt"] for note in attempts}) == len(attempts) >= 2
    assert len({note["jvm"] for note in attempts}) == 2


# -- a standalone cluster ------------------------------------------------------------------------
# A standalone cluster of two workers as docs/where-it-runs.md types it, with a checkpoint in a folder that
# all share: what stays exact when a worker dies in mid-batch, or the driver. Part of `make test-executors`.


class Standalone(NamedTuple):
    """Its URL, the shell that has started master and workers, and what they and the applications note."""

    master: str
    shell: psutil.Process
    folder: Path

    def worker_of(self, jvm: int) -> psutil.Process:
        """The worker that has started an executor."""
        lines = ((process, process.cmdline()) for process in psutil.Process(jvm).parents())
        return next(process for process, line in lines if "org.apache.spark.deploy.worker.Worker" in line)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
    folder = tmp_path / "notes"
    folder.mkdir()
    environment = os.environ | {
        "EOSLOG_PROBE": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_WORKER_OPTS": QUICK_START,
    }
    typed = code_of("where-it-runs.md", "export MASTER=") + "\nwait\n"
    typed = re.sub(r"spark://\S+", master, typed, count=1)
    with (tmp_path / "daemons").open("wb") as log:
        shell = psutil.Popen(
            ["bash", "-c", typed], env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield Standalone(master, shell, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_a_worker_dies_in_mid_batch(standalone: Standalone, kafka: Kafka, tmp_path: Path) -> None:
    """With its executor, in the middle of its task's rows: the other worker runs the task again."""
    copy = Copy(kafka, tmp_path)
    with SparkCluster(standalone.folder, standalone.master) as cluster:
        cluster.order({"at": WRITING, "batch": 1, "do": "wait"})
        cluster.tell(copy.stream(batches=3))
        first, second = cluster.wait_for(2, WRITING, batch=1)
        assert first["jvm"] != second["jvm"], "one on each worker"
        worker, other = (standalone.worker_of(note["jvm"]) for note in (first, second))
        assert worker != other
        worker.kill()
        cluster.kill_executor(first["jvm"])
        cluster.go(WRITING)
        assert cluster.answer()["error"] is None
        prepared = cluster.notes(PREPARED, batch=1, partition=first["partition"])
        assert {note["jvm"] for note in prepared} == {second["jvm"]}
        assert other.is_running() and not worker.is_running()
    copy.check()


@pytest.mark.long
@pytest.mark.timeout(4 * PATIENCE_SECONDS)
def test_the_driver_dies_between_decision_and_end(
    standalone: Standalone, kafka: Kafka, tmp_path: Path
) -> None:
    """Another application of the cluster goes on with the checkpoint."""
    copy = Copy(kafka, tmp_path)
    with SparkCluster(standalone.folder, standalone.master) as cluster:
        cluster.order({"at": DECIDED, "batch": 1, "do": "wait"})
        cluster.tell(copy.stream(batches=3))
        cluster.wait_for(1, DECIDED, batch=1)
        cluster.kill()
    with SparkCluster(standalone.folder, standalone.master) as again:
        again.order()
        again.tell(copy.stream(batches=3))
        again.wait_until("the rest", lambda: len(copy.visible()) == len(copy.rows))
    copy.check()


# -- tasks and executors ---------------------------------------------------------------------------
# Tasks that fail, executors that die, stages that are tried again, in a Spark with executors of its own:
# what readers see is every row once.


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_tasks_fail_after_some_rows(cluster: SparkCluster, kafka: Kafka, tmp_path: Path) -> None:
    """Each task of a batch twice, with rows written; Spark tries them again."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": WRITING, "batch": 1, "do": "fail", "visits": 2})
    cluster.tell(copy.stream())
    assert cluster.answer()["error"] is None
    for partition in range(2):
        attempts = [note["attempt"] for note in cluster.notes(WRITING, batch=1, partition=partition)]
        assert attempts == [0, 1, 2]
    assert len(copy.visible(committed=False)) > len(copy.rows), "the failed attempts have written"
    copy.check()


@pytest.mark.timeout(3 * PATIENCE_SECONDS)
def test_an_executor_dies_and_its_stage_is_tried_again(
    cluster: SparkCluster, kafka: Kafka, tmp_path: Path
) -> None:
    """Its task was in the middle of its rows, and its shuffle files are gone with it: the stage of the sink
    gets a second attempt, whose tasks count their attempts from 0 again, while the other executor's task of
    the first attempt still runs."""
    copy = Copy(kafka, tmp_path)
    cluster.order({"at": WRITING, "batch": 1, "do": "wait"})
    cluster.tell(copy.stream(shuffle=True))
    first, second = cluster.wait_for(2, WRITING, batch=1)
    assert first["jvm"] != second["jvm"]
    cluster.kill_executor(first["jvm"])
    cluster.wait_for(1, PREPARED, batch=1, partition=first["partition"])
    cluster.wait_for(2, STARTED, batch=1, stage=first["stage"], partition=second["partition"])  # its twin
    cluster.go(WRITING)
    assert cluster.answer()["error"] is None
    again = cluster.notes(STARTED, batch=1, stage=first["stage"])
    assert first["jvm"] not in {note["jvm"] for note in again[2:]}
    assert cluster.stage_attempts({first["stage"]}) == [1]
    twins = [n for n in again if (n["partition"], n["attempt"]) == (second["partition"], 0)]
    assert len(twins) == 2 and twins[0]["task"] != twins[1]["task"]
    copy.check()
