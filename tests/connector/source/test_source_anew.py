"""Topics that come, go, and come again under the same name: noticed by their ids, over restarts, too."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eoslog.connector.offsets.offsets import from_json, ids_from_json, to_json
from eoslog.connector.offsets.plan import Range, losses
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.errors import DataLoss
from tests.connector.source.test_source_stream import (
    Sink,
    planned,
    reader,
    run,
    start,
    stored_offsets,
    wait_for,
)
from tests.connector.stock_kafka import Kafka, bare

NO_LIMIT = ReadAllAvailable()


def test_ids_are_beside_the_offsets_and_no_part_of_them() -> None:
    stored = json.loads(json.dumps(to_json({("t", 0): 5, ("u", 1): 7}, {"t": "A-b_", "gone": "x"})))
    assert stored == {"t": {"0": 5}, "u": {"1": 7}, "topic-id:t:A-b_": {}}
    assert from_json(stored) == {("t", 0): 5, ("u", 1): 7}
    assert ids_from_json(stored) == {"t": "A-b_"} and ids_from_json({"t": {"0": 5}}) == {}


def test_a_topic_made_anew_is_a_loss_wherever_it_ends() -> None:
    start, end = {("t", 0): 5, ("t", 1): 9}, {("t", 0): 50}
    found = losses(start, end, ({"t": "old"}, {"t": "new"}))
    assert found and str(found).startswith("topic t was deleted and created again") and "old" in str(found)
    assert (found.gone, found.back) == ((), {})
    assert not losses({("t", 0): 5}, end, ({}, {"t": "new"})), "offsets that Spark's own source stored"
    assert not losses({("t", 0): 5}, end, ({"t": "old"}, {})), "a broker that tells no ids"


def test_a_reader_stops_though_the_new_topic_is_longer(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    made = reader(kafka, topic, startingOffsets="earliest")
    stood = made.latestOffset(made.initialOffset(), NO_LIMIT)
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 8)
    with pytest.raises(DataLoss, match=f"topic {topic} was deleted and created again.*failOnDataLoss"):
        made.latestOffset(stood, NO_LIMIT)
    with pytest.raises(DataLoss, match="created again"):
        reader(kafka, topic).latestOffset(stood, NO_LIMIT)
    careless = reader(kafka, topic, failOnDataLoss="false")
    end = careless.latestOffset(stood, NO_LIMIT)
    assert bare(end) == {topic: {"0": 8}}
    assert planned(careless, stood, end) == [(0, 0, 8)], "the new topic is read from its beginning"
    with pytest.raises(DataLoss, match="created again"):
        made.partitions(stood, end)


def test_a_line_of_a_checkpoint_whose_topic_was_made_anew(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    line = json.dumps(reader(kafka, topic, startingOffsets="latest").initialOffset())
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 8)
    with pytest.raises(DataLoss, match=f"startingOffsets: topic {topic} was deleted and created again"):
        reader(kafka, topic, startingOffsets=line).initialOffset()
    careless = reader(kafka, topic, startingOffsets=line, failOnDataLoss="false")
    assert bare(careless.initialOffset()) == {topic: {"0": 0}}


def test_a_planned_range_gives_no_row_of_another_topic(kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    made = reader(kafka, topic, startingOffsets="earliest")
    began = made.initialOffset()
    (task,) = made.partitions(began, made.latestOffset(began, NO_LIMIT))
    assert isinstance(task, Range) and task.topic_id
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 3)
    with pytest.raises(DataLoss, match="created again"):
        list(made.read(task))
    assert list(reader(kafka, topic, failOnDataLoss="false").read(task)) == []


@pytest.mark.spark
def test_a_restarted_query_stops(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"old"] * 3)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    sink = Sink()
    run(spark, kafka, sink, tmp_path, **options)
    assert bare(stored_offsets(tmp_path)) == {topic: {"0": 3}}
    kafka.make_anew(topic)
    kafka.put(topic, [b"new"] * 9)
    with pytest.raises(Exception, match=f"topic {topic} was deleted and created again"):
        run(spark, kafka, sink, tmp_path, **options)
    assert sink.values == [b"old"] * 3
    run(spark, kafka, sink, tmp_path, failOnDataLoss="false", **options)
    assert sink.values == [b"old"] * 3 + [b"new"] * 9


@pytest.mark.spark
def test_a_query_goes_on_from_offsets_without_ids(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """As Spark's own source stored them."""
    topic = kafka.topic()
    kafka.put(topic, [b"one"] * 3)
    sink = Sink()
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    run(spark, kafka, sink, tmp_path, **options)
    for stored in (tmp_path / "offsets").glob("[0-9]*"):
        lines = stored.read_text().splitlines()
        stored.write_text("\n".join([*lines[:-1], json.dumps(bare(json.loads(lines[-1])))]))
    for crc in (tmp_path / "offsets").glob(".*.crc"):
        crc.unlink()
    kafka.put(topic, [b"two"] * 2)
    run(spark, kafka, sink, tmp_path, **options)
    assert sink.values == [b"one"] * 3 + [b"two"] * 2
    assert len(ids_from_json(stored_offsets(tmp_path))) == 1


@pytest.mark.spark
def test_a_pattern_may_match_nothing_yet(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    sink = Sink()
    prefix = kafka.topic()
    options = {"subscribePattern": f"{prefix}-later.*"}
    query = start(spark, kafka, sink, tmp_path, {"processingTime": "100 milliseconds"}, **options)
    try:
        wait_for(query, lambda: query.lastProgress is not None or bool(query.recentProgress))
        kafka.put(kafka.topic(name=f"{prefix}-later-1"), [b"x"] * 4)
        wait_for(query, lambda: len(sink.values) == 4)
    finally:
        query.stop()
