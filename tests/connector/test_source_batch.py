"""`spark.read.format("eoslog")` against a real broker: the rows are those a stock consumer reads."""

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from stock_kafka import Kafka

pytestmark = pytest.mark.spark


def load(spark: SparkSession, kafka: Kafka, **options: Any) -> DataFrame:
    return (
        spark.read.format("eoslog")
        .option("kafka.bootstrap.servers", kafka.bootstrap)
        .options(**{name.replace("__", "."): value for name, value in options.items()})
        .load()
    )


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
    rows = collected(frame)
    assert len(rows) == 3_000
    assert rows == kafka.rows(topic, 3)
    assert {r.topic for r in frame.select("topic").distinct().collect()} == {topic}
