"""What a version of PySpark has is known in one place, and what it lacks is said."""

import os
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import eoslog
from eoslog.connector.options.source_options import source_options
from eoslog.connector.source import reader
from eoslog.connector.spark import versions
from tests.kit.program import ROOT
from tests.versions.sparks import SPARKS

PACKAGE = Path(eoslog.__file__).parent
ASKS = re.compile(
    r"pyspark\.__version__|pyspark\.sql\.streaming\.datasource|datasource_internal|DataSourceStreamArrowWriter"
    r"|to_arrow_schema|hasattr\(\w*DataSource"
)


def test_nothing_else_asks_what_pyspark_has() -> None:
    files = {path.resolve() for room in (PACKAGE, *PACKAGE.iterdir()) for path in room.rglob("*.py")}
    assert len(files) > 300
    assert [path.name for path in sorted(files) if ASKS.search(path.read_text())] == ["versions.py"]


def test_each_feature_begins_with_a_version_and_says_what_is_before() -> None:
    for one in versions.FEATURES.values():
        assert one.since in versions.VERSIONS
        assert bool(one.before) == (one.since != versions.OLDEST), one


@pytest.mark.parametrize("script", [".ci/run", ".github/workflows/check.yml"])
def test_a_check_of_the_whole_has_the_oldest_pyspark(script: str) -> None:
    """tests/versions/test_sparks.py copies a topic with each PySpark that is here."""
    line = re.escape(versions.OLDEST)
    assert re.search(rf"make \.peers/pyspark-{line}\.\d+\b", (ROOT / script).read_text())


def test_filters_that_this_pyspark_does_not_push_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reader, "PUSHES_FILTERS", False)
    given = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
    made = reader.BatchReader(source_options(given, stream=False))
    assert not hasattr(made, "pushFilters") or "pushFilters" not in vars(made)
    assert not caplog.messages
    reader.BatchReader(source_options({**given, "filter.push.down": "true"}, stream=False))
    assert "filter.push.down=true has no effect" in caplog.text


@pytest.mark.parametrize("spark", SPARKS)
def test_no_setting_gives_a_source_more_time_to_start(spark: str) -> None:
    """What errors/start.md says of "Python worker failed to connect back"."""
    jars = (SPARKS[spark] or Path(pyspark.__file__).parents[1]) / "pyspark" / "jars"
    with zipfile.ZipFile(jars / f"spark-core_2.13-{spark}.jar") as jar:
        factory = jar.read("org/apache/spark/api/python/PythonWorkerFactory.class")
        known = jar.read("org/apache/spark/internal/config/Python$.class")
    assert b"\x05" + struct.pack(">q", 10_000) in factory and b"worker to connect back" in factory
    settings = re.findall(rb"spark\.python\.[\w.]+", known)
    assert settings and not [one for one in settings if b"connect" in one or b"start" in one]


@pytest.mark.parametrize("spark", SPARKS)
def test_nothing_of_eoslog_is_imported_until_a_source_has_started(spark: str, tmp_path: Path) -> None:
    """The same page. Nobody listens where this process wants to connect."""
    tells = {"PYTHONPATH": str(SPARKS[spark] or ""), "PYTHON_WORKER_FACTORY_PORT": "1"}
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "pyspark.sql.streaming.python_streaming_source_runner",
    ]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | tells | {"PYTHON_WORKER_FACTORY_SECRET": "none"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "Connection refused" in ended.stderr, ended.stderr[-2000:]
    imported = {
        line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if "import time:" in line
    }
    assert "pyspark.sql" in imported and not {name for name in imported if name.startswith("eoslog")}
