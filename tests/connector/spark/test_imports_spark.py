"""Each of Spark's Python processes imports what it needs of what is slow to import, and no more.

Spark begins six of them for a streaming query, one after another, and new ones for the next.
"""

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.spark
_HERE = Path(__file__).parent
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
