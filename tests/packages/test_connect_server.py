"""docs/connect.md, typed: a server of Spark Connect that has eoslog by pip, in a jar that its client brings,
or in a jar of its own; killed, started again and resumed. `make test-packages`."""

import os
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.spark.orders import Orders
from tests.docs.newcomer import HOME
from tests.docs.reader import code_of
from tests.kit.program import Program
from tests.packages.bare_python import PATIENCE_SECONDS, BarePython
from tests.packages.built_packages import Built

pytestmark = [pytest.mark.packages, pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]

SPARKS = ("4.3.0", "4.2.*", "4.1.*", "4.0.*")
_PAGE = "connect.md"
_PORT = "15002"
_JAR = "eoslog_2.13-0.1.0.jar"


class Pythons(NamedTuple):
    """The server's environment with eoslog, and one with PySpark and the libraries alone. `limits`: whether
    one run has several batches, see connector-options.md, "By version of PySpark"."""

    with_eoslog: BarePython
    without: BarePython
    limits: bool


@pytest.fixture(scope="module", params=SPARKS)
def pythons(
    request: pytest.FixtureRequest, built: Built, tmp_path_factory: pytest.TempPathFactory
) -> Pythons:
    """What the page says to install, with this PySpark."""
    without = BarePython(tmp_path_factory.mktemp("without"))
    spark = f"pyspark[connect]=={request.param}"
    without.pip("install", spark, *shlex.split(code_of("installing.md", "pip install 'pyarrow"))[2:])
    pip, install, wanted, eoslog = shlex.split(code_of(_PAGE, "pip install"))
    assert (pip, wanted, eoslog) == ("pip", "pyspark[connect]>=4.0", f"git+{HOME}")
    with_eoslog = BarePython(tmp_path_factory.mktemp("with"))
    with_eoslog.pip(install, spark, built.wheel)
    assert with_eoslog.has_eoslog() and not without.has_eoslog()
    return Pythons(with_eoslog, without, limits=request.param >= "4.2")


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


class Place:
    """A folder in which the page is typed: servers one after another, and the client's program."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, built: Built) -> None:
        self.folder, self.broker, self.built = folder, broker, built
        self.orders = Orders(Kafka(broker.bootstrap))
        (folder / _JAR).symlink_to(built.jar)
        self._remote = ""

    def server(self, python: BarePython, before: str = "", more: str = "") -> Program:
        """A server that listens. `before`: typed before it is started; `more`: its further arguments."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        settings = f"--conf spark.connect.grpc.binding.port={port} --conf spark.ui.enabled=false"
        start = code_of(_PAGE, "spark-submit").strip()
        typed = f"{before}\n{start} {settings} --driver-memory 700m {more}"
        server = self.run(python, typed, "server.log")
        server.wait_until("the server listens", lambda: _listens(port))
        self._remote = f"sc://127.0.0.1:{port}"
        return server

    def client(
        self,
        python: BarePython,
        start: str = "python",
        remote: str | None = None,
        register: str = "",
        limit: str = "",
    ) -> Program:
        """The client's program; `start` is how the page's command begins, `limit` an option of the source."""
        code = code_of(_PAGE, "from pyspark.sql").replace("/path/to/checkpoint", f"{self.folder}/checkpoint")
        code = code.replace(f"sc://127.0.0.1:{_PORT}", remote or self._remote)
        assert "\nsource = " in code, "the program reads after it has a session"
        code = code.replace("\nsource = ", f"\n{register}\nsource = ", 1)
        assert "source.load()" in code
        code = code.replace("source.load()", f"source{limit}.load()")
        self.orders.write(self.folder / "orders_connect.py", code)
        return self.run(python, code_of(_PAGE, start), "client.log")

    def run(self, python: BarePython, typed: str, log: str) -> Program:
        """What is typed in this folder."""
        return Program(
            ["bash", "-c", typed], self.folder / log, folder=self.folder, environment=python.environment,
            patience=PATIENCE_SECONDS,
        )  # fmt: skip


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def place(tmp_path: Path, broker: EmbeddedBroker, built: Built) -> Place:
    """An empty one."""
    return Place(tmp_path, broker, built)


def _finish(client: Program) -> None:
    assert client.end() == 0, client.tail()
    assert client.tail().rstrip().endswith("done")


