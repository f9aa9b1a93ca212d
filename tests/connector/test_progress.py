"""A query in figures: progress, lag, the line of a micro-batch, metrics for Prometheus and OpenTelemetry."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from shutil import which
from threading import Timer
from typing import Any
from urllib.parse import urlencode

import pytest
from opentelemetry import metrics as metrics_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import QueryProgressEvent
from pyspark.sql.streaming.query import StreamingQuery

from eoslog import metrics
from eoslog.broker.metrics.metrics_server import FAMILIES as OF_BROKER
from eoslog.connector import progress
from eoslog.connector.commit.commands import (
    AwaitMarkers,
    Command,
    Describe,
    End,
    FetchStored,
    ListOngoing,
    Seal,
    StageOffsets,
    run_rules,
)
from eoslog.connector.commit.task_reports import Batch, Decided, Empty, Prepared, Report, Stamp
from eoslog.connector.commit.transactional_ids import Participant, Sink
from eoslog.connector.progress import SourceLag, offsets_behind_latest
from eoslog.connector.spark.processes import identity_of
from eoslog.exporter import FAMILIES as OF_CLUSTER
from eoslog.metrics import BOUNDS, FAMILIES, QueryMetrics, error_name
from eoslog.prometheus import COUNTER, GAUGE, HISTOGRAM
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.broker.security.securitykit import free_ports
from tests.connector.brokers import Kafka
from tests.docs.reader import ROOT, blocks_of
from tests.kit.program import Program, until

# -- progress and lag ------------------------------------------------------------------------------
# What can be told of a query in figures: its progress as Spark has it, the lag reckoned from it, and the
# line of figures a micro-batch that the sink writes.


SINK = Sink("orders/eu")
OWN = ProducerIdentity(7, 0)
STAMP = Stamp(SINK.id, OWN, OWN, 3, 8, Batch("q", 12, "d"))


def prepared(partition: int, rows: int, size: int) -> Prepared:
    who = Participant(f"{SINK.prefix}7.0/0/w.{partition}", ProducerIdentity(20 + partition, 0))
    return Prepared(STAMP, partition, who, rows, (("out", 0), ("out", partition)), bytes=size, dead=1)


@pytest.mark.spark
def test_progress_of_a_real_query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Rows in and out are Spark's own figures; the log's end comes with reportLatestOffset."""
    source, target = kafka.topic(2), kafka.topic(2)
    kafka.put(source, [b"a"] * 50, 0)
    kafka.put(source, [b"b"] * 30, 1)
    frame = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
    frame = frame.option("subscribe", source).option("startingOffsets", "earliest")
    rows = frame.option("maxOffsetsPerTrigger", 40).load().select("value")
    writer = rows.writeStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
    writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = writer.option("progress.log", "true")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    reports = query.recentProgress
    assert [report["numInputRows"] for report in reports] == [40, 40]
    assert [report["sink"]["numOutputRows"] for report in reports] == [40, 40]
    first, last = (json.loads(report.json)["sources"][0] for report in reports)
    assert first["latestOffset"] == last["latestOffset"] == {source: {"0": 50, "1": 30}}
    assert last["endOffset"][source] == {"0": 50, "1": 30}
    assert not first.get("metrics"), "Spark has figures of Python sources now: give it ours"
    assert offsets_behind_latest(reports[0]) == [SourceLag(15, 25, 20.0)]
    assert offsets_behind_latest(query.lastProgress) == [SourceLag(0, 0, 0.0)]  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [False, True])
def test_lag_of_sources_that_tell_and_of_those_that_do_not(text: bool) -> None:
    def told(offsets: dict[str, Any]) -> Any:
        return json.dumps(offsets) if text else offsets

    here = {"t": {"0": 5, "1": 9}, "topic-id:t:AAAA": {}}
    there = {"t": {"0": 15, "1": 9, "2": 100}}
    ends: list[dict[str, Any]] = [here, here, {"files": 3}, {}, here]
    latests: list[dict[str, Any] | None] = [there, None, {"files": 9}, there, {"u": {"0": 4}}]
    sources = [
        {"endOffset": told(end), "latestOffset": None if latest is None else told(latest)}
        for end, latest in zip(ends, latests, strict=True)
    ]
    found = offsets_behind_latest({"sources": sources})
    assert found == [SourceLag(0, 10, 5.0), None, None, None, None]


