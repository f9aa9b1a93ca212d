"""What can be told of a query in figures: its progress as Spark has it, the lag reckoned from it, and the
line of figures a micro-batch that the sink writes."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

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
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.stock_kafka import Kafka

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
