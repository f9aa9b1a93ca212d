"""What Spark gives to no Python data source: it says so at the start, and nothing is written.

docs/migrating.md has the nearest thing that can be done instead.
"""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.connector.stock_kafka import Kafka

_ALLOWLIST = "spark.sql.streaming.realTimeMode.allowlistCheck"
_ROWS = [b"1", b"2", b"3"]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("mode", "trigger", "options", "said"),
    [
        ("update", {"realTime": "5 minutes"}, {}, "not in the sink allowlist for Real-Time Mode"),
        (
            "append",
            {"processingTime": "0 seconds"},
            {"asyncProgressTrackingEnabled": "true"},
            "does not support async progress tracking",
        ),
        ("append", {"continuous": "1 second"}, {}, "does not support continuous processing"),
    ],
    ids=["real-time mode", "asynchronous progress tracking", "continuous processing"],
)
def test_it_is_refused_at_the_start(
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    mode: str,
    trigger: dict[str, Any],
    options: dict[str, str],
    said: str,
) -> None:
    source, target = kafka.topic(), kafka.topic()
    kafka.put(source, _ROWS)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap}
    read = {**servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eoslog").options(**read).load().select("value")
    writer = rows.writeStream.format("eoslog").outputMode(mode).trigger(**trigger)
    write = {**servers, "topic": target, "checkpointLocation": str(tmp_path / "checkpoint")}
    with pytest.raises(PySparkException) as refused:
        query = writer.options(**write, **options).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()
    assert said in str(refused.value)
    assert not kafka.rows(target, committed=False)


@pytest.mark.spark
def test_real_time_mode_is_refused_without_its_allowlist(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Spark's message names a setting that skips the list of sinks. The source is refused all the same."""
    source = kafka.topic()
    kafka.put(source, _ROWS)
    read = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eoslog").options(**read).load().select("value")
    writer = rows.writeStream.format("noop").outputMode("update").trigger(realTime="5 minutes")  # type: ignore[call-overload]
    spark.conf.set(_ALLOWLIST, "false")
    try:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        with pytest.raises(PySparkException) as refused:
            query.awaitTermination(60)
        query.stop()
    finally:
        spark.conf.unset(_ALLOWLIST)
    assert "INPUT_STREAM_NOT_SUPPORTED" in str(refused.value)
