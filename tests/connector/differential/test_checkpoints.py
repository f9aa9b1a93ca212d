"""A query of one connector goes on as the other's from the same checkpoint, and back."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.connector.differential.both import outcome
from tests.connector.differential.test_streams import ends_of, run
from tests.connector.stock_kafka import Kafka, bare

pytestmark = pytest.mark.kafka


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