@pytest.mark.parametrize("brought", [False, True], ids=["pip on the server", "the client's jar"])
def test_a_server_that_is_killed_after_a_decision(brought: bool, pythons: Pythons, place: Place) -> None:
    """The second batch is decided, or the only one; server and client die before the driver has heard so."""
    python = pythons.without if brought else pythons.with_eoslog
    start = "PYTHONPATH=" if brought else "python"
    register = code_of(_PAGE, "import eoslog") if brought else ""
    limit = '.option("maxOffsetsPerTrigger", 100)' if pythons.limits else ""
    # A batch has two: its decision, and one for all that it has decided.
    unheard = place.broker.faults.drop_answer("EndTxn", nth=3 if limit else 1, times=0, cut=False)
    client = partial(place.client, pythons.without, start, register=register, limit=limit)
    with place.server(python) as server, client() as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
        assert server.ended is None
        server.kill()
    place.broker.faults.disarm()
    if limit:
        place.orders.check_some_are_copied()
    with place.server(python), client() as again:
        _finish(again)
    place.orders.check_all_are_copied()


_WORKER = """
mkdir -p "$AWAY/venv" && mount --bind "$VENV" "$AWAY/venv"
mount -t tmpfs none /tmp
mkdir -p "$VENV" && mount --bind "$AWAY/venv" "$VENV"
cd /tmp
exec spark-class org.apache.spark.deploy.worker.Worker --cores 2 --memory 1g --work-dir "$AWAY/work" "$MASTER"
"""
"""A worker with a /tmp of its own: of the driver's machine it sees Python and PySpark alone."""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="a worker with files of its own takes mounts, which root alone may make"
)
def test_executors_on_another_machine_get_the_client_s_jar(
    pythons: Pythons, place: Place, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its files are not the driver's: the jar comes as Spark sends files of a session."""
    python, start = pythons.without, "PYTHONPATH="
    assert str(python.folder).startswith("/tmp/") and str(place.folder).startswith("/tmp/")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"spark://127.0.0.1:{taken.getsockname()[1]}"
    away = Path(tempfile.mkdtemp(prefix="eoslog-", dir="/var/tmp"))
    around = {"VENV": str(python.folder), "AWAY": str(away), "MASTER": url}
    node = (
        f"spark-class org.apache.spark.deploy.master.Master --host 127.0.0.1 --port {url.rpartition(':')[2]}"
    )
    exports = "".join(f"export {name}={value}\n" for name, value in around.items())
    separate = f"{exports}exec unshare --mount bash -ec {shlex.quote(_WORKER)}"
    register = code_of(_PAGE, "import eoslog")
    try:
        with place.run(python, node, "master.log"), place.run(python, separate, "worker.log") as worker:
            worker.wait_until(
                "the worker is known", lambda: "Successfully registered" in worker.log.read_text()
            )
            with (
                place.server(python, more=f"--master {url} --conf spark.executor.memory=512m"),
                place.client(python, start, register=register) as client,
            ):
                _finish(client)
            assert "Asked to launch executor" in worker.log.read_text()
    finally:
        shutil.rmtree(away)
    place.orders.check_all_are_copied()


def test_a_jar_on_the_server(pythons: Pythons, place: Place) -> None:
    """Nothing but its PYTHONPATH."""
    before = code_of(_PAGE, "export PYTHONPATH")
    with place.server(pythons.without, before), place.client(pythons.without) as client:
        _finish(client)
    place.orders.check_all_are_copied()


@pytest.mark.parametrize("option", ["--packages", "--jars", "--py-files"])
def test_a_jar_that_pythons_of_the_server_do_not_get(option: str, pythons: Pythons, place: Place) -> None:
    """A query stops at its start, loudly."""
    jar = place.built.jar
    more = f"{option} {jar}"
    if option == "--packages":
        name = f"io.github.eoslog:eoslog_2.13:{jar.parent.name}"
        ivy = f"--conf spark.jars.ivy={place.folder}/ivy"
        more = f"--packages {name} --repositories {place.built.repository.as_uri()} {ivy}"
    with place.server(pythons.without, more=more), place.client(pythons.without) as client:
        assert client.end() == 1, client.tail()
        assert "DATA_SOURCE_NOT_FOUND" in client.log.read_text()
    place.orders.check_none_are_copied()


def test_a_server_that_the_client_starts(pythons: Pythons, place: Place) -> None:
    """remote("local[2]") with the jar: killed after a decision, and run again."""
    register = code_of(_PAGE, "import eoslog")
    unheard = place.broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with place.client(pythons.without, "PYTHONPATH=", "local[2]", register) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
    place.broker.faults.disarm()
    place.orders.check_some_are_copied()
    with place.client(pythons.without, "PYTHONPATH=", "local[2]", register) as second:
        _finish(second)
    place.orders.check_all_are_copied()
