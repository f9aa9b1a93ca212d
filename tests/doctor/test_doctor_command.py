"""`eoslog doctor` looks at files, the environment and the Pythons that Spark would start; or at a session."""

import json
import os
import re
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from eoslog.cli import main
from eoslog.doctor import examine
from eoslog.doctor.facts import of_defaults, parse_defaults
from eoslog.doctor.rules import LIGHT, MANAGER


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.executable).with_name("eoslog-python")))


def doctor(*given: str) -> Result:
    return CliRunner().invoke(main, ["doctor", *given])


def python_that(folder: Path, does: str) -> str:
    path = folder / "python-of-a-test"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_the_environment_of_these_tests() -> None:
    said = doctor()
    assert said.exit_code == 0
    assert re.fullmatch(r"settings: none\nknow   on a local disk .*\n .*\nfindings: 1\n", said.output)


def test_what_spark_would_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text(f"spark.python.daemon.module  pyspark.daemon\n{MANAGER}  {LIGHT}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert doctor().output == f"settings: {defaults}\nfindings: 0\n"
    (tmp_path / "conf").mkdir()
    defaults.rename(tmp_path / "conf" / defaults.name)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert f"settings: {tmp_path}/conf/spark-defaults.conf" in doctor().output
    other = tmp_path / "other.conf"
    other.write_text("spark.speculation=true")
    assert "speculation=true" in doctor("--defaults", str(other)).output
    assert doctor("--defaults", str(tmp_path / "none")).exit_code == 2


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ("echo no such library >&2; exit 3", "no such library"),
        ("exit 3", "exit status 3"),
        ("echo hello", "Expecting value"),
    ],
)
def test_a_python_that_does_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, why: str
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", python_that(tmp_path, does))
    said = doctor("--json")
    assert said.exit_code == 1
    found = json.loads(said.output)[0]
    assert found["weight"] == "fails" and "the sources of streams, does not run" in found["what"]
    assert why in found["what"]


def test_a_python_that_lacks_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = python_that(tmp_path, f'exec {sys.executable} -S -E "$@"')
    monkeypatch.setenv("PYSPARK_PYTHON", "nowhere-to-be-found")
    said = doctor()
    assert said.exit_code == 1 and "there is no such command" in said.output
    facts = of_defaults(f"spark.pyspark.python {bare}", os.environ)
    tasks = next(python for python in facts.pythons if python.command == bare)
    assert tasks.purpose == "tasks" and tasks.versions["eoslog"] is None is tasks.versions["pyspark"]


def test_java_is_looked_for_where_spark_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert of_defaults("", {**os.environ, "JAVA_HOME": str(tmp_path)}).java is None
    assert of_defaults("", os.environ).java is not None


def test_lines_of_a_defaults_file() -> None:
    text = "# a comment\n\n spark.a   b c \nspark.d=e\nspark.f: g\nspark.h\n"
    assert parse_defaults(text) == {"spark.a": "b c", "spark.d": "e", "spark.f": "g", "spark.h": ""}


def test_a_session_that_runs(spark: SparkSession) -> None:
    found = examine(spark)
    assert ["local disk" in one.what for one in found] == [True], found
