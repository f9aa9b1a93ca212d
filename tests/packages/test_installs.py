"""Wheel, sdist and jar in virtual environments that hold nothing else but a PySpark from 4.0 to 4.3:
queries run from them, are killed and resumed, and a stock client counts what they wrote: `make
test-packages`.

What is typed is what docs/installing.md says. The tests go in their order: an environment begins empty, and
gets one thing after another.
"""

import contextlib
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.docs.newcomer import HOME
from tests.packages.bare_python import PARTITIONS, PATIENCE_SECONDS, Application, BarePython, Copy
from tests.packages.built_packages import Built

SPARKS = ("4.3.0", "4.2.*", "4.1.*", "4.0.*")
LOCAL, CLUSTER = "local[2]", "local-cluster[2,1,1024]"
BATCHES = 5
_HIDE = """
import os
from importlib.machinery import PathFinder
if "SPARK_EXECUTOR_DIRS" in os.environ:  # the driver's processes have it
    find = PathFinder.find_spec
    hidden = lambda name, *rest: None if name == "google_crc32c" else find(name, *rest)
    PathFinder.find_spec = staticmethod(hidden)
"""
_FAN_OUT = """
import json, os
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from eoslog.fanout import delta, fanout

plan = json.loads(os.environ["PLAN"])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", plan["bootstrap"])
rows = rows.option("subscribe", plan["source"]).option("startingOffsets", "earliest").load()
table = plan["checkpoint"] + "-table"
query = rows.select("value").writeStream.foreachBatch(fanout("copy", [delta(table)]))
query = query.option("checkpointLocation", plan["checkpoint"]).trigger(availableNow=True).start()
query.awaitTermination()
print(DeltaTable(table).to_pyarrow_table().num_rows)
"""
_BLOCKS = re.findall(
    r"^```(?:bash|python)\n(.*?)^```",
    (Path(__file__).parents[2] / "docs" / "installing.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
"""What the page says to type."""


def block(sign: str) -> str:
    """The one block of the page that begins so."""
    found: str
    (found,) = (one for one in _BLOCKS if one.startswith(sign))
    return found


pytestmark = [pytest.mark.packages, pytest.mark.spark, pytest.mark.timeout(3 * PATIENCE_SECONDS)]


@pytest.fixture(scope="module")
def kafka(broker: EmbeddedBroker) -> Kafka:
    """The stock client's view of the broker, which runs in the environment of the tests."""
    return Kafka(broker.bootstrap)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_goes_wrong(broker: EmbeddedBroker) -> Iterator[None]:
    """Faults end with the test that armed them."""
    yield
    broker.faults.disarm()


@pytest.fixture(scope="module", params=SPARKS)
def bare(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BarePython:
    """An environment with this PySpark and nothing else."""
    made = BarePython(tmp_path_factory.mktemp("bare"))
    made.pip("install", f"pyspark=={request.param}")
    return made


@pytest.fixture
def spark_version(request: pytest.FixtureRequest) -> str:
    """The PySpark of the environment."""
    version: str = request.node.callspec.params["bare"]
    return version


def test_without_the_libraries_register_says_what_to_type(bare: BarePython, built: Built) -> None:
    """PySpark alone does not bring them. What the message says is typed, and is enough."""
    assert not bare.has_eoslog()
    jar_alone = {"PYTHONPATH": str(built.jar)}
    refused = bare.python("import eoslog; eoslog.register(None)", **jar_alone)
    assert refused.returncode == 1
    said = re.search(r"EnvironmentUnfit: .* is missing.* Type there: (.*)", refused.stderr)
    assert said, refused.stderr
    python, dash_m, pip, *words = shlex.split(said[1])
    assert (python, dash_m, pip) == (str(bare.bin / "python"), "-m", "pip")
    assert words == shlex.split(block("pip install 'pyarrow"))[1:]
    bare.pip(*words)
    assert bare.python("import eoslog.connector.sink.stream_writer", **jar_alone).returncode == 0


def submit(built: Built) -> list[str]:
    """The page's spark-submit, but for the application and the place of the repository."""
    typed = block("spark-submit").replace("$PWD/build/maven", str(built.repository))
    *words, application = shlex.split(typed)
    assert application == "app.py"
    return words


def test_jar_by_spark_submit_killed_after_a_decision(
    bare: BarePython, built: Built, broker: EmbeddedBroker, kafka: Kafka, tmp_path: Path, spark_version: str
) -> None:
    """The jar alone, executors in JVMs of their own. The second batch is decided, and its driver dies before
    it has heard so; another one finishes it and goes on."""
    assert not bare.has_eoslog()
    copy = Copy(kafka, tmp_path, CLUSTER, register=block("import eoslog"))
    # A batch has two: its decision, and one for all that it has decided.
    unheard = broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with Application(bare, tmp_path, copy.plan, copy.settings, submit(built)) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
        assert first.ended is None
    broker.faults.disarm()
    committed = sorted(row[3] for row in kafka.rows(copy.target, PARTITIONS, committed=False) if row[3])
    assert 0 < len(committed) < len(copy.rows), "killed in the middle of its work"
    with Application(bare, tmp_path, copy.plan, copy.settings, submit(built)) as second:
        copy.check(second.result(), origin=".jar", spark=spark_version)


def test_jar_in_a_notebook_whose_session_is_started_anew(
    bare: BarePython, built: Built, kafka: Kafka, tmp_path: Path, spark_version: str
) -> None:
    """spark.jars.packages on local[2]. Modules are real and connections live from batch to batch: in the
    tasks' processes, and in the driver's, which remember the run. Batches are too large to be one task
    (small.batch.max.offsets), as those of the other tests are."""
    if not spark_version.startswith("4.3"):
        pytest.skip("one version is enough for what the other tests of both do not ask")
    notes = tmp_path / "notes.jsonl"
    typed = block("from pyspark.sql").replace("/path/to/build/maven", str(built.repository))
    more = {"notebook": typed, "notes": str(notes), "sessions": 2}
    copy = Copy(kafka, tmp_path, LOCAL, rows=BATCHES * 2_000, batches=BATCHES, **more)
    with Application(bare, tmp_path, copy.plan, copy.settings) as running:
        copy.check(running.result(), origin=".jar", spark=spark_version)
    check_notes([json.loads(line) for line in notes.read_text().splitlines()])


def check_notes(notes: list[dict[str, Any]]) -> None:
    """What the processes of an application had, batch after batch."""
    assert all(".jar/eoslog/connector/sink/task_writer.py" in note["file"] for note in notes)
    begins = [note["remembered"] for note in notes if note["at"] == "begin"]
    assert len(begins) == BATCHES and not begins[0] and all(begins[1:]), begins
    tasks = defaultdict(list)
    for note in notes:
        if note["at"] == "task":
            tasks[note["pid"]].append((note["cluster"], note["met"]))
    assert sum(map(len, tasks.values())) == BATCHES * PARTITIONS
    for seen in tasks.values():  # a process makes its connections once
        assert len({cluster for cluster, _ in seen}) == 1 and all(met for _, met in seen[1:])
    assert any(len(seen) > 1 for seen in tasks.values()), "some process had more than one task"
    words = {
        note["pid"]: note["name"].split("/")[-1].split(".")[0] for note in notes if note["at"] == "written"
    }
    assert len(set(words.values())) == len(words), "a process names its transactions by a word of its own"


def test_executors_without_a_library_say_so(
    bare: BarePython, built: Built, kafka: Kafka, tmp_path: Path, spark_version: str
) -> None:
    """The driver has it, the executors' Python does not: it is hidden from them."""
    if not spark_version.startswith("4.3"):
        pytest.skip("one version is enough for what the other tests of both do not ask")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(_HIDE)
    settings = {"spark.executorEnv.PYTHONPATH": str(hiding), "spark.task.maxFailures": "1"}
    copy = Copy(kafka, tmp_path, CLUSTER, register=block("import eoslog"))
    with Application(bare, tmp_path, copy.plan, copy.settings | settings, submit(built)) as running:
        assert running.end() == 1, running.tail()
        said = running.log.read_text()
    assert "EnvironmentUnfit: eoslog cannot run in" in said and "google-crc32c is missing" in said, said[
        -3000:
    ]
    assert not kafka.rows(copy.target, PARTITIONS, committed=False)


@pytest.mark.parametrize(("kind", "master"), [("sdist", LOCAL), ("wheel", CLUSTER)])
def test_installed_by_pip(
    bare: BarePython, built: Built, kafka: Kafka, tmp_path: Path, kind: str, master: str, spark_version: str
) -> None:
    """No jar and no call: Spark finds it, and its driver's processes are forks of a warm one."""
    if kind == "sdist" and not spark_version.startswith("4.3"):
        pytest.skip("the sdist makes the same wheel for every Spark")
    pip, install, name = block("pip install git+").split()
    assert (pip, name) == ("pip", f"git+{HOME}")
    bare.pip(install, getattr(built, kind))
    assert bare.has_eoslog()
    copy = Copy(kafka, tmp_path, master)
    with Application(bare, tmp_path, copy.plan, copy.settings) as running:
        running.wait_until("a warm process", lambda: has_warm_process(bare))
        copy.check(running.result(), origin="site-packages", spark=spark_version)
    bare.pip("uninstall", "--yes", "eoslog")
    assert bare.python("import pyspark").stderr == "", "the hook is gone, too"


def test_a_fan_out_needs_nothing_but_the_wheel_with_its_extra(
    bare: BarePython, built: Built, kafka: Kafka, tmp_path: Path
) -> None:
    """mapInArrow of PySpark asks for pandas, which PySpark does not bring."""
    bare.pip("install", f"{built.wheel}[delta]")
    copy = Copy(kafka, tmp_path, LOCAL)
    ran = bare.python(_FAN_OUT, PLAN=json.dumps(copy.plan))
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.split() == [str(len(copy.rows))]
    bare.pip("uninstall", "--yes", "eoslog")


def has_warm_process(bare: BarePython) -> bool:
    """Whether a warm process of this environment lives."""
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = one.cmdline()
            if command[1:3] == ["-m", "eoslog.warm"] and command[0].startswith(str(bare.bin)):
                return True
    return False
