"""`spark.read.format("eoslog")` against a real broker: the rows are those a stock consumer reads."""

import json
import re
from datetime import datetime
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from eoslog.connector.spark.versions import works
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.spark


def load(spark: SparkSession, kafka: Kafka, **options: Any) -> DataFrame:
    return (
        spark.read.format("eoslog")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .options(**{name.replace("__", "."): value for name, value in options.items()})
        .load()
    )


def as_frame(spark: SparkSession, topic: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Rows of a stock consumer in the columns that Spark's Kafka connector has, too."""
    columns = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key: string, value: binary>>"
    )
    found = [
        (key, value, topic, partition, offset, datetime.fromtimestamp(ms / 1000), kind, headers)
        for partition, offset, key, value, kind, ms, headers in rows
    ]
    return spark.createDataFrame(found, columns)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Rows in the shape of `Kafka.rows`."""
    return sorted(
        (
            r.partition,
            r.offset,
            None if r.key is None else bytes(r.key),
            None if r.value is None else bytes(r.value),
            r.timestampType,
            round(r.timestamp.timestamp() * 1000),
            None
            if r.headers is None
            else [(h.key, None if h.value is None else bytes(h.value)) for h in r.headers],
        )
        for r in frame.collect()
    )


def test_rows_equal_the_stock_consumers(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(3)
    producer = kafka.producer(enable_idempotence=True, compression_type="lz4", linger_ms=5)
    for i in range(3_000):
        producer.produce(
            topic,
            None if i % 11 == 0 else b"value %d" % i * (i % 7),
            None if i % 5 == 0 else b"key %d" % (i % 97),
            partition=i % 3,
            timestamp=1_700_000_000_000 + i,
            headers=[("h", b"%d" % i), ("n", None), ("h", b"again")] if i % 4 == 0 else None,
        )
    assert producer.flush(20) == 0
    frame = load(spark, kafka, subscribe=topic, includeHeaders="true")
    rows = kafka.rows(topic, 3)
    assert len(rows) == 3_000
    assert_df_equality(frame, as_frame(spark, topic, rows), ignore_row_order=True)
    split = load(spark, kafka, subscribe=topic, includeHeaders="true", minPartitions="7")
    assert_df_equality(split, frame, ignore_row_order=True)


def test_ranges_by_offset_and_by_assignment(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    for partition in (0, 1):
        kafka.put(topic, [b"%d-%d" % (partition, i) for i in range(50)], partition)
    start, end = {topic: {"0": 10, "1": -2}}, {topic: {"0": 12, "1": -1}}
    frame = load(
        spark, kafka, subscribe=topic, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end),
        minPartitions="6",
    )  # fmt: skip
    assert frame.rdd.getNumPartitions() >= 5
    found = sorted((r.partition, bytes(r.value)) for r in frame.collect())
    assert found == sorted([(0, b"0-10"), (0, b"0-11"), *((1, b"1-%d" % i) for i in range(50))])
    assigned = load(spark, kafka, assign=json.dumps({topic: [1]}))
    assert {r.partition for r in assigned.collect()} == {1}
    assert load(spark, kafka, subscribePattern=f"{topic[:-3]}.*").count() == 100


def test_committed_rows_only_and_ends_without_rows(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    producer = kafka.transactional(topic)
    for number, commit in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, b"%d %d" % (number, i), partition=0)
        assert producer.flush(20) == 0  # abort would drop what has not been sent
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(20) == 0
    both = load(spark, kafka, subscribe=topic, kafka__isolation__level="read_uncommitted")
    assert len(both.collect()) == 401
    committed = collected(load(spark, kafka, subscribe=topic, includeHeaders="true"))
    assert [row[3] for row in committed] == [b"%d %d" % (n, i) for n in (0, 2) for i in range(100)]
    assert committed == kafka.rows(topic)
    # only a marker, only aborted records, only both
    for start, end in ((100, 101), (101, 150), (101, 202), (303, 404)):
        bounds = {"startingOffsets": {topic: {"0": start}}, "endingOffsets": {topic: {"0": end}}}
        frame = load(spark, kafka, subscribe=topic, **{k: json.dumps(v) for k, v in bounds.items()})
        assert frame.collect() == [], (start, end)
    producer.abort_transaction(20)


def test_an_empty_topic_and_a_count(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(2)
    frame = load(spark, kafka, subscribe=topic)
    assert frame.collect() == []
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int>"
    )
    with_headers = load(spark, kafka, subscribe=topic, includeHeaders="true").schema["headers"]
    assert with_headers.dataType.simpleString() == "array<struct<key:string,value:binary>>"
    kafka.put(topic, [b"x"] * 10)
    assert load(spark, kafka, subscribe=topic).count() == 10
    assert frame.count() == (0 if works("range") else 10), "a DataFrame keeps the range that Spark planned"


BAD: list[tuple[dict[str, str], str]] = [
    ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign are both given"),
    ({}, "nothing to read"),
    ({"subscribe": "a", "startingOffsets": '{"a":'}, "give startingOffsets as"),
    ({"subscribe": "no-such-topic"}, "topic 'no-such-topic' does not exist"),
    ({"subscribe": "a", "kafka.bootstrap.servers": "127.0.0.1:1", "kafka.request.timeout.ms": "500"},
     "127.0.0.1:1: Connection refused; check kafka.bootstrap.servers"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "said"), BAD)
def test_bad_input_says_what_to_do(
    spark: SparkSession, kafka: Kafka, options: dict[str, str], said: str
) -> None:
    reader = spark.read.format("eoslog").options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options})
    with pytest.raises(Exception, match=re.escape(said)):
        reader.load().collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, kafka: Kafka) -> None:
    reader = spark.read.format("eoslog").schema("value string")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "t"}
    with pytest.raises(Exception, match="fixed schema"):
        reader.options(**options).load().collect()


def test_offsets_outside_of_the_log(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.put(topic, [b"x"] * 10)
    beyond = {"subscribe": topic, "endingOffsets": json.dumps({topic: {"0": 15}})}
    with pytest.raises(Exception, match=r"has 0 to 10, not 15.*failOnDataLoss"):
        load(spark, kafka, **beyond).collect()
    assert load(spark, kafka, **beyond, failOnDataLoss="false").count() == 10
