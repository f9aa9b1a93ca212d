"""Checkpoints of Spark's own kafka source, edited by `eoslog checkpoint`: with Spark's sink, which keeps no
decisions, and with eoslog's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.checkpoint.edited_query import A_BATCH, EditedQuery, fill
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]


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
    assert said.exit_code == 1 and "whether its rows are written is not known" in said.output
    assert query.run("kafka") == ""
    assert query.shown()["next_start"].startswith("go on")
