"""docs/exactly-once.md as its reader types it: a stream over two topics, of which it never meets a part."""

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from eoslog.connector.commit.commands import End
from tests.connector.brokers import Broker, Kafka
from tests.connector.source.test_whole_batches import Writer
from tests.docs.reader import code_of
from tests.kit.program import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Seen:
    """The micro-batches that a query has read: how many rows of each of the sink's batches, by topic."""

    def __init__(self) -> None:
        self.batches: list[Counter[tuple[str, str]]] = []

    def take(self, frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("topic", "cast(value as string) value").collect()
        if rows:
            self.batches.append(Counter((row.topic, row.value) for row in rows))


def test_a_stream_never_meets_a_part(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """The sink's commit is held between its first transaction and its second, until a stream without the
    option has read a part."""
    kafka = Kafka(broker.bootstrap)
    writer = Writer(kafka.bootstrap, [kafka.topic(3, name=name) for name in ("orders", "lines")])
    given: dict[str, Any] = {"spark": spark, "kafka": {"kafka.bootstrap.servers": kafka.bootstrap}}
    exec(code_of("exactly-once.md", "both = ("), given)
    others = spark.readStream.format("eoslog").options(**given["kafka"]).option("subscribe", "orders,lines")
    whole, plain = Seen(), Seen()
    queries = [
        frame.writeStream.foreachBatch(seen.take).option("checkpointLocation", str(tmp_path / name)).start()
        for name, frame, seen in (("whole", given["both"], whole), ("plain", others.load(), plain))
    ]
    until(lambda: all(query.lastProgress is not None for query in queries), "the queries' beginning", 120)
    ended, go_on, ends = threading.Event(), threading.Event(), list[End]()

    def hold(command: Any) -> None:
        ends.extend([command] if isinstance(command, End) and command.commit else [])
        if len(ends) == 2 and not ended.is_set():  # the decision, and the first task's transaction
            ended.set()
            assert go_on.wait(180)

    with writer.cluster:
        write = threading.Thread(target=lambda: writer.batch(0, [0, 1, 2], after=hold))
        write.start()
        assert ended.wait(60)
        try:
            until(lambda: plain.batches, "a part in the other stream", 120)
            assert sum(plain.batches[0].values()) < 6
            assert whole.batches == []
        finally:
            go_on.set()
            write.join(60)
        until(lambda: whole.batches, "the batch", 120)
        writer.batch(1, [0, 2])
        until(lambda: sum(map(Counter.total, whole.batches)) == 10, "the next batch", 120)
    for query in queries:
        query.stop()
    whole_of = {0: 3, 1: 2}
    for batch in whole.batches:
        assert all(count == whole_of[int(value)] for (_, value), count in batch.items())
        assert {topic for topic, _ in batch} == {"orders", "lines"}
    read = spark.read.format("eoslog").options(**given["kafka"]).option("subscribe", "orders,lines")
    assert read.option("read.whole.batches", "of-orders").load().count() == 10
