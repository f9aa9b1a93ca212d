"""`eoslog prove` on streams in a real Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.docs.reader import ROOT, all_match, blocks_of
from tests.prove.provekit import Rows, check, entries, put_all, run
from tests.spark_session import all_available

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PARTITIONS, ROWS, EACH = 10, 400, 100


def rows_of(kafka: Kafka, topic: str, partitions: int = 1) -> Rows:
    """Its rows, without their offsets."""
    return [row[:1] + row[2:] for row in kafka.rows(topic, partitions)]


def test_a_stream_of_several_batches_into_many_partitions(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    """Started again in their midst; a row without a key, headers, and a dead letter go with it."""
    source, topic, dead = kafka.topic(2), kafka.topic(PARTITIONS), kafka.topic(1)
    made = f"{topic}-sink"

    def copies(first: int) -> None:
        for partition in range(2):
            kafka.put(source, [b"%d" % n for n in range(first, first + ROWS // 4)], partition)
        reads = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(EACH)}
        rows = spark.readStream.format("eoslog").options(**reads, **cluster).load().repartition(5)
        to = f"if(value = '7', null, '{topic}')"  # that row is a dead letter
        rows = rows.selectExpr(
            "if(offset % 7 = 0, null, value) as key", "value", f"{to} as topic",
            "array(struct('of' as key, value)) as headers",
        )  # fmt: skip
        sink = rows.writeStream.format("eoslog").options(**cluster, **{"transactional.id": made})
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        all_available(sink.option("deadletter.topic", dead)).awaitTermination(120)

    cluster = {"kafka.bootstrap.servers": kafka.bootstrap}
    file = tmp_path / "proof.jsonl"
    copies(0)
    copies(ROWS // 4)
    status, said = run(kafka.bootstrap, made, "--out", str(file))
    assert status == 0, said
    assert (said["verdict"], said["rows"]) == ("proven", ROWS)
    assert len(kafka.rows(dead)) == 2
    batches = entries(file, "batch")
    assert [batch["batch"] for batch in batches] == list(range(ROWS // EACH))
    assert [sum(batch["rows"]) for batch in batches] == [EACH] * len(batches)
    read = [sum(end - start for start, end in batch["source"]["0"][source].values()) for batch in batches]
    assert read == [EACH] * len(batches)
    assert len({log["partition"] for log in batches[0]["log"] if log["topic"] == topic}) == PARTITIONS
    with EmbeddedBroker() as broker:
        other = Kafka(broker.bootstrap)
        for name, count in ((topic, PARTITIONS), (dead, 1)):
            put_all(other, other.topic(count, name=name), rows_of(kafka, name, count))
        assert check(other, file)[0] == 0
        other.put(topic, [b"more"], 3)
        assert check(other, file)[0] == 1


def test_writes_of_foreach_batch_and_with_a_token(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    """Each is a decision; one with a token is the only one of a sink of its own."""
    source, topic = kafka.topic(1), kafka.topic(2)
    made, cluster = f"{topic}-sink", {"kafka.bootstrap.servers": kafka.bootstrap}
    given = {**cluster, "topic": topic, "transactional.id": made}

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.format("eoslog").options(**given).mode("append").save()

    for turn in range(2):
        kafka.put(source, [b"%d" % n for n in range(turn * 5, turn * 5 + 5)])
        reads = {"subscribe": source, "startingOffsets": "earliest"}
        rows = spark.readStream.format("eoslog").options(**reads, **cluster).load().select("value")
        sink = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        all_available(sink).awaitTermination(120)
    spark.sql("select 'once' as value").write.format("eoslog").options(**given).mode("append").save()
    for _ in range(2):  # the second one is known to be done
        row = spark.sql("select 'token' as value").write.format("eoslog").options(**given)
        row.option("write.token", "t").mode("append").save()
    token = f"{made}:t:{topic}"
    assert run(kafka.bootstrap, made, "--out", str(tmp_path / "foreign"))[0] == 1
    for of, decisions, count in ((made, 3, 11), (token, 1, 1)):
        file = tmp_path / f"{decisions}.jsonl"
        status, said = run(kafka.bootstrap, of, "--out", str(file), "--allow-foreign")
        assert (status, said["verdict"], said["batches"]) == (0, "proven", decisions), said
        assert said["rows"] == count


def test_the_page(spark: SparkSession, tmp_path: Path) -> None:
    """What docs/audit.md shows of README's query."""
    with EmbeddedBroker() as broker, EmbeddedBroker() as second:
        kafka, other = Kafka(broker.bootstrap), Kafka(second.bootstrap)
        kafka.put(kafka.topic(2, name="orders"), [b"order %d" % n for n in range(1000)])
        kafka.topic(name="orders_upper")
        cluster = {"kafka.bootstrap.servers": kafka.bootstrap, "transactional.id": "orders-upper"}
        reads = {"subscribe": "orders", "startingOffsets": "earliest"}
        rows = spark.readStream.format("eoslog").options(**cluster, **reads).load()
        rows = rows.selectExpr("key", "upper(cast(value as string)) as value")
        sink = rows.writeStream.format("eoslog").options(**cluster, topic="orders_upper")
        all_available(sink.option("checkpointLocation", str(tmp_path / "checkpoint"))).awaitTermination(120)
        put_all(other, other.topic(name="orders_upper"), rows_of(kafka, "orders_upper"))
        (block,) = (one for one in blocks_of(ROOT / "docs" / "audit.md") if "eoslog prove" in one.code)
        steps = [part.splitlines() for part in block.code.split("$ eoslog ")[1:]]
        for command, *wanted in steps:
            typed = command.replace("127.0.0.1:9093", second.bootstrap).split()
            typed += [] if "--bootstrap-server" in typed else ["--bootstrap-server", kafka.bootstrap]
            done = subprocess.run(
                [sys.executable, "-m", "eoslog", *typed],
                cwd=tmp_path, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            assert done.returncode == 0 and all_match(done.stdout.splitlines(), wanted), done
        assert len(steps) == 2
