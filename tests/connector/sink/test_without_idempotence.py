"""kafka.enable.idempotence=false on a broker that gives no producer id: none is asked for, no row is lost
if a connection breaks, though some are there twice."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.testing import EmbeddedBroker
from eoslog.testing.faults import Fault
from tests.connector.stock_kafka import Kafka

PLAINLY = {"processing.guarantee": "at_least_once", "kafka.enable.idempotence": "false"}
FEW_AT_ONCE = {"kafka.batch.size": "200", "kafka.max.request.size": "400", "kafka.retry.backoff.ms": "5"}


@pytest.fixture(scope="module")
def poor() -> Iterator[EmbeddedBroker]:
    """A broker that refuses InitProducerId, as some hosted ones do."""
    with EmbeddedBroker(faults=True) as broker:
        yield broker


@pytest.fixture
def asked(poor: EmbeddedBroker) -> Iterator[Fault]:
    """Counts who asks for a producer id, and refuses."""
    poor.faults.disarm()
    yield poor.faults.answer_error("InitProducerId", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=0)
    poor.faults.disarm()


def write(broker: EmbeddedBroker, topic: str, values: list[bytes], **more: str) -> None:
    """One task's rows, in a few Arrow batches."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic, **PLAINLY, **FEW_AT_ONCE}
    options = sink_options({**given, **{k.replace("__", "."): v for k, v in more.items()}}, stream=True)
    batches = (
        pa.record_batch({"value": pa.array(values[n : n + 10], pa.binary())})
        for n in range(0, len(values), 10)
    )
    assert write_rows(options, None, Attempt("q", 0, 0), batches).report is None


def found(broker: EmbeddedBroker, topic: str) -> Counter[bytes]:
    return Counter(row[3] for row in Kafka(broker.bootstrap).rows(topic))


def test_the_broker_gives_no_producer_id(poor: EmbeddedBroker, asked: Fault) -> None:
    """The judge of the next tests: a writer that asks fails."""
    topic = Kafka(poor.bootstrap).topic()
    with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
        write(poor, topic, [b"x"], kafka__enable__idempotence="true")
    assert asked.happened == 1
    assert not found(poor, topic)


VALUES = [b"%d" % number for number in range(100)]


def test_no_producer_id_is_asked_for(poor: EmbeddedBroker, asked: Fault) -> None:
    topic = Kafka(poor.bootstrap).topic()
    write(poor, topic, VALUES)
    assert found(poor, topic) == Counter(VALUES)
    assert asked.happened == 0


BREAKS: dict[str, Callable[[EmbeddedBroker, int], Fault]] = {
    "the request is lost": lambda b, n: b.faults.drop_request("Produce", n),
    "the answer is lost": lambda b, n: b.faults.drop_answer("Produce", n),
    "three answers are lost": lambda b, n: b.faults.drop_answer("Produce", n, times=3),
    "written, and an error is answered": lambda b, n: b.faults.answer_error(
        "Produce", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, n, carried_out=True
    ),
    "not written, and an error is answered": lambda b, n: b.faults.answer_error(
        "Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, n
    ),
}
WRITTEN_TWICE = ("the answer is lost", "three answers are lost", "written, and an error is answered")


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("how", BREAKS)
def test_duplicates_but_never_a_loss(poor: EmbeddedBroker, asked: Fault, how: str, nth: int) -> None:
    topic = Kafka(poor.bootstrap).topic()
    fault = BREAKS[how](poor, nth)
    write(poor, topic, VALUES)
    fault.wait(1)
    rows = found(poor, topic)
    assert set(rows) == set(VALUES), "no row is lost"
    assert how not in WRITTEN_TWICE or max(rows.values()) > 1, "sent again, it is there twice"
    assert asked.happened == 0


@pytest.mark.spark
def test_queries_ask_for_no_producer_id(
    spark: SparkSession, poor: EmbeddedBroker, asked: Fault, tmp_path: Path
) -> None:
    kafka = Kafka(poor.bootstrap)
    source, target, dead, group = kafka.topic(2), kafka.topic(2), kafka.topic(), "readers"
    kafka.put(source, VALUES)
    to: dict[str, Any] = {"kafka.bootstrap.servers": poor.bootstrap, **PLAINLY}
    rows = (
        spark.readStream.format("eoslog").options(**to, subscribe=source, startingOffsets="earliest").load()
    )
    out = rows.select("value").writeStream.format("eoslog").options(**to, topic=target)
    out = out.options(**{"kafka.group.id": group, "deadletter.topic": dead})
    query = out.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    read = spark.read.format("eoslog").options(**to, subscribe=target).load().select("value")
    read.write.format("eoslog").options(**to, topic=target).mode("append").save()
    assert Counter(row[3] for row in kafka.rows(target, 2)) == Counter(VALUES * 2)
    assert asked.happened == 0


@pytest.mark.spark
def test_exactly_once_is_refused_before_anything_is_written(
    spark: SparkSession, poor: EmbeddedBroker, asked: Fault
) -> None:
    topic = Kafka(poor.bootstrap).topic()
    writer = spark.range(3).selectExpr("cast(id as string) as value").write.format("eoslog").mode("append")
    given = {"kafka.bootstrap.servers": poor.bootstrap, "topic": topic, "kafka.enable.idempotence": "false"}
    with pytest.raises(Exception, match=r"idempotence=false: .*exactly_once needs transactions"):
        writer.options(**given).save()
    assert not found(poor, topic)
    assert asked.happened == 0
