"""A sink that is refused when a batch is decided: its sentence is what Python shows, and it starts again."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka

pytestmark = pytest.mark.spark

SENTENCE = "another driver owns the sink"


def test_the_sentence_of_a_refused_decision(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    kafka = Kafka(broker.bootstrap)
    source, target = kafka.topic(1), kafka.topic(1)
    kafka.put(source, [b"a", b"b"])
    bootstrap, coordinator, once = broker.bootstrap, Sink(f"sink-{target}").coordinator, tmp_path / "fenced"

    def fenced_meanwhile(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not once.exists():
            with Cluster(ClientConfig(parse_addresses(bootstrap))) as cluster:
                transactions.init_producer_id(cluster, coordinator, 60_000)
            once.touch()
        yield from batches

    def run() -> None:
        rows = spark.readStream.format("eoslog").option("subscribe", source)
        rows = rows.option("kafka.bootstrap.servers", bootstrap).option("startingOffsets", "earliest")
        frame = rows.load().select("value").mapInArrow(fenced_meanwhile, "value binary")
        writer = frame.writeStream.format("eoslog").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", target).option("transactional.id", f"sink-{target}")
        writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    with pytest.raises(StreamingQueryException) as refused:
        run()
    said = str(refused.value)
    assert "perform commit" in said and SENTENCE in said and "Writing job failed" not in said
    run()
    assert sorted(row[3] for row in kafka.rows(target, 1)) == [b"a", b"b"]
