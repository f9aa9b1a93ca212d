"""Every Python from 3.11 on that is installed here, with each PySpark from 4.0 on: a copy,
killed and resumed. `make test-packages`.
"""

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.packages.bare_python import PARTITIONS, PATIENCE_SECONDS, Application, BarePython, Copy, ThisPython
from tests.packages.built_packages import Built

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARKS = ("4.3.0", "4.2.*", "4.1.*", "4.0.*")


def python(version: str) -> str | None:
    """The command of a Python: one of pyenv's, or on the PATH; None if there is none."""
    folders = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"))
    here = [str(folder / "bin" / "python") for folder in folders if (folder / "bin" / "python").exists()]
    return here[-1] if here else shutil.which(f"python{version}")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


@pytest.mark.packages
@pytest.mark.spark
@pytest.mark.timeout(3 * PATIENCE_SECONDS)
@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("version", PYTHONS)
def test_a_copy_that_is_killed_after_a_decision(
    version: str, spark: str, built: Built, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The newest PySpark of the line, the wheel, and what pip takes for both."""
    command = python(version)
    if command is None:
        pytest.skip(f"no Python {version} on this machine")
    if (version, spark) == ("3.14", "4.0.*"):
        pytest.skip("PySpark 4.0 supports Python up to 3.13")
    bare = BarePython(tmp_path / "bare", command)
    bare.pip("install", f"pyspark=={spark}", built.wheel)
    asked = bare.python("import sys; print(sys.version)")
    assert asked.stdout.startswith(f"{version}."), asked.stdout + asked.stderr
    kafka = Kafka(broker.bootstrap)
    copy = Copy(kafka, tmp_path, "local[2]")
    # A batch has two: its decision, and one for all that it has decided.
    unheard = broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with Application(bare, tmp_path, copy.plan, copy.settings) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
    broker.faults.disarm()
    committed = [row for row in kafka.rows(copy.target, PARTITIONS) if row[3]]
    assert 0 < len(committed) < len(copy.rows), "killed in the middle of its work"
    with Application(bare, tmp_path, copy.plan, copy.settings) as second:
        copy.check(second.result(), origin="site-packages", spark=spark)


# -- transports ----------------------------------------------------------------------------------
# How Spark talks with its Python processes, where it lets its user choose: a copy, killed and resumed. `make
# test-packages`.

_PIPELINED = "SPARK_PIPELINED_UDF"
"""The variable by which Spark's JVM tells a worker (pyspark/worker.py)."""


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


@pytest.mark.packages
@pytest.mark.spark
@pytest.mark.timeout(2 * PATIENCE_SECONDS)
@pytest.mark.parametrize("unix", [True, False], ids=["unix sockets", "tcp"])
@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "in turns"])
def test_a_copy_by_each_transport_is_killed_after_a_decision(
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
