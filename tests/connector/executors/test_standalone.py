"""A standalone cluster of two workers as docs/where-it-runs.md types it, with a checkpoint in a folder that
all share: what stays exact when a worker dies in mid-batch, or the driver. Part of `make test-executors`.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from tests.connector.executors.cluster import Copy, SparkCluster
from tests.connector.spark_application import PATIENCE_SECONDS
from tests.connector.spark_probe import DECIDED, PREPARED, WRITING
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import code_of
from tests.kit.program import ROOT
from tests.spark_session import QUICK_START

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(4 * PATIENCE_SECONDS)]


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
        "MASTER": master,
        "EOSLOG_PROBE": str(folder),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "SPARK_WORKER_OPTS": QUICK_START,
    }
    typed = code_of("where-it-runs.md", "spark-class") + "\nwait\n"
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
