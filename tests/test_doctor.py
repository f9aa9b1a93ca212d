"""`eoslog doctor`: its rules, and the command."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from eoslog.cli import main
from eoslog.doctor import examine
from eoslog.doctor.facts import Facts, Python, of_defaults, parse_defaults
from eoslog.doctor.rules import DAEMON, LIGHT, MANAGER, Weight, findings_of

# -- rules ---------------------------------------------------------------------------------------
# Each thing that can be wrong with a session is found, and nothing is found where nothing is wrong.

FAILS, SLOW, KNOW = Weight

VERSIONS = {
    "python": "3.11.7", "pyspark": "4.3.0", "eoslog": "0.1.0", "pyarrow": "21.0.0", "numpy": "2.3.0",
    "google-crc32c": "1.7.1",
}  # fmt: skip
OLDER = {**VERSIONS, "pyspark": "3.5.0"}
WELL = Facts(
    settings={"spark.python.daemon.module": DAEMON, MANAGER: LIGHT},
    here="/here/python",
    versions=VERSIONS,
    pythons=(Python("/there/eoslog-python", "tasks and the sources of streams", VERSIONS),),
    java="/usr/bin/java",
    acknowledges_at_once=True,
)


def with_python(**changed: Any) -> Facts:
    return replace(WELL, pythons=(replace(WELL.pythons[0], **changed),))


def with_versions(**changed: str | None) -> Facts:
    named = {name.replace("_", "-"): version for name, version in changed.items()}
    return with_python(versions={**VERSIONS, **named})


def with_setting(name: str, value: str) -> Facts:
    return replace(WELL, settings={**WELL.settings, name: value})


def test_a_session_that_is_well() -> None:
    assert findings_of(WELL) == []
    assert findings_of(with_versions(python="3.11.2")) == []
    assert findings_of(with_setting("spark.log.level", "info")) == []
    assert findings_of(with_setting("spark.speculation", "false")) == []
    assert findings_of(with_python(command="/there/python", has_hook=True)) == []


@pytest.mark.parametrize(
    ("facts", "weight", "what", "do"),
    [
        (
            with_python(versions={}, wrong="no such command"),
            FAILS,
            "/there/eoslog-python.*no such command",
            "/here/python",
        ),
        (with_versions(pyarrow=None), FAILS, "tasks.*has no pyarrow$", "pip install 'pyarrow>=17'"),
        (
            replace(with_versions(pyspark="3.5.0"), versions=OLDER),
            FAILS,
            "pyspark 3.5.0, which is too old",
            "'pyspark>=4.0'",
        ),
        (
            with_versions(numpy=None, google_crc32c=None),
            FAILS,
            "no numpy, no google-crc32c",
            "'numpy>=1.26' 'google",
        ),
        (with_versions(eoslog=None), FAILS, "has no eoslog", "install eoslog;"),
        (
            with_versions(python="3.12.1"),
            FAILS,
            "this is Python 3.11.7, and .*Python 3.12.1",
            "one environment",
        ),
        (with_versions(eoslog="0.2.0"), FAILS, "this is eoslog 0.1.0, and .*eoslog 0.2.0", "one environment"),
        (replace(WELL, java=None), FAILS, "no java", "JAVA_HOME"),
        (with_setting("spark.python.daemon.module", "my.daemon"), SLOW, "module=my.daemon: Python", "leave"),
        (with_setting("spark.python.use.daemon", "False"), SLOW, "use.daemon=false: Python", "leave"),
        (with_setting("spark.task.cpus", "2"), SLOW, "task.cpus=2: NumPy", "leave"),
        (with_python(has_folder=False), SLOW, "from Spark's zip", "pip install pyspark==4.3.0"),
        (with_python(command="/there/python"), SLOW, "imports everything", "PYTHON to /here/eoslog-python "),
        (with_setting("spark.python.worker.reuse", "false"), SLOW, "worker.reuse=false", "leave"),
        (replace(WELL, acknowledges_at_once=False), SLOW, "QUICKACK", "unix.domain.socket.enabled=true"),
        (with_setting("spark.log.level", "debug"), SLOW, "log.level=DEBUG", "WARN"),
        (with_setting("spark.sql.streaming.checkpointLocation", "/c"), KNOW, "does not reach", "option"),
        (with_setting(MANAGER, ""), KNOW, "local disk.*dozen processes", LIGHT),
        (with_setting("spark.speculation", "true"), KNOW, "speculation=true", "rows stay exactly once"),
    ],
)
def test_one_thing_is_wrong(facts: Facts, weight: Weight, what: str, do: str) -> None:
    (found,) = findings_of(facts)
    assert found.weight is weight
    assert re.search(what, found.what), found
    assert re.search(do, found.do), found


def test_sockets_of_the_session_need_no_acknowledgement() -> None:
    settings = {**WELL.settings, "spark.python.unix.domain.socket.enabled": "true"}
    assert findings_of(replace(WELL, settings=settings, acknowledges_at_once=False)) == []


def test_the_worst_comes_first() -> None:
    facts = replace(with_setting("spark.speculation", "true"), java=None, acknowledges_at_once=False)
    assert [found.weight for found in findings_of(facts)] == [FAILS, SLOW, Weight.KNOW]
    assert str(findings_of(facts)[0]).startswith("fails  no java")


# -- the command ---------------------------------------------------------------------------------
# `eoslog doctor` looks at files, the environment and the Pythons that Spark would start; or at a session.


@pytest.fixture
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


@pytest.mark.usefixtures("environment")
def test_the_environment_of_these_tests() -> None:
    said = doctor()
    assert said.exit_code == 0
    assert re.fullmatch(r"settings: none\nknow   on a local disk .*\n .*\nfindings: 1\n", said.output)


@pytest.mark.usefixtures("environment")
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


@pytest.mark.usefixtures("environment")
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


@pytest.mark.usefixtures("environment")
def test_a_python_that_lacks_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare = python_that(tmp_path, f'exec {sys.executable} -S -E "$@"')
    monkeypatch.setenv("PYSPARK_PYTHON", "nowhere-to-be-found")
    said = doctor()
    assert said.exit_code == 1 and "there is no such command" in said.output
    facts = of_defaults(f"spark.pyspark.python {bare}", os.environ)
    tasks = next(python for python in facts.pythons if python.command == bare)
    assert tasks.purpose == "tasks" and tasks.versions["eoslog"] is None is tasks.versions["pyspark"]


@pytest.mark.usefixtures("environment")
def test_java_is_looked_for_where_spark_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert of_defaults("", {**os.environ, "JAVA_HOME": str(tmp_path)}).java is None
    assert of_defaults("", os.environ).java is not None


@pytest.mark.usefixtures("environment")
def test_lines_of_a_defaults_file() -> None:
    text = "# a comment\n\n spark.a   b c \nspark.d=e\nspark.f: g\nspark.h\n"
    assert parse_defaults(text) == {"spark.a": "b c", "spark.d": "e", "spark.f": "g", "spark.h": ""}


@pytest.mark.usefixtures("environment")
def test_a_session_that_runs(spark: SparkSession) -> None:
    found = examine(spark)
    assert ["local disk" in one.what for one in found] == [True], found
