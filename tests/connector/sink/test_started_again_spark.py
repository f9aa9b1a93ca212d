"""A query is started again in a living application, in a real Spark: every check of a start is made, whatever
the application remembers of the sink, and the first start tells the truth."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from tests.checkpoint.checkpointkit import EditedQuery, fill
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Restarted(EditedQuery):
    """A query that has run to its end, and is started again with other options."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        super().__init__(spark, kafka, folder)
        assert self.run() == ""
        fill(kafka, self.source, "more")

    def is_exact(self) -> bool:
        return self.run() == "" and self.audited() == {"doubled": 0, "lost": 0}


@pytest.fixture
def query(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Restarted:
    return Restarted(spark, kafka, tmp_path)


def test_another_group_is_noted(query: Restarted) -> None:
    """A query that follows this one would otherwise look into the former group."""
    query.group = f"another-{query.group}"
    assert query.is_exact()
    noted = NotedSink.read(Checkpoint.at(str(query.checkpoint)))
    assert noted is not None and noted.group == query.group


def test_a_state_topic_that_would_expire_is_refused(query: Restarted) -> None:
    said = query.run(state_topic=query.kafka.topic(cleanup_policy="delete"))
    assert "its cleanup.policy is delete" in said
    assert query.is_exact()


def test_saves_that_are_too_rare_for_the_source_are_refused(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("one")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": kafka.topic()}
    options |= {"transactional.id": f"sink-{tmp_path}", "checkpointLocation": str(tmp_path / "checkpoint")}

    def run(**more: str) -> None:
        given = options | {name.replace("_", "."): text for name, text in more.items()}
        writer = spark.readStream.text(str(tmp_path / "in")).writeStream.format("eoslog").options(**given)
        assert writer.trigger(availableNow=True).start().awaitTermination(400)

    run()
    (tmp_path / "in" / "2.txt").write_text("two")
    state = kafka.topic(cleanup_policy="compact")
    with pytest.raises(
        StreamingQueryException, match=r"state\.every\.batches=100: the query reads from another"
    ):
        run(state_topic=state, state_every_batches="100")
    run(state_topic=state)
    assert sorted(row[3] for row in kafka.rows(options["topic"], 1)) == [b"one", b"two"]


def test_after_an_edit_the_first_start_goes_on(query: Restarted) -> None:
    foretold = query.edit("rewind", "--to-batch", "1")
    assert foretold["doubled"] > 0
    assert query.run() == ""
    assert query.audited() == foretold


def test_a_copy_has_gone_on_meanwhile(query: Restarted, tmp_path: Path) -> None:
    there, elsewhere, target = query.checkpoint, tmp_path / "copy", query.target
    shutil.copytree(there, elsewhere)
    query.checkpoint, query.target = elsewhere, query.kafka.topic(2)
    assert query.run() == ""
    query.checkpoint, query.target = there, target
    said = query.run()
    assert "CheckpointCopied" in said and str(elsewhere) in said


def test_the_target_was_made_anew_meanwhile(query: Restarted) -> None:
    query.kafka.make_anew(query.target, 2)
    assert "RowsGone" in query.run()


def test_another_query_has_taken_the_sink_meanwhile(query: Restarted, tmp_path: Path) -> None:
    there = query.checkpoint
    query.checkpoint = tmp_path / "another"
    said = query.run()
    assert "start.accepted=" in said, "a new checkpoint under a sink's name is asked about"
    word = said.split("start.accepted=")[-1].split()[0].strip(".;,)")
    assert query.run(start_accepted=word) == ""
    query.checkpoint = there
    assert "TakenOver" in query.run()
