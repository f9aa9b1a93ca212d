"""Where eoslog is not on the Python that Spark starts, or cannot be registered: what the program is told,
and when.
"""

import os
import shlex
import subprocess
import sys
import time
from importlib import metadata, util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import eoslog
from eoslog import other_python, registration
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.spark.libraries import EnvironmentUnfit, check_versions, numbers
from eoslog.other_python import what_it_lacks
from tests.docs.reader import code_of
from tests.kit.program import Program, plain_python, until

# -- another Python ------------------------------------------------------------------------------
# A program whose Spark starts another Python, one without eoslog: what it is told, and when.

_PROGRAM = """
import threading
import pyspark
import eoslog
print("imported", flush=True)
for thread in threading.enumerate():
    if thread.name == "eoslog-python":
        thread.join()
"""


def python3(folder: Path, before: str = "") -> dict[str, str]:
    """An environment with the python3 of a machine, where nobody has installed anything, as Spark's."""
    command = folder / "bin" / "python3"
    command.parent.mkdir()
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    command.write_text(f'#!/bin/sh\n{before}\nexec {bare} -I -S "$@"\n')
    command.chmod(0o755)
    kept = {name: os.environ[name] for name in ("HOME", "PATH", "PYTHONPATH") if name in os.environ}
    return kept | {"PATH": f"{command.parent}{os.pathsep}{kept['PATH']}"}


def typed(said: str) -> dict[str, str]:
    """The variables that a message says to export."""
    words = shlex.split(said.partition("export ")[2].partition(" and start")[0])
    return dict(word.split("=", 1) for word in words)


