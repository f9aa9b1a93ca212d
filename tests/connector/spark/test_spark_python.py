"""PYSPARK_PYTHON=eoslog-python: the same rows, from processes that are sooner there; imports."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

from eoslog.connector.spark.versions import works
from eoslog.spark_python import environment
from eoslog.warm.sparks_zip import prefer_installed
from tests.connector.brokers import Kafka

_HERE = Path(__file__).parent
PYTHON = str(Path(sys.executable).with_name("eoslog-python"))


def archive(folder: Path, version: str) -> str:
    path = folder / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("pyspark/version.py", version)
    return str(path)


def installed(folder: Path, version: str) -> str:
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "version.py").write_text(version)
    return str(folder)


def test_the_zip_goes_where_the_same_version_is_installed(tmp_path: Path) -> None:
    packed, site = archive(tmp_path, "4.3.0"), installed(tmp_path / "site", "4.3.0")
    path = ["", packed, "/spark/py4j.zip", "/spark/jars/spark-core_2.13-4.3.0.jar", "/nowhere", site]
    prefer_installed(path)
    assert path == ["", "/spark/py4j.zip", "/nowhere", site]


def test_nor_is_it_looked_into_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before PySpark 4.3 each task forgets what Python knows of each of them, and it reads the directory."""
    packed, site = archive(tmp_path, "4.0.5"), installed(tmp_path / "site", "4.0.5")
    gone, kept = [packed, f"{packed}/pyspark", "/spark-core_2.13-4.0.5.jar"], ["/py4j.zip", f"{packed}.other"]
    known = dict.fromkeys([*gone, *kept])
    monkeypatch.setattr(sys, "path_importer_cache", known)
    prefer_installed([gone[2], *kept, packed, site])
    assert list(known) == kept


@pytest.mark.parametrize("version", ["4.2.0", None])
def test_the_zip_stays_where_another_version_is_installed_or_none(
    tmp_path: Path, version: str | None
) -> None:
    path = [
        archive(tmp_path, "4.3.0"),
        "/spark-core_2.13-4.3.0.jar",
        *([installed(tmp_path / "site", version)] if version else []),
    ]
    before = list(path)
    prefer_installed(path)
    assert path == before


def test_what_is_no_zip_stays(tmp_path: Path) -> None:
    (tmp_path / "pyspark.zip").write_text("torn")
    path = [str(tmp_path / "pyspark.zip"), installed(tmp_path / "site", "4.3.0")]
    before = list(path)
    prefer_installed(path)
    assert path == before


