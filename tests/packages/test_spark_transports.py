"""How Spark talks with its Python processes, where it lets its user choose: a copy, killed and resumed.
`make test-packages`."""

import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka
from tests.packages.bare_python import PATIENCE_SECONDS, Application, ThisPython
from tests.packages.copied_topic import PARTITIONS, Copy

pytestmark = [pytest.mark.packages, pytest.mark.spark, pytest.mark.timeout(2 * PATIENCE_SECONDS)]

_PIPELINED = "SPARK_PIPELINED_UDF"
"""The variable by which Spark's JVM tells a worker (pyspark/worker.py)."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder for sockets. Its path is short: that of a socket has 107 letters at most."""
    with tempfile.TemporaryDirectory(prefix="eoslog-") as folder:
        yield Path(folder)


def _workers(application: Application) -> list[psutil.Process]:
    """Those that run tasks."""
    found = []
    for process in application.family():
        with suppress(psutil.NoSuchProcess):
            line = process.cmdline()
            if "pyspark.daemon" in line and line[-1] == "pyspark.worker":
                found.append(process)
    return found


def _pipelined(application: Application) -> bool:
    return any(process.environ().get(_PIPELINED) == "1" for process in _workers(application))


def _sockets(folder: Path) -> bool:
    return any(stat.S_ISSOCK(path.stat().st_mode) for path in folder.iterdir())


@pytest.mark.parametrize("unix", [True, False], ids=["unix sockets", "tcp"])
@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "in turns"])
def test_a_copy_that_is_killed_after_a_decision(
    unix: bool, pipelined: bool, broker: EmbeddedBroker, sockets: Path, tmp_path: Path
) -> None:
    """spark.python.unix.domain.socket.enabled, and spark.python.udf.pipelined.enabled of Spark 4.3."""
    kafka = Kafka(broker.bootstrap)
    copy = Copy(kafka, tmp_path, "local[2]", rows=8_000)  # too many for one task: a task reads each partition
    settings = copy.settings | {
        "spark.python.unix.domain.socket.enabled": str(unix).lower(),
        "spark.python.unix.domain.socket.dir": str(sockets),
        "spark.python.udf.pipelined.enabled": str(pipelined).lower(),
    }
    here = ThisPython(tmp_path)
    # A batch has two: its decision, and one for all that it has decided.
    unheard = broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with Application(here, tmp_path / "app", copy.plan, settings) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
        assert _pipelined(first) is pipelined
        assert _sockets(sockets) is unix
    broker.faults.disarm()
    committed = [row for row in kafka.rows(copy.target, PARTITIONS) if row[3]]
    assert 0 < len(committed) < len(copy.rows), "killed in the middle of its work"
    with Application(here, tmp_path / "app", copy.plan, settings) as second:
        copy.check(second.result(), origin="eoslog", spark="4.3")