def test_figures_of_a_batch(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    reports: list[Report | None] = [prepared(0, 100, 5_000), prepared(1, 20, 700), Empty(STAMP, 2)]
    with caplog.at_level("INFO", "eoslog.progress"):
        progress.log_progress(progress.figures(SINK, reports, {"seal": 1.26, "finish": 2.0}, 3), loud=True)
    line = capsys.readouterr().err
    assert line.startswith(progress.HEAD) and line.count("\n") == 1
    assert json.loads(line.removeprefix(progress.HEAD)) == {
        "query": "q",
        "batch": 12,
        "sink": "orders/eu",
        "rows": 120,
        "bytes": 5_700,
        "dead": 2,
        "retries": 3,
        "participants": 2,
        "partitions": 2,
        "replayed": False,
        "ms": {"seal": 1.3, "finish": 2.0},
    }
    assert json.loads(caplog.records[0].getMessage())["rows"] == 120


def test_silent_unless_told_and_replays_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    reports: list[Report | None] = [Decided(STAMP, 0, 10), Decided(STAMP, 1, 10)]
    progress.log_progress(progress.figures(SINK, reports, {}), loud=False)
    assert capsys.readouterr().err == ""
    assert progress.figures(SINK, reports, {}) | {"ms": 0} == {
        "query": "q", "batch": 12, "sink": "orders/eu", "rows": 0, "bytes": 0, "dead": 0,
        "retries": 0, "participants": 0, "partitions": 0, "replayed": True, "ms": 0,
    }  # fmt: skip


def test_each_command_belongs_to_a_step() -> None:
    own, other = Participant(SINK.coordinator, OWN), Participant(f"{SINK.prefix}7.0/0/w.0", OWN)
    steps: dict[str, Command[Any]] = {
        "look": FetchStored(SINK.group),
        "seal": Seal((other,)),
        "stage": StageOffsets(own, SINK.group, {}),
        "verify": Describe((own.name, other.name)),
        "decide": End(True, (own,)),
        "finish": End(True, (other,)),
        "abort": End(False, (other,)),
        "clear": ListOngoing(SINK.prefix, asked=True),
        "markers": AwaitMarkers((other.name,)),
    }
    assert {progress.step_of(command, SINK): command for command in steps.values()} == steps
    spent: dict[str, float] = {}

    def rules() -> Any:
        first = yield steps["seal"]
        second = yield steps["finish"]
        return [first, second, (yield steps["finish"])]

    answers = {steps["seal"]: 1, steps["finish"]: 2}
    assert run_rules(rules(), answers.__getitem__, progress.timed(spent, SINK)) == [1, 2, 2]
    assert list(spent) == ["seal", "finish"]


# -- eoslog.metrics --------------------------------------------------------------------------------
# The metrics of an application's queries: what each message and each report of Spark changes in them, and
# what Prometheus and OpenTelemetry read while real queries run, end, fail and start again.


ID = "0b1c"
PAGE = ROOT / "docs" / "monitoring.md"
MONITORING = ROOT / "packaging" / "monitoring"


class Clock:
    """Seconds since 1970, as a test sets them."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def known(clock: Clock) -> QueryMetrics:
    """Metrics of one query that has just begun."""
    found = QueryMetrics(clock)
    found.started(ID, "run-1", "copy")
    return found


def values(known: QueryMetrics, family: str) -> dict[tuple[str, ...], Any]:
    return {labels: value for name, labels, value in known.samples() if name == family}


def report(batch: int, reached: int, end: int | None, **ms: int) -> dict[str, Any]:
    source = {"endOffset": {"t": {"0": reached}}, "latestOffset": None if end is None else {"t": {"0": end}}}
    return {"id": ID, "batchId": batch, "numInputRows": 7, "durationMs": ms, "sources": [source]}


def committed(batch: int, **ms: float) -> dict[str, Any]:
    figures = {"rows": 6, "bytes": 100, "dead": 1, "retries": 2, "replayed": False}
    return {"event": "committed", "lost": 0, "query": ID, "batch": batch, "ms": ms, **figures}


def table_of(what: str) -> str:
    """The table on docs/monitoring.md that is made from the code."""
    found = re.search(rf"<!-- {what}:.*?-->\n(.*?)\n?<!-- end -->", PAGE.read_text(), re.S)
    assert found is not None
    return found[1].strip()


def test_the_page_has_the_table_of_the_code() -> None:
    rows = ["| metric | meaning | normal |", "|---|---|---|"]
    for name, kind, labels, meaning, normal in FAMILIES:
        shown = f"{name}_total" if kind == COUNTER else name
        labelled = f"{shown}{{{','.join(labels)}}}" if labels else shown
        rows.append(f"| `{labelled}` | {kind}: {meaning} | {normal} |")
    assert table_of("metrics") == "\n".join(rows)
    steps = [f"| `{step}` | {what} |" for step, what in metrics.STEPS.items()]
    assert table_of("steps") == "\n".join(["| step | what |", "|---|---|", *steps])


def test_each_sample_has_a_family_and_its_labels(known: QueryMetrics) -> None:
    known.told(committed(0, decide=1))
    known.told({"event": "held", "lost": 0, "every": 60.0, "partitions": [["t", 0]]})
    known.progressed(report(0, 3, 5, addBatch=10, triggerExecution=20))
    known.ended(ID, "eoslog.errors.DecisionGone: no")
    labels = {family.name: len(family.labels) for family in FAMILIES}
    found = {(sample.family, len(sample.labels)) for sample in known.samples()}
    assert found == set(labels.items()) - {
        ("eoslog_query_lag_records", 3),  # the query has ended
        ("eoslog_query_lag_seconds", 3),
    }


def test_the_steps_of_a_batch_add_up_to_its_time(known: QueryMetrics) -> None:
    known.told({"event": "begun", "lost": 0, "query": ID, "batch": 4, "ms": 30.0})
    known.told(committed(4, seal=10.0, decide=20.0, markers=5.0))
    spent = {"latestOffset": 3, "queryPlanning": 4, "getBatch": 1, "walCommit": 8, "commitOffsets": 9}
    known.progressed(report(4, 5, 5, addBatch=165, triggerExecution=190, **spent))
    steps = {step: round(value, 3) for (_, step), value in values(known, "eoslog_query_step_seconds").items()}
    assert steps == {
        "plan": 0.008, "checkpoint": 0.017, "begin": 0.03, "tasks": 0.1, "commit": 0.03, "markers": 0.005,
    }  # fmt: skip
    assert sum(steps.values()) == 0.19
    _, counts, total = values(known, "eoslog_query_batch_seconds")["copy",]
    assert (sum(counts), counts[BOUNDS.index(0.25)], total) == (1, 1, 0.19)


def test_without_a_word_of_the_sink_its_time_is_in_tasks(known: QueryMetrics) -> None:
    known.progressed(report(0, 5, 5, addBatch=165, triggerExecution=190))
    assert values(known, "eoslog_query_step_seconds")["copy", "tasks"] == 0.165


def test_what_the_sink_tells_is_added_up_over_batches_and_runs(known: QueryMetrics, clock: Clock) -> None:
    known.told(committed(0))
    known.ended(ID, None)
    known.started(ID, "run-2", "copy")
    clock.now += 5
    known.told(committed(1) | {"replayed": True})
    known.told({"event": "aborted", "lost": 2, "query": ID, "batch": 2, "tasks": 4})
    sums = {name: values(known, f"eoslog_query_{name}")["copy",] for name in ("rows_written", "bytes_written",
            "dead_letters", "commit_retries", "batches_replayed", "tasks_aborted")}  # fmt: skip
    assert list(sums.values()) == [12, 200, 2, 4, 1, 4]
    assert values(known, "eoslog_query_last_decision_timestamp_seconds") == {("copy",): 1_005}
    assert values(known, "eoslog_metrics_lost_messages") == {(): 2}
    assert values(known, "eoslog_query_info") == {("copy", ID, "run-2"): 1}


def test_the_lag_in_seconds_is_the_age_of_the_first_end_that_is_not_read(
    known: QueryMetrics, clock: Clock
) -> None:
    seen = []
    for reached, end in [(0, 0), (0, 10), (5, 20), (10, 20), (20, 20), (20, 30), (0, 4)]:
        known.progressed(report(1, reached, end))
        place = ("copy", "t", "0")
        now = [values(known, f"eoslog_query_lag_{unit}")[place] for unit in ("records", "seconds")]
        seen.append(tuple(now))
        clock.now += 10
    assert seen == [(0, 0), (10, 0), (15, 10), (10, 10), (0, 0), (10, 0), (4, 0)]
    known.progressed(report(1, 1, None))  # a source that does not say its end leaves it as it was
    assert values(known, "eoslog_query_lag_records") == {("copy", "t", "0"): 4}
    known.ended(ID, None)
    assert values(known, "eoslog_query_lag_records") == {}, "a query that has ended is not behind"


def test_a_source_is_held_back_as_long_as_it_says_so(known: QueryMetrics, clock: Clock) -> None:
    held = {"event": "held", "lost": 0, "every": 60.0, "partitions": [["t", 0]]}
    family = "eoslog_source_held_back_seconds"
    known.told(held)
    assert values(known, family) == {("t", "0"): 60}
    clock.now += 60
    known.told(held)
    assert values(known, family) == {("t", "0"): 120}
    clock.now += 151
    assert values(known, family) == {}
    known.told(held | {"partitions": [["t", 0], ["t", 1]]})
    assert values(known, family) == {("t", "0"): 60, ("t", "1"): 60}
    known.told(held | {"event": "moved"})
    assert values(known, family) == {("t", "1"): 60}


def test_triggers_without_a_batch_are_no_batches(known: QueryMetrics, clock: Clock) -> None:
    clock.now += 1
    known.progressed(report(3, 5, 9, latestOffset=3, triggerExecution=4))
    assert values(known, "eoslog_query_batches") == {("copy",): 0}
    assert values(known, "eoslog_query_batch") == {}
    clock.now += 1
    known.idle(ID)
    assert values(known, "eoslog_query_last_trigger_timestamp_seconds") == {("copy",): 1_002}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("[STREAM_FAILED] ... eoslog.errors.DecisionGone: the decision of batch 3 ...", "DecisionGone"),
        ("[STREAM_FAILED] pyspark.errors.PySparkRuntimeError: eoslog.errors.RowsGone: x", "RowsGone"),
        ("[STREAM_FAILED] ... [USER_RAISED_EXCEPTION] x", "USER_RAISED_EXCEPTION"),
        ("java.lang.OutOfMemoryError: heap", "other"),
    ],
)
def test_an_error_is_named_by_its_class(text: str, name: str, known: QueryMetrics) -> None:
    known.ended(ID, text)
    assert values(known, "eoslog_query_error") == {("copy", name): 1}
    assert values(known, "eoslog_query_failures") == {("copy",): 1}
    assert error_name(text) == name
    known.started(ID, "run-2", "copy")
    assert values(known, "eoslog_query_error") == {}


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
def test_messages_are_heard_of_this_user_and_this_application(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[Any] = []
    mine = identity_of(os.getpid())
    monkeypatch.setattr(progress, "driver_process", lambda: mine)
    progress.tell("begun", batch=0)  # nobody listens, and nothing happens
    hearing = metrics._Hearing(os.getpid(), heard.append)
    with pytest.raises(OSError, match="in use"):
        metrics._Hearing(os.getpid(), heard.append)
    progress.tell("begun", batch=1)
    hearing.close()
    assert heard == [{"event": "begun", "lost": 0, "batch": 1}]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as full:  # bound, and read by nobody
        full.bind(progress.address(mine))
        for batch in range(1_000):
            progress.tell("begun", batch=batch)
    again = metrics._Hearing(os.getpid(), heard.append)
    progress.tell("begun", batch=2)
    again.close()
    assert heard[-1]["batch"] == 2
    assert 900 < heard[-1]["lost"] < 1_000


def scrape(served: metrics.Served) -> dict[str, dict[tuple[str, ...], float]]:
    with urllib.request.urlopen("http://{}:{}/metrics".format(*served.address)) as answer:
        text = answer.read().decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def rows_of(spark: SparkSession, kafka: Kafka, topic: str) -> DataFrame:
    frame = spark.readStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest")
    return frame.option("maxOffsetsPerTrigger", 40).load()


def copied(rows: DataFrame, kafka: Kafka, name: str, folder: Path, **options: str) -> StreamingQuery:
    writer = rows.writeStream.format("eoslog").option("kafka.bootstrap.servers", kafka.bootstrap)
    writer = writer.queryName(name).options(checkpointLocation=str(folder / name), **options)
    return writer.trigger(availableNow=True).start()


@pytest.mark.spark
def test_prometheus_reads_what_real_queries_do(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report comes with one question to the JVM: PySpark's way to read it takes 26 ms of the driver's CPU
    for each micro-batch."""
    monkeypatch.delattr(QueryProgressEvent, "fromJObject")
    source, target, dead = kafka.topic(2), kafka.topic(2), kafka.topic(1)
    kafka.put(source, [b"a"] * 50, 0)
    kafka.put(source, [b"b"] * 30, 1)
    provider = MeterProvider([reader := InMemoryMetricReader()])
    with pytest.raises(ValueError, match="HOST:PORT"):
        metrics.serve(spark, "9187")
    page = dict.fromkeys(("served", "watch"))
    first, second = (block.code for block in blocks_of(PAGE) if block.language == "python")
    exec(first.replace("9187", "0"), {"spark": spark}, page)
    served: Any = page["served"]
    try:
        with pytest.raises(RuntimeError, match="watched already"):
            metrics.instrument(spark, provider)
        rows = rows_of(spark, kafka, source).selectExpr("value", "if(value = 'b', 'odd', null) deadletter")
        query = copied(rows, kafka, "copy", tmp_path, topic=target, **{"deadletter.topic": dead})
        assert query.awaitTermination(200)
        until(lambda: scrape(served)["eoslog_query_running"]["copy",] == 0)
        found = scrape(served)
        counts = {name: found[f"eoslog_query_{name}_total"]["copy",] for name in ("batches", "rows_read",
                  "rows_written", "dead_letters", "failures", "tasks_aborted")}  # fmt: skip
        assert list(counts.values()) == [2, 80, 80, 30, 0, 0]
        assert found["eoslog_query_batch"]["copy",] == 1
        assert found["eoslog_query_batch_seconds_count"]["copy",] == 2
        steps = found["eoslog_query_step_seconds_total"]
        assert all(steps["copy", step] > 0 for step in metrics.STEPS if step != "markers"), steps
        whole = found["eoslog_query_batch_seconds_sum"]["copy",]
        assert 0.7 * whole < sum(steps.values()) <= 1.05 * whole
        assert found["eoslog_metrics_lost_messages_total"][()] == 0

        kafka.put(source, [b"c"] * 10, 0)
        again = copied(rows_of(spark, kafka, source).select("value"), kafka, "copy", tmp_path, topic=target)
        assert again.awaitTermination(200)
        raising = rows_of(spark, kafka, source).selectExpr("cast(raise_error('x') AS string) value")
        failing = copied(raising, kafka, "ill", tmp_path, topic=target)
        with pytest.raises(StreamingQueryException):
            failing.awaitTermination(200)
        until(lambda: scrape(served)["eoslog_query_running"].get(("ill",)) == 0)
        found = scrape(served)
        assert found["eoslog_query_rows_written_total"] == {("copy",): 90, ("ill",): 0}
        assert found["eoslog_query_failures_total"]["ill",] == 1
        assert found["eoslog_query_tasks_aborted_total"]["ill",] > 0
        assert found["eoslog_query_error"] == {("USER_RAISED_EXCEPTION", "ill"): 1}
    finally:
        served.close()

    metrics_api.set_meter_provider(provider)
    exec(second, {"spark": spark}, page)
    watch: Any = page["watch"]
    try:
        kafka.put(source, [b"d"] * 10, 0)
        third = copied(rows_of(spark, kafka, source).select("value"), kafka, "copy", tmp_path, topic=target)
        assert third.awaitTermination(200)
        until(lambda: open_telemetry(reader)["eoslog_query_running"] == {"copy": 0})
        told = open_telemetry(reader)
        assert told["eoslog_query_rows_written"] == {"copy": 10}
        assert {family.name for family in FAMILIES} - told.keys() == {
            "eoslog_query_error", "eoslog_query_lag_records", "eoslog_query_lag_seconds",
            "eoslog_source_held_back_seconds",
        }  # fmt: skip
    finally:
        watch.close()


def open_telemetry(reader: InMemoryMetricReader) -> dict[str, dict[str, float]]:
    data = reader.get_metrics_data()
    return {
        metric.name: {str(dict(point.attributes or {}).get("query")): point.value for point in points(metric)}
        for of_resource in (data.resource_metrics if data else ())
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
    }


def points(metric: Any) -> Iterator[Any]:
    yield from metric.data.data_points


def shown_names() -> set[str]:
    """The names that a scrape of queries and of the bundled broker has, and Prometheus's own."""
    suffixes = {
        COUNTER: ("_total",),
        GAUGE: ("",),
        HISTOGRAM: ("_bucket", "_sum", "_count"),
    }
    families = [(one.name, one.kind) for one in (*FAMILIES, *OF_CLUSTER)] + [
        (name, kind) for name, kind, *_ in OF_BROKER
    ]
    return {name + suffix for name, kind in families for suffix in suffixes[kind]}


@pytest.mark.parametrize("file", sorted(MONITORING.iterdir()), ids=lambda file: file.name)
def test_rules_and_dashboard_name_metrics_that_exist(file: Path) -> None:
    named = set(re.findall(r"\beoslog_[a-z_]+\b", file.read_text()))
    assert len(named) > 5 and not named - shown_names()


def test_each_alert_is_tested_and_said_on_the_page() -> None:
    alerts = re.findall(r"alert: (\w+)", (MONITORING / "alerts.yml").read_text())
    tested = (MONITORING / "alerts_test.yml").read_text()
    fired = set(re.findall(r"alertname: (\w+)\n\s+exp_alerts", tested))
    assert fired == set(re.findall(r"alertname: (\w+)}", tested)) & fired == set(alerts)
    assert re.findall(r"^\| `(Eoslog\w+)` \|", PAGE.read_text(), re.M) == alerts


@pytest.mark.skipif(which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_accepts_the_rules_and_their_tests() -> None:
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=MONITORING, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


NEEDS_PROMETHEUS = pytest.mark.skipif(
    which("prometheus") is None, reason="prometheus is not installed (make test-monitoring)"
)


def asked_at(port: int, path: str, **words: str) -> Any:
    """What the API of a Prometheus on this port answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urlencode(words)}") as answer:
        return json.load(answer)["data"]


def test_the_end_of_a_program_waits_until_an_error_was_read() -> None:
    """For its time at most; not for an end in order, nor for a query that has begun again."""
    known = QueryMetrics()
    known.started(ID, "run-1", "copy")
    known.ended(ID, None)
    assert known.wait_until_shown(0)
    known.started(ID, "run-2", "copy")
    Timer(0.2, known.ended, (ID, "eoslog.errors.RowsGone: x")).start()  # as the program has seen it already
    assert not known.wait_until_shown(0)
    registry = CollectorRegistry()
    registry.register(metrics._Collector(known))
    assert not known.wait_until_shown(0), "nobody has read it by being there"
    Timer(0.2, lambda: list(registry.collect())).start()
    assert known.wait_until_shown(60)
    known.ended(ID, "eoslog.errors.RowsGone: x")
    known.started(ID, "run-3", "copy")
    known.ended(ID, None)
    assert known.wait_until_shown(0)


def test_a_program_that_fails_shows_its_error(tmp_path: Path) -> None:
    """A real program without Spark's queries: its last words are read before it is gone."""
    script = tmp_path / "failing.py"
    script.write_text(
        "import atexit, sys\n"
        "from eoslog.metrics import QueryMetrics, Served, _Collector\n"
        "from prometheus_client import CollectorRegistry, start_http_server\n"
        "class Watch:\n    metrics = QueryMetrics()\n    def close(self): pass\n"
        "registry = CollectorRegistry()\nregistry.register(_Collector(Watch.metrics))\n"
        "server, _ = start_http_server(0, '127.0.0.1', registry)\n"
        "served = Served(Watch(), lambda: None, ('127.0.0.1', server.server_port))\n"
        "atexit.register(served.at_exit, 60)\n"
        "Watch.metrics.started('id', 'run', 'copy')\nWatch.metrics.ended('id', 'eoslog.errors.RowsGone: x')\n"
        "print(server.server_port, flush=True)\nraise SystemExit('the query has failed')\n"
    )
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        time.sleep(1)
        assert program.poll() is None, "it waits"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert b'eoslog_query_error{error="RowsGone",query="copy"} 1.0' in page.read()
        assert program.wait(20) == 1


@NEEDS_PROMETHEUS
def test_a_real_prometheus_answers_each_query_of_the_dashboard(tmp_path: Path) -> None:
    known = QueryMetrics()
    known.started(ID, "run-1", "copy")
    known.started("ill", "run-1", "ill")
    known.ended("ill", "eoslog.errors.RowsGone: x")
    known.told({"event": "held", "lost": 0, "every": 600.0, "partitions": [["t", 0]]})
    registry = CollectorRegistry()
    registry.register(metrics._Collector(known))
    of_broker, port = free_ports(2)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    config = tmp_path / "prometheus.yml"
    config.write_text(prometheus_config({"eoslog": server.server_port, "eoslog-broker": of_broker}))
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")

    asked = partial(asked_at, port)

    def answered(query: str) -> bool:
        batch = next(batches)
        known.told(committed(batch, decide=1) | {"dead": 0})
        known.progressed(report(batch, batch, batch + 3, addBatch=10, triggerExecution=20))
        with contextlib.suppress(OSError):  # it is starting
            return bool(asked("query", query=query)["result"])
        return False

    batches = count()
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    queries = [target["expr"].replace("$query", ".*") for panel in panels for target in panel["targets"]]
    with EmbeddedBroker(config={"metrics.listen": f"127.0.0.1:{of_broker}"}) as broker:
        Kafka(broker.bootstrap).topic()
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as prometheus:
            try:
                for query in queries:
                    until(partial(answered, query), query)
                firing = {alert["labels"]["alertname"] for alert in asked("alerts")["alerts"]}
                assert firing == {"EoslogQueryFailed", "EoslogDecisionLost", "EoslogReadersHeldBack"}
            finally:
                prometheus.terminate()
                server.shutdown()
                server.server_close()
                thread.join()


@NEEDS_PROMETHEUS
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stuck_query_and_readers_that_are_held_back_fire_their_alerts(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """The rules of the repository, with half a minute for ten and a second for two. They end with their
    cause."""
    rules = (MONITORING / "alerts.yml").read_text()
    assert (rules.count("> 600"), rules.count("_back_seconds > 120")) == (1, 2)
    (tmp_path / "alerts.yml").write_text(
        rules.replace("> 600", "> 30").replace("_back_seconds > 120", "_back_seconds > 1")
    )
    source, held, port = kafka.topic(1), kafka.topic(1), free_ports(1)[0]
    for topic in (source, held):
        kafka.put(topic, [b"a"] * 3)
    forgotten = kafka.producer(transactional_id=f"forgotten-{held}", transaction_timeout_ms=900_000)
    forgotten.init_transactions(60)
    forgotten.begin_transaction()
    forgotten.produce(held, b"open")
    forgotten.flush(60)
    goes_on = threading.Event()
    exporter = Program(
        [sys.executable, "-m", "eoslog", "exporter", "--bootstrap-server", kafka.bootstrap,
         "--listen", "127.0.0.1:0"], tmp_path / "exporter.log",
    )  # fmt: skip
    served = metrics.serve(spark, "127.0.0.1:0")
    queries = [
        rows_of(spark, kafka, topic).writeStream.queryName(name)
        .option("checkpointLocation", str(tmp_path / name))
        .foreachBatch(lambda *_, event=event: event.wait(800)).start()
        for name, topic, event in (("stuck", source, goes_on), ("waits", held, set_event()))
    ]  # fmt: skip
    ready = until(lambda: re.search(r"127\.0\.0\.1:(\d+)/metrics", exporter.log.read_text()), "exporter")
    config = tmp_path / "prometheus.yml"
    jobs = {"eoslog": served.address[1], "exporter": int(ready[1])}
    config.write_text(prometheus_config(jobs, tmp_path / "alerts.yml"))
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    prometheus = Program([*words, f"--web.listen-address=127.0.0.1:{port}"], tmp_path / "prometheus.log")

    def firing() -> set[tuple[str, str]]:
        with contextlib.suppress(OSError):  # it is starting
            labels = [one["labels"] for one in asked_at(port, "alerts")["alerts"]]
            return {(one["alertname"], one.get("query", one.get("topic", ""))) for one in labels}
        return set()

    wanted = {
        ("EoslogQueryStuck", "stuck"), ("EoslogReadersHeldBack", held), ("EoslogHeldBackByTransaction", held),
    }  # fmt: skip
    try:
        until(lambda: wanted <= firing(), "the alerts", 400)
        assert firing() == wanted
        goes_on.set()
        forgotten.abort_transaction(60)
        until(lambda: not firing(), "their end", 120)
    finally:
        goes_on.set()
        for query in queries:
            query.stop()
        served.close()
        for program in (prometheus, exporter):
            program.kill()


def set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def prometheus_config(jobs: Mapping[str, int], rules: Path = MONITORING / "alerts.yml") -> str:
    """A configuration that reads these ports of this machine each second."""
    scraped = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for job, port in jobs.items()
    ]
    often = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    return json.dumps({"global": often, "rule_files": [str(rules)], "scrape_configs": scraped})
