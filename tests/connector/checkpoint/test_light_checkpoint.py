"""The file manager that docs/starts.md recommends for checkpoints on a local disk."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eoslog.doctor.rules import LIGHT, MANAGER
from tests.connector.stock_kafka import Kafka


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_checkpoint_goes_on_under_either(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """At each restart the other one; every row is there once. Spark does take the one that it is told."""
    source, target, sent = kafka.topic(2), kafka.topic(), list[bytes]()
    to, place = {"kafka.bootstrap.servers": kafka.bootstrap}, tmp_path / "checkpoint"
    try:
        for number in range(4):
            spark.conf.unset(MANAGER)
            if number % 2:
                spark.conf.set(MANAGER, LIGHT)
            more = [b"%d" % (number * 10 + at) for at in range(10)]
            kafka.put(source, more, partition=number % 2)
            sent += more
            read = spark.readStream.format("eoslog").options(**to, startingOffsets="earliest")
            writer = read.option("subscribe", source).load().select("value").writeStream.format("eoslog")
            writer = writer.options(**to, topic=target, checkpointLocation=str(place))
            assert writer.trigger(availableNow=True).start().awaitTermination(300)
            assert sorted(row[3] for row in kafka.rows(target)) == sorted(sent)
        spark.conf.set(MANAGER, f"{LIGHT}er")
        with pytest.raises(Exception, match=f"{LIGHT}er"):
            writer.start().awaitTermination(300)
    finally:
        spark.conf.unset(MANAGER)
