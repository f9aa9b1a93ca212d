"""Spark 4.2 cannot start a query again whose sources have names, whatever its sources and sink are."""

import time
from pathlib import Path

import pyspark
import pytest
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.connector.checkpoint.test_named_sources_spark import EVOLUTION, FORMAT

pytestmark = pytest.mark.spark
DONE_SECONDS = 60


def started(spark: SparkSession, checkpoint: Path) -> StreamingQuery:
    """Spark's own source and sink; the source has a name."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).name("ticks").load()
    return ticks.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


@pytest.mark.skipif(not pyspark.__version__.startswith("4.2."), reason="later versions of Spark can")
def test_spark_cannot_start_it_again(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(EVOLUTION, "true")
    spark.conf.set(FORMAT, "2")
    try:
        query, until = started(spark, tmp_path), time.monotonic() + DONE_SECONDS
        while not (tmp_path / "commits" / "0").exists() and time.monotonic() < until:
            time.sleep(0.1)
        query.stop()
        assert (tmp_path / "offsets" / "0").read_text().startswith("v2\n")
        with pytest.raises(StreamingQueryException, match=r"None\.get"):
            started(spark, tmp_path).awaitTermination(DONE_SECONDS)
    finally:
        spark.conf.unset(EVOLUTION)
        spark.conf.unset(FORMAT)
