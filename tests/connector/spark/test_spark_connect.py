"""A query of a Spark Connect client: eoslog is where the server is, and the client knows nothing of it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from eoslog.connector.spark import driver_folder
from tests.connector.stock_kafka import Kafka

_APP = Path(__file__).with_name("connect_app.py")


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_a_copy_whose_server_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    """The server dies in the midst of the copy, the next one goes on: each row is there once."""
    source, target, sent = kafka.topic(2), kafka.topic(), [b"%d" % at for at in range(600)]
    kafka.put(source, sent[:300], partition=0)
    kafka.put(source, sent[300:], partition=1)
    words = [sys.executable, str(_APP), kafka.bootstrap, source, target]
    started = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, **started}, "text": True}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings) as client:
        while not kafka.rows(target):
            assert client.poll() is None, client.stdout and client.stdout.read()
            time.sleep(0.2)
        servers = [one for one in psutil.Process(client.pid).children(recursive=True) if one.name() == "java"]
        assert servers
        for server in servers:
            server.send_signal(signal.SIGKILL)
        client.kill()
    assert 0 < len(kafka.rows(target)) < len(sent)
    noted = [note for note in (tmp_path / "checkpoint" / "commits").glob("*") if note.name.isdigit()]
    done = subprocess.run(words, capture_output=True, timeout=200, check=False, **settings)
    assert "copied 600 as pyspark.sql.connect.session" in done.stdout, done.stdout + done.stderr
    assert sorted(row[3] for row in kafka.rows(target)) == sorted(sent)
    (read,) = re.findall(r"^eoslog_query_rows_read_total{.*} (\d+)\.0$", done.stdout, re.M)
    # A kill between the decision of a batch and Spark's note of it has its thirty rows read once more.
    assert int(read) == len(sent) - 30 * len(noted), "a client sees what Spark reports of its queries"


def test_relative_paths_are_taken_from_the_jvms_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as stands_for_the_jvm:
        monkeypatch.setattr(driver_folder, "is_sparks", lambda: True)
        monkeypatch.setattr(driver_folder, "driver_process", lambda: stands_for_the_jvm)
        assert driver_folder.as_spark_takes("./checkpoint") == f"{tmp_path}/./checkpoint"
        for whole in ("/root/checkpoint", "file:/root/checkpoint", "s3://bucket/checkpoint"):
            assert driver_folder.as_spark_takes(whole) == whole
        stands_for_the_jvm.kill()
    assert driver_folder.as_spark_takes("checkpoint") == "checkpoint"


def test_other_processes_take_them_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    assert driver_folder.as_spark_takes("checkpoint") == "checkpoint"
