"""Checkpoints that both connectors go on with, edited or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.checkpoint.checkpointkit import A_BATCH, EditedQuery, fill
from tests.connector.differential.both import outcome
from tests.connector.differential.test_differential import ends_of, run
from tests.connector.stock_kafka import Kafka, bare


@pytest.mark.kafka
@pytest.mark.parametrize("limit", [None, "30"])
def test_from_kafka_to_eoslog_and_back(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, limit: str | None
) -> None:
    topic = kafka.topic(2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    if limit is not None:
        options["maxOffsetsPerTrigger"] = limit
    for turn, connector in enumerate(("kafka", "eoslog", "kafka", "eoslog")):
        for partition in (0, 1):
            kafka.put(topic, [b"%d %d" % (turn, i) for i in range(40)], partition)
        rows, _ = run(spark, connector, options, tmp_path)
        values = sorted(row[1] for row in rows)
        assert values == sorted([b"%d %d" % (turn, i) for i in range(40)] * 2), (turn, connector)
    assert bare(ends_of(tmp_path)[-1]) == {topic: {"0": 160, "1": 160}}


@pytest.mark.kafka
def test_a_stream_sink_is_changed(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Source and sink at once, in a query that Spark's connector began."""
    source, target = kafka.topic(2), kafka.topic(2)
    for turn, connector in enumerate(("kafka", "eoslog", "eoslog", "kafka")):
        kafka.put(source, [b"%d %d" % (turn, i) for i in range(40)], turn % 2)
        frame = spark.readStream.format(connector).option("kafka.bootstrap.servers", kafka.bootstrap)
        read = frame.options(subscribe=source, startingOffsets="earliest").load()
        query = read.selectExpr("value").writeStream.format(connector).option("topic", target)
        query = query.option("kafka.bootstrap.servers", kafka.bootstrap)
        query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert query.start().awaitTermination(120)
    values = sorted(row[3] for row in kafka.rows(target, 2))
    assert values == sorted(b"%d %d" % (turn, i) for turn in range(4) for i in range(40))


@pytest.mark.kafka
def test_a_topic_made_anew_is_noticed_by_one_of_them(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for connector in ("kafka", "eoslog"):
        kafka.put(topic, [b"old"] * 5)
        run(spark, connector, options, tmp_path / connector)
        kafka.make_anew(topic)
        kafka.put(topic, [b"new"] * 15)
        found = outcome(lambda c=connector: run(spark, c, options, tmp_path / c)[0])  # type: ignore[misc]
        if connector == "kafka":
            assert found.rows is not None and len(found.rows) < 15, "rows are passed over without a word"
        else:
            assert "created again" in found.refused
        kafka.make_anew(topic)


# -- edited --------------------------------------------------------------------------------------
# Checkpoints of Spark's own kafka source, edited by `eoslog checkpoint`: with Spark's sink, which keeps no
# decisions, and with eoslog's.


class SparksOwn(EditedQuery):
    """From Spark's source to one of the two sinks."""

    def _read(self) -> DataFrame:
        return (
            self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("subscribe", self.source).option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .option("maxOffsetsPerTrigger", A_BATCH).load()
        )  # fmt: skip

    def _write(self, sink: str, **halt: str) -> DataStreamWriter:
        if sink != "kafka":
            return super()._write(sink, **halt)
        return (
            self.rows().writeStream.format("kafka").option("kafka.bootstrap.servers", self.kafka.bootstrap)
            .option("topic", self.target).option("checkpointLocation", str(self.checkpoint))
        )  # fmt: skip


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.parametrize("sink", ["kafka", "eoslog"])
@pytest.mark.parametrize("edit", [("rewind", "--by", "17"), ("skip-to", "--by", "17")])
def test_the_audit_counts_what_was_foretold(
    spark: SparkSession, kafka: Kafka, tmp_path: Path, sink: str, edit: tuple[str, ...]
) -> None:
    query = SparksOwn(spark, kafka, tmp_path)
    assert query.run(sink) == ""
    fill(kafka, query.source, "more")
    shown = query.shown()
    assert shown["offset_log"] == "v1" and shown["transactional_id"] == (
        query.sink if sink == "eoslog" else None
    )
    before = shown["partitions"]
    foretold = query.edit(*edit)
    assert sum(foretold.values()) > 0
    assert query.command("undo").exit_code == 0
    assert query.shown()["partitions"] == before
    assert query.edit(*edit) == foretold
    assert query.command("check").exit_code == 0
    assert query.run(sink) == ""
    assert query.audited() == foretold


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_what_only_the_sink_knows(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Whether a batch that is not noted as done is written: no edit before the query has finished it."""
    query = SparksOwn(spark, kafka, tmp_path)
    assert query.run("kafka") == ""
    newest = max(
        (path for path in (query.checkpoint / "commits").glob("[0-9]*")), key=lambda at: int(at.name)
    )
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink()
    assert query.shown()["next_start"].startswith("run again")
    said = query.command("rewind", "--by", "5", "--accept-duplicates", "99")
    assert said.exit_code == 1 and "of its rows are written is not known" in said.output
    assert query.run("kafka") == ""
    assert query.shown()["next_start"].startswith("go on")