def program(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """The whole run of a program that imports PySpark and eoslog."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, cwd=folder, capture_output=True, text=True
    )


def test_a_program_of_an_environment_that_is_not_activated(tmp_path: Path) -> None:
    """It is told which Python Spark starts, and what to type; typed, that is enough."""
    environment = python3(tmp_path)
    first = program(environment, tmp_path)
    assert first.returncode == 0 and first.stdout == "imported\n", first.stderr
    assert f"runs {tmp_path}/bin/python3 as its Python, and it has no eoslog" in first.stderr
    assert "DATA_SOURCE_NOT_FOUND" in first.stderr
    more = typed(first.stderr)
    assert set(more) == {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    second = program(environment | more, tmp_path)
    assert second.returncode == 0 and "as its Python" not in second.stderr


def test_what_the_page_has_is_enough(tmp_path: Path) -> None:
    """docs/installing.md: an environment in the folder `.venv`, its Python called by its path."""
    environment = python3(tmp_path)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    start = f".venv/bin/python -c {shlex.quote(_PROGRAM)}"
    said = []
    for script in (start, f"{code_of('installing.md', 'export PYSPARK_PYTHON')}\n{start}"):
        done = subprocess.run(
            ["bash", "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True
        )
        assert done.stdout == "imported\n", done.stderr
        said.append("it has no eoslog" in done.stderr)
    assert said == [True, False]


def test_the_import_does_not_wait_for_the_other_python(tmp_path: Path) -> None:
    """The other Python answers only once the import is done."""
    go = tmp_path / "go"
    environment = python3(tmp_path, f"until test -e {go}; do sleep 0.1; done")
    out = tmp_path / "out"
    with out.open("w") as file, subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], env=environment, cwd=tmp_path, stdout=file, stderr=file
    ) as running:  # fmt: skip
        try:
            until(lambda: "imported" in out.read_text(), "the import is done", seconds=60)
        finally:
            go.touch()
        assert running.wait(60) == 0
    assert "it has no eoslog" in out.read_text()


def test_register_refuses_such_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = python3(tmp_path)["PATH"].split(os.pathsep)[0] + "/python3"
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", python)
    registered: list[Any] = []
    session: Any = SimpleNamespace(
        sparkContext=None,
        dataSource=SimpleNamespace(register=registered.append),
        createDataFrame=lambda rows, schema: None,
    )
    with pytest.raises(registration.RegistrationError, match=f"runs {python} .* it has no eoslog.* export"):
        eoslog.register(session)
    assert not registered
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    eoslog.register(session)
    assert len(registered) == 1


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "there is no such command"),
        ("exit 1", "it does not run: "),
        ("echo no >&2; exit 1", "run: no:"),
    ],
)
def test_a_python_that_does_not_run(tmp_path: Path, script: str | None, said: str) -> None:
    command = tmp_path / "python"
    if script:
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
    assert said in what_it_lacks(str(command), os.environ)


@pytest.mark.parametrize("name", ["python", "python3", "eoslog-python"])
def test_a_python_of_the_same_environment_is_not_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So nothing is slower where nothing is wrong."""

    def started(*words: Any, **how: Any) -> None:
        raise AssertionError(f"started {words}")

    monkeypatch.setattr(subprocess, "run", started)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    began = time.process_time()
    assert what_it_lacks(name, os.environ) == ""
    assert time.process_time() - began < 0.05, "seconds of processor time; a Python's start takes more"


def test_another_python_that_has_eoslog_is_fine(tmp_path: Path) -> None:
    """Its folder is another one, and eoslog is on its path: pyenv's shims are like that."""
    command = tmp_path / "python3"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    command.chmod(0o755)
    assert what_it_lacks(str(command), os.environ) == ""


@pytest.mark.parametrize(
    ("modules", "main", "variables", "asked"),
    [
        (["pyspark"], None, {}, True),
        (["pyspark"], "orders.copy", {}, True),
        ([], None, {}, False),
        (["pyspark"], "pyspark.daemon", {}, False),
        (["pyspark"], "eoslog.warm", {}, False),
        (["pyspark", "pyspark.sql.connect.session"], None, {}, False),
        (["pyspark"], None, {"SPARK_REMOTE": "sc://server"}, False),
    ],
)
def test_which_programs_are_looked_at(
    modules: list[str],
    main: str | None,
    variables: dict[str, str],
    asked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that may start a Spark; not Spark's processes, clients of Spark Connect, or eoslog's commands."""
    looked: list[bool] = []
    monkeypatch.setattr(other_python, "warn_if_other", lambda: looked.append(True))
    for name in ("pyspark", "pyspark.sql.connect.session"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in modules:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    program = ModuleType("__main__")
    program.__spec__ = SimpleNamespace(name=main) if main else None  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", program)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    registration.watch_pythons()
    assert bool(looked) is asked


SCRIPT = """
import os
from pathlib import Path

with Path("ran").open("a") as file:
    file.write(f"{os.getpid()}\\n")
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.readStream.format("eoslog").load()
"""
HIDES = {
    "a script": lambda folder: folder / "eoslog.py",
    "a package": lambda folder: folder / "eoslog" / "__init__.py",
}


@pytest.mark.parametrize("what", HIDES)
def test_a_file_that_hides_the_package_is_named_and_not_run(what: str, tmp_path: Path) -> None:
    """As Spark's look-up process imports its modules: its working directory comes first."""
    file = HIDES[what](tmp_path)
    file.parent.mkdir(exist_ok=True)
    file.write_text(SCRIPT)
    command = [sys.executable, "-c", "import pyspark_eoslog"]
    done = subprocess.run(command, env=plain_python(), cwd=tmp_path, capture_output=True, text=True)
    said = f"ImportError: {file} hides the package eoslog from Spark's Python: rename it, or start"
    assert done.stderr.splitlines()[-1].startswith(said), done.stderr
    assert not (tmp_path / "ran").exists()
    file.rename(file.with_name("my_flights.py"))
    if what == "a script":
        assert subprocess.run(command, env=plain_python(), cwd=tmp_path).returncode == 0


def test_a_folder_of_that_name_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "eoslog").mkdir()
    command = [sys.executable, "-c", "import pyspark_eoslog"]
    assert subprocess.run(command, env=plain_python(), cwd=tmp_path).returncode == 0


@pytest.mark.spark
def test_a_program_named_eoslog_runs_once_and_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "eoslog.py").write_text(SCRIPT)
    with Program(
        [sys.executable, "eoslog.py"], tmp_path / "log", environment=plain_python(), folder=tmp_path
    ) as run:
        assert run.end() != 0
        said = run.log.read_text()
    assert len((tmp_path / "ran").read_text().splitlines()) == 1, said
    assert f"{tmp_path}/eoslog.py hides the package eoslog" in said and "DATA_SOURCE_NOT_FOUND" in said


# -- eoslog.register -----------------------------------------------------------------------------
# eoslog.register(spark) where it cannot work: what it says. Where it works: `make test-packages`.


