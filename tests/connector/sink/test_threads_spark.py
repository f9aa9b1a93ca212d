"""Writes from threads of a program: Spark finds no Python data source in a thread without a session."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import eoslog
from tests.connector.stock_kafka import Kafka
from tests.docs.blocks import code_of

pytestmark = pytest.mark.spark


def in_thread(spark: SparkSession, *works: Callable[[], object]) -> BaseException | None:
    """What a plain thread has raised. The JVM's thread may be that of an earlier one, and have a session."""
    raised: list[BaseException] = []

    def caught() -> None:
        assert spark._jvm is not None
        spark._jvm.SparkSession.clearActiveSession()
        try:
            for work in works:
                work()
        except Exception as error:  # Spark's error as py4j has it, too
            raised.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).selectExpr("cast(id as string) as value")


def test_register_in_a_thread_lets_it_write(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    source, topic, broker = kafka.topic(), kafka.topic(), {"kafka.bootstrap.servers": kafka.bootstrap}
    made = rows(spark)
    kafka.put(source, [b"0", b"1", b"2"])

    def batch() -> None:
        made.write.format("eoslog").options(**broker, topic=topic).mode("append").save()

    def stream() -> None:
        given = {**broker, "subscribe": source, "startingOffsets": "earliest"}
        read = spark.readStream.format("eoslog").options(**given).load()
        written = read.select("value").writeStream.format("eoslog").options(**broker, topic=topic)
        stored = written.option("checkpointLocation", str(tmp_path / "c"))
        assert stored.trigger(availableNow=True).start().awaitTermination(60)

    for write in (batch, stream):
        refused = in_thread(spark, write)
        assert refused is not None and "DATA_SOURCE_NOT_FOUND" in str(refused), "Spark's own fault"
        assert in_thread(spark, lambda: eoslog.register(spark), write) is None
    assert sorted(row[3] for row in kafka.rows(topic)) == sorted(2 * [b"0", b"1", b"2"])


def test_the_pages_threads_write(spark: SparkSession, kafka: Kafka) -> None:
    topics = [kafka.topic(), kafka.topic()]
    code = code_of("troubleshooting.md", "def write(")
    given = {"spark": spark, "frame": rows(spark), "brokers": kafka.bootstrap, "topics": topics}
    given |= {"eoslog": eoslog, "ThreadPoolExecutor": ThreadPoolExecutor}
    exec(code, given)
    for topic in topics:
        assert sorted(row[3] for row in kafka.rows(topic)) == [b"0", b"1", b"2"]