def command_of(process: psutil.Process) -> str:
    """Its command line; none of a process that has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""


def test_python_is_started_without_the_zip(tmp_path: Path) -> None:
    packed, site = archive(tmp_path, "4.3.0"), installed(tmp_path / "site", "4.3.0")
    given = {"PYTHONPATH": f"{packed}:/spark/py4j.zip", "HOME": "/home/of/spark"}
    assert environment(given, ["/bin", packed, site]) == {**given, "PYTHONPATH": "/spark/py4j.zip"}
    assert environment(given, ["/bin", packed]) == given
    assert environment({}, [site]) == {"PYTHONPATH": ""}


def test_it_is_python_otherwise(tmp_path: Path) -> None:
    program = "import os, sys; print(sys.executable, *sys.argv[1:], os.environ['KEPT']); sys.exit(3)"
    done = subprocess.run(
        [PYTHON, "-c", program, "a b"], env={"KEPT": "yes"}, capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (3, f"{sys.executable} a b yes\n"), done.stderr


@pytest.mark.parametrize("first", ["#!{python}", "#!/bin/sh", "#!/nowhere/python", "garbage"])
def test_it_is_the_python_of_the_command_beside_it(tmp_path: Path, first: str) -> None:
    """pip writes the Python that it installs for into its commands; else there is one in their folder."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "eoslog").write_text(first.format(python=sys.executable) + "\n")
    (folder / "eoslog-python").write_bytes(Path(PYTHON).read_bytes())
    (folder / "eoslog-python").chmod(0o755)
    (folder / "python").write_text(f'#!/bin/sh\nBESIDE=yes exec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    (tmp_path / "elsewhere").symlink_to(folder / "eoslog-python")
    for command in (folder / "eoslog-python", tmp_path / "elsewhere"):
        program = "import os, sys; print(sys.executable, os.environ.get('BESIDE'))"
        said = subprocess.run([command, "-c", program], capture_output=True, text=True, check=True)
        beside = None if "{python}" in first else "yes"
        assert said.stdout == f"{sys.executable} {beside}\n", said.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    ("master", "killed"),
    [("local[2]", False), ("local[2]", True), ("local-cluster[2,1,1024]", True)],
    ids=["ended", "killed", "cluster, killed"],
)
def test_a_copy(kafka: Kafka, tmp_path: Path, master: str, killed: bool) -> None:
    """Rows arrive once; all that Spark starts is a fork of the JVM's warm process, on executors as well; none
    is left when the application is gone."""
    given = kafka.bootstrap, str(tmp_path), kafka.topic(2), kafka.topic(), master
    application = subprocess.Popen(
        [sys.executable, str(_HERE / "python_app.py"), *given],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("w"), text=True,
        env={**os.environ, "PYSPARK_PYTHON": PYTHON, "PYSPARK_DRIVER_PYTHON": PYTHON}, start_new_session=True,
    )  # fmt: skip
    assert application.stdout is not None and application.stdin is not None
    told = next((line for line in application.stdout if line.startswith("told ")), None)
    assert told is not None, (tmp_path / "log").read_text()
    said = json.loads(told.removeprefix("told "))
    assert said["copied"] == (100 if works("now") else 30)
    assert "pyspark.zip" not in said["pyspark"] and said["threads"] == 1
    assert all("py4j" in archive for archive in said["archives"]), "each task would read their directories"
    own = psutil.Process(application.pid).children(recursive=True)
    commands = {one.pid: command_of(one) for one in own}
    assert "java" in commands[said["driver"]], "whose memory and guards the batches have"
    runs = [command for command in commands.values() if " -m pyspark." in command]
    assert runs and all("eoslog.spark_python" in command for command in runs), "each stands for a fork"
    machines = [command for command in commands.values() if "java" in command and "launcher" not in command]
    assert said["grandparent"] in commands and "eoslog.warm" in commands[said["grandparent"]]
    assert len({command for command in commands.values() if "eoslog.warm" in command}) <= len(machines)
    application.stdin.write("k" if killed else "q")
    application.stdin.close()
    application.wait(60)
    deadline = time.monotonic() + 30
    while any(command_of(one) for one in own):
        assert time.monotonic() < deadline, [command_of(one) for one in own]
        time.sleep(0.2)


# -- imports -------------------------------------------------------------------------------------
# Each of Spark's Python processes imports what it needs of what is slow to import, and no more.
#
# Spark begins six of them for a streaming query, one after another, and new ones for the next.

CODEC = {"numpy", "pyarrow", "pyarrow.compute", "pandas"}
"""What the codec needs; pandas comes with `pa.array`, where it is installed."""
VERSIONS = {"importlib.metadata"}
NEEDED = {
    "driver": set[str](),
    "pyspark.sql.worker.lookup_data_sources": VERSIONS,  # once a session
    "pyspark.sql.worker.create_data_source": set[str](),
    "pyspark.sql.worker.plan_data_source_read": set[str](),
    "pyspark.sql.worker.write_into_data_source": set[str](),
    "pyspark.sql.worker.commit_data_source_write": set[str](),
    "pyspark.sql.worker.python_streaming_sink_runner": set[str](),
    "pyspark.sql.streaming.python_streaming_source_runner": set[str](),
    "pyspark.worker": CODEC,
}


@pytest.mark.spark
@pytest.mark.parametrize("small", ["0", "100"])
def test_no_process_imports_what_it_does_not_need(kafka: Kafka, tmp_path: Path, small: str) -> None:
    plain = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}  # no forks
    notes, topics = tmp_path / "imports", (kafka.topic(2), kafka.topic())
    path = os.pathsep.join(filter(None, (str(_HERE / "import_watch"), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        [sys.executable, str(_HERE / "imports_app.py"), kafka.bootstrap, str(tmp_path), small, *topics],
        env=os.environ | plain | {"PYTHONPATH": path, "EOSLOG_IMPORTS": str(notes)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "copied 100" in ended.stdout, ended.stdout + ended.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for line in notes.read_text().splitlines():
        process, name, who = line.split()
        if who != "libraries.py" or name in VERSIONS:  # which looks whether a library is there
            found[process].add(name)
    assert "pyarrow.compute" in found["pyspark.worker"], "the watch sees what it should"
    allowed = NEEDED | {
        "pyspark.sql.streaming.python_streaming_source_runner": CODEC if small != "0" else set()
    }
    assert {
        process: names - allowed[process] for process, names in found.items() if names - allowed[process]
    } == {}