class Session:
    """As much of a session as register touches."""

    def __init__(self, *includes: str) -> None:
        self.shipped: list[str] = []
        self.registered: list[type] = []
        self.sparkContext = SimpleNamespace(
            _python_includes=list(includes), addPyFile=self.shipped.append, environment={"PYTHONPATH": "mine"}
        )
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.createDataFrame = lambda rows, schema: None


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Hides modules from this Python."""
    real = util.find_spec

    def hide(*names: str) -> None:
        monkeypatch.setattr(util, "find_spec", lambda name: None if name in names else real(name))

    return hide


def test_installed_by_pip_it_only_names_the_source() -> None:
    session = Session()
    eoslog.register(session)  # type: ignore[arg-type]
    assert session.registered == [EoslogDataSource] and not session.shipped


def test_a_library_that_the_driver_lacks(without: Any) -> None:
    without("google_crc32c", "numpy")
    with pytest.raises(EnvironmentUnfit) as refused:
        eoslog.register(Session())  # type: ignore[arg-type]
    said = str(refused.value)
    assert "numpy is missing; google-crc32c is missing" in said
    assert f"{sys.executable} -m pip install 'numpy>=1.26' 'google-crc32c>=1.5'" in said


@pytest.mark.parametrize(
    ("name", "version", "wanted"),
    [
        ("pyspark", "3.5.9", "pyspark>=4.0"),
        ("numpy", "1.9.2", "numpy>=1.26"),
    ],
)
def test_a_library_that_is_too_old(
    monkeypatch: pytest.MonkeyPatch, name: str, version: str, wanted: str
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda asked: version if asked == name else real(asked))
    with pytest.raises(EnvironmentUnfit, match=f"{name} is {version}, which is too old.*{wanted}"):
        eoslog.register(Session())  # type: ignore[arg-type]


def test_a_spark_without_pips_notes_is_asked_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own Python folder, on PYTHONPATH, was not installed by pip."""

    def unknown(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", unknown)
    check_versions()
    monkeypatch.setattr("pyspark.__version__", "3.5.0")
    with pytest.raises(EnvironmentUnfit, match=r"pyspark is 3\.5\.0, which is too old"):
        check_versions()


@pytest.mark.parametrize(
    ("version", "expected"),
    [("4.2.0.dev3", (4, 2, 0)), ("4.10", (4, 10)), ("4.3.0+db.1", (4, 3, 0)), ("x", ())],
)
def test_the_numbers_of_a_version(version: str, expected: tuple[int, ...]) -> None:
    assert numbers(version) == expected


def test_an_executor_that_lacks_a_library_says_so_and_where(tmp_path: Path) -> None:
    """The first thing that a process gets of the connector is enough."""
    code = (
        "import sys; sys.modules['google_crc32c'] = None\n"
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name: None if name == 'google_crc32c' else real(name)\n"
        "import eoslog.connector.source.reader"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "EnvironmentUnfit: eoslog cannot run in" in ended.stderr
    assert "google-crc32c is missing" in ended.stderr and "pip install 'google-crc32c>=1.5'" in ended.stderr


def test_a_session_of_spark_connect_without_a_jar_is_refused() -> None:
    with pytest.raises(registration.RegistrationError, match=r"Spark Connect.* pip there.* PYTHONPATH="):
        eoslog.register(SimpleNamespace(dataSource=None))  # type: ignore[arg-type]


def test_a_session_of_spark_connect_gets_the_jar_before_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jar = tmp_path / "e.jar"
    jar.touch()
    monkeypatch.setattr(registration, "home_archive", lambda: jar)
    asked: list[Any] = []
    session: Any = SimpleNamespace(
        addArtifacts=lambda *paths, pyfile: asked.append((paths, pyfile)),
        dataSource=SimpleNamespace(register=asked.append),
    )
    eoslog.register(session)
    assert asked == [((str(jar),), True), EoslogDataSource]


@pytest.mark.parametrize(("includes", "shipped"), [((), 1), (("e.jar",), 0), (("other.jar",), 1)])
def test_the_jar_is_handed_on_unless_spark_has_done_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, includes: tuple[str, ...], shipped: int
) -> None:
    jar = tmp_path / "e.jar"
    jar.touch()
    monkeypatch.setattr(registration, "home_archive", lambda: jar)
    session = Session(*includes)
    eoslog.register(session)  # type: ignore[arg-type]
    eoslog.register(session)  # type: ignore[arg-type]
    assert session.shipped == [str(jar)] * (2 * shipped)  # Spark notes its name, this session does not
    assert session.sparkContext.environment == {"PYTHONPATH": f"{jar}:mine"}
    assert session.registered == [EoslogDataSource] * 2


def test_a_jar_that_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registration, "home_archive", lambda: tmp_path / "gone.jar")
    with pytest.raises(registration.RegistrationError, match="which is gone"):
        eoslog.register(Session())  # type: ignore[arg-type]
