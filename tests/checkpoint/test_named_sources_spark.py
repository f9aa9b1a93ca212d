"""Edits of checkpoints of version 2 of the offset log: of queries whose sources have names (Spark's source
evolution), killed in a real Spark. make test-checkpoint runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.checkpoint.edited_query import A_BATCH, NEXT, PARTITIONS, STATES, EditedQuery, fill
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class Named(EditedQuery):
    """Two sources with names, each of a topic."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        super().__init__(spark, kafka, folder)
        self.second = kafka.topic(PARTITIONS)
        fill(kafka, self.second, "second")

    def rows(self) -> DataFrame:
        """Those of both."""
        return self._source("left", self.source).union(self._source("right", self.second))

    def _source(self, name: str, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("eoslog").options(**self._cluster()).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", A_BATCH)
        return reader.name(name).load().select("key", "value")

    def audited(self, source: str | None = None) -> dict[str, int]:
        """What has become of the rows of both topics."""
        both = [super(Named, self).audited(topic) for topic in (self.source, self.second)]
        return {name: sum(one[name] for one in both) for name in both[0]}


@pytest.fixture
def named(spark: SparkSession, hasty: Kafka, tmp_path: Path) -> Iterator[Named]:
    before = spark.conf.get(EVOLUTION)
    spark.conf.set(EVOLUTION, "true")
    yield Named(spark, hasty, tmp_path)
    spark.conf.set(EVOLUTION, before or "false")


@pytest.mark.parametrize("state", STATES)
def test_an_edit_of_named_sources(named: Named, state: str) -> None:
    """It is shown by their names, taken back, and made: then the audit counts what was foretold."""
    named.bring_to(state)
    before = named.shown()
    assert before["offset_log"] == "v2" and before["next_start"].startswith(NEXT[state])
    assert {one["source"] for one in before["partitions"]} == {"left", "right"}
    named.edit("rewind", "--to-batch", "0")
    assert named.command("undo").exit_code == 0
    assert named.shown()["partitions"] == before["partitions"]
    foretold = named.edit("rewind", "--by", "17")
    assert foretold["doubled"] > 0 == foretold["lost"]
    assert named.command("check").exit_code == 0
    assert named.run() == ""
    assert named.audited() == foretold


def test_a_fork_of_named_sources(named: Named, tmp_path: Path) -> None:
    named.bring_to("stopped")
    fill(named.kafka, named.second, "other")
    copy, doubled = named.fork(tmp_path / "new")
    assert [copy.run(), named.run()] == ["", ""]
    assert named.audited() == {"doubled": doubled, "lost": 0}
