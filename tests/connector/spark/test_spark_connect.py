"""Spark Connect, declarative pipelines, and what Spark gives to no Python data source."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eoslog.connector.spark import driver_folder
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.spark.orders import Orders
from tests.docs.reader import code_of
from tests.kit.program import Program

# -- Connect ---------------------------------------------------------------------------------------
# A query of a Spark Connect client: eoslog is where the server is, and the client knows nothing of it.


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


# -- pipelines -------------------------------------------------------------------------------------
# docs/connect.md's declarative pipeline: run by spark-pipelines, killed, run again, refreshed.


_PAGE = "connect.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker that can be told to keep its answers to itself."""
    with EmbeddedBroker(faults=True) as started:
        yield started


def _run(folder: Path, *more: str) -> Program:
    command, *words = shlex.split(code_of(_PAGE, "spark-pipelines run\n"))
    here = Path(sys.executable).parent
    environment = os.environ | {"PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    return Program([here / command, *words, *more], folder / "log", environment=environment, folder=folder)


def _written(broker: EmbeddedBroker, folder: Path, without: str = "") -> Orders:
    """The page's pipeline in a folder, without a piece of its program."""
    orders = Orders(Kafka(broker.bootstrap))
    spec = code_of(_PAGE, "name: orders").replace("/path/to/storage", f"{folder}/storage")
    orders.write(folder / "spark-pipeline.yaml", spec)
    program = code_of(_PAGE, "from pyspark import pipelines")
    assert without in program
    orders.write(folder / "transformations" / "orders.py", program.replace(without, ""))
    return orders


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_pipeline_is_killed_after_a_decision(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its second batch is decided, and it dies before it has heard so: the next run goes on."""
    orders = _written(broker, tmp_path)
    # A batch has two: its decision, and one for all that it has decided.
    unheard = broker.faults.drop_answer("EndTxn", nth=3, times=0, cut=False)
    with _run(tmp_path) as first:
        first.wait_until("a decision that was not heard of", lambda: unheard.happened > 0)
        assert first.ended is None
    broker.faults.disarm()
    orders.check_some_are_copied()
    with _run(tmp_path) as second:
        assert second.end() == 0, second.tail()
    orders.check_all_are_copied()
    assert (tmp_path / "storage/_checkpoints/orders_upper/upper/0/metadata").exists()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_full_refresh_of_a_named_sink_stops(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Nothing is written; without the new checkpoint the pipeline goes on. A sink cannot be chosen."""
    orders = _written(broker, tmp_path)
    with _run(tmp_path) as first:
        assert first.end() == 0, first.tail()
    with _run(tmp_path, "--full-refresh", "orders_upper") as chosen:
        assert chosen.end() == 0, chosen.tail()
        assert "Flow 'upper' is EXCLUDED" in chosen.log.read_text()
    with _run(tmp_path, *_full_refresh()) as refresh:
        assert refresh.end() != 0, refresh.tail()
        assert "the checkpoint is new, and group orders-upper/offsets holds" in refresh.log.read_text()
    orders.check_all_are_copied()
    _, _, new = shlex.split(code_of(_PAGE, "rm -r"))
    shutil.rmtree(new.replace("/path/to/storage", f"{tmp_path}/storage"))
    with _run(tmp_path) as last:
        assert last.end() == 0, last.tail()
    orders.check_all_are_copied()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_full_refresh_of_a_sink_without_a_name_stops(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As the page says, and it writes all rows again if it is told to."""
    orders = _written(broker, tmp_path, without=', "transactional.id": "orders-upper"')
    with _run(tmp_path) as first:
        assert first.end() == 0, first.tail()
    with _run(tmp_path, *_full_refresh()) as refresh:
        assert refresh.end() != 0, refresh.tail()
        said = refresh.log.read_text()
        assert "as a full refresh of a pipeline makes it" in said
    word = re.findall(r"start\.accepted=(new-checkpoint:\d+)", said)[-1]
    orders.check_all_are_copied()
    program = tmp_path / "transformations" / "orders.py"
    text, sink = program.read_text(), '"topic": '
    assert sink in text
    program.write_text(text.replace(sink, f'"start.accepted": "{word}", {sink}'))
    with _run(tmp_path) as accepted:  # the new checkpoint is there: another refresh would begin a third one
        assert accepted.end() == 0, accepted.tail()
    orders.check_all_are_copied(times=2)


def _full_refresh() -> list[str]:
    return shlex.split(code_of(_PAGE, "spark-pipelines run --full"))[2:]


# -- what Spark refuses ----------------------------------------------------------------------------
# What Spark gives to no Python data source: it says so at the start, and nothing is written.
#
# docs/migrating.md has the nearest thing that can be done instead.


_ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
_ROWS = [b"1", b"2", b"3"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "trigger", "options", "said"),
    [
        ("update", {"realTime": "5 minutes"}, {}, "not in the sink allowlist for Real-Time Mode"),
        (
            "append",
            {"processingTime": "0 seconds"},
            {"asyncProgressTrackingEnabled": "true"},
            "does not support async progress tracking",
        ),
        ("append", {"continuous": "1 second"}, {}, "does not support continuous processing"),
    ],
    ids=["real-time mode", "asynchronous progress tracking", "continuous processing"],
)
def test_it_is_refused_at_the_start(
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    mode: str,
    trigger: dict[str, Any],
    options: dict[str, str],
    said: str,
) -> None:
    source, target = kafka.topic(), kafka.topic()
    kafka.put(source, _ROWS)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    read = {**servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eoslog").options(**read).load().select("value")
    writer = rows.writeStream.format("eoslog").outputMode(mode).trigger(**trigger)
    write = {**servers, "topic": target, "checkpointLocation": str(tmp_path / "checkpoint")}
    with pytest.raises(PySparkException) as refused:
        query = writer.options(**write, **options).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()
    assert said in str(refused.value)
    assert not kafka.rows(target, committed=False)


@pytest.mark.spark
def test_real_time_mode_is_refused_without_its_allowlist(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's message names a setting that skips the list of sinks. The source is refused all the same."""
    source = kafka.topic()
    kafka.put(source, _ROWS)
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eoslog").options(**read).load().select("value")
    writer = rows.writeStream.format("noop").outputMode("update").trigger(realTime="5 minutes")  # type: ignore[call-overload]
    spark.conf.set(_ALLOWLIST, "false")
    try:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(PySparkException) as refused:
            query.awaitTermination(60)
        query.stop()
    finally:
        spark.conf.unset(_ALLOWLIST)
    assert "INPUT_STREAM_NOT_SUPPORTED" in str(refused.value)
