"""A sink on brokers that die, cut connections or give no producer id, and beside copies that are late."""

import json
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from eoslog.client.admin import transaction_states
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.commands import FENCED
from eoslog.connector.commit.prepare import participant_name
from eoslog.connector.commit.task_reports import Batch, Begun, Prepared, Report, Stamp
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer, task_writer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import ProduceFailed
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from eoslog.testing.faults import Fault
from tests.connector.brokers import Broker, Kafka, skip_unless_served
from tests.connector.commit.model_bench import Bench

# -- a broker dies -------------------------------------------------------------------------------
# A driver that lives on when a broker dies: it asks the partitions whether its batch is readable.


class OneProcess:
    """A query with one task, all in this process; `asked`: in which step partitions were asked."""

    def __init__(self, kafka: Kafka, topic: str, checkpoint: Path) -> None:
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "transactional.id": topic}
        self.options = sink_options(given | {"checkpointLocation": str(checkpoint)}, stream=True)
        self.checkpoint, self.batch_id = checkpoint, 0
        self.asked: list[str] = []
        self.at, self.ends = "", 0
        self.lose_broker: Callable[[], None] | None = None
        cluster = shared_cluster(self.options.client)
        self.runner = Runner(cluster, 60_000, before=self.watch)
        for name in ("offsets", "commits"):
            (checkpoint / name).mkdir(parents=True)
        (checkpoint / "metadata").write_text(json.dumps({"id": topic}))

    def watch(self, command: c.Command[Any]) -> None:
        if isinstance(command, c.FindHeld):
            self.asked.append(self.at)
        if isinstance(command, c.End) and command.commit:
            self.ends += 1
            if self.ends == 2 and self.lose_broker:  # decided, the task's transaction not committed
                self.lose_broker()

    def batch(self, lose_broker: Callable[[], None] | None = None) -> list[str]:
        """Run a batch, and say when partitions were asked."""
        (self.checkpoint / "offsets" / str(self.batch_id)).write_text(
            f'v1\n{{}}\n{{"t":{{"0":{self.batch_id}}}}}'
        )
        self.asked, self.at, self.ends, self.lose_broker = [], "begin", 0, lose_broker
        begun = committer.begin_stream(self.options, self.runner)
        assert begun is not None
        rows = iter([pa.record_batch({"value": pa.array([b"%d" % self.batch_id])})])
        report = write_rows(self.options, begun, Attempt(begun.sink_id, self.batch_id, 0), rows).report
        self.at = "commit"
        committer.commit_stream(self.options, [report], self.batch_id, self.runner)
        (self.checkpoint / "commits" / str(self.batch_id)).write_text("v1\n{}")
        self.batch_id += 1
        return self.asked


def test_partitions_are_asked_when_a_broker_was_lost(broker: Broker, tmp_path: Path) -> None:
    """A node that dies right after its answer to EndTxn may have lost markers: the driver that lives on
    must see it too, in this batch or before the next."""

    def lose() -> None:
        broker.kill()
        broker.restart()

    kafka = Kafka(broker.bootstrap)
    query = OneProcess(kafka, kafka.topic(), tmp_path / "checkpoint")
    assert "commit" not in query.batch()
    assert query.batch() == [], "nothing happened: no round trip is spent"
    assert query.batch(lose) == ["commit"]
    assert query.batch() == []
    lose()
    assert query.batch()[:1] == ["begin"]
    assert [row[3] for row in kafka.rows(query.options.topic or "")] == [b"%d" % n for n in range(5)]


def test_a_broker_that_is_gone_is_seen_by_its_idle_connection(broker: Broker) -> None:
    """On a cluster of several nodes no request of the next batch needs to go to the one that died."""
    with Cluster(ClientConfig(parse_addresses(broker.bootstrap))) as cluster:
        assert cluster.brokers() and not cluster.disturbed()
        broker.kill()
        assert cluster.disturbed() and not cluster.disturbed()
    broker.restart()


# -- without a producer id -----------------------------------------------------------------------
# kafka.enable.idempotence=false on a broker that gives no producer id: none is asked for, no row is lost if a
# connection breaks, though some are there twice.

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


# -- late copies of tasks ------------------------------------------------------------------------
# A copy of a task that writes when its batch is over must not hold readers back: nobody begins a batch for
# the sink again, perhaps for days, and until then its transaction would be open.
#
# The places between two requests are those of the model (commit/test_model.py); here it is a real broker.


class Write:
    """A batch write of one task, whose attempts are run by the test one inside the other."""

    def __init__(self, kafka: Kafka, **more: str) -> None:
        self.kafka, self.topic = kafka, kafka.topic(2)
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": self.topic, **more}
        self.options: SinkOptions = sink_options(given | {"transactional.id": self.topic}, stream=False)
        begun = committer.begin_batch(self.options)
        assert begun is not None and begun.batch is not None
        self.begun: Begun = begun

    def attempt(self, rows: Iterator[pa.RecordBatch]) -> Report | None:
        assert self.begun.batch is not None
        return write_rows(self.options, self.begun, Attempt(self.begun.batch.query_id, 0, 0), rows).report

    def win(self) -> None:
        """An attempt writes, and its batch is committed, looking for left-overs included."""
        committer.commit_batch(self.options, [self.attempt(iter([rows(b"winner", 0), rows(b"winner", 1)]))])

    def open(self) -> list[str]:
        cluster = shared_cluster(self.options.client)
        found = transaction_states.list_transactions(cluster, self.topic, ["Ongoing"])
        return [listing.transactional_id for listing in found]

    def held_back(self) -> list[int]:
        """Partitions of which a read_committed reader does not see the end."""
        with Cluster(self.options.client) as cluster:
            places = {(self.topic, number): LATEST for number in range(2)}
            stable = list_offsets(cluster, places, committed=True)
            ends = list_offsets(cluster, places, committed=False)
        return [number for (_, number), end in ends.items() if stable[self.topic, number] < end]

    def visible(self) -> list[bytes]:
        return [row[3] for row in self.kafka.rows(self.topic, 2)]


def rows(value: bytes, partition: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([value]), "partition": pa.array([partition], pa.int32())})


def late(
    moment: Callable[[], None], before: list[pa.RecordBatch], after: list[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """An attempt's rows: some, then what happens meanwhile, then some more."""
    yield from before
    moment()
    yield from after


@pytest.mark.parametrize("tv", [1, 2])
def test_an_attempt_that_goes_on_after_the_commit_leaves_nothing_open(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, tv: int
) -> None:
    """The commit aborts what it has opened by then, which raises its epoch: it cannot open it anew."""
    skip_unless_served(kafka.bootstrap, tv)
    monkeypatch.setattr(Cluster, "transaction_version", lambda self: tv)
    write = Write(kafka, **{"kafka.max.request.size": "1000"})
    many = pa.concat_batches([rows(b"l" * 600, 0)] * 2)
    try:
        write.attempt(late(write.win, [many], [rows(b"l" * 900, 1)] * 3))
    except (ProduceFailed, KafkaError) as refused:
        # The last: Apache Kafka checked a batch on its way after the transaction had ended (KIP-890).
        assert refused.code in {*FENCED, ErrorCode.TRANSACTION_ABORTABLE}, refused
    assert write.open() == [] and write.held_back() == []
    assert write.visible() == [b"winner", b"winner"]


def test_an_attempt_that_begins_to_write_after_the_commit_leaves_nothing_open(kafka: Kafka) -> None:
    write = Write(kafka)
    report = write.attempt(late(write.win, [], [rows(b"loser", 1)] * 3))
    assert isinstance(report, Prepared), "nothing is wrong: Spark drops this report"
    assert write.open() == [] and write.held_back() == []
    assert write.visible() == [b"winner", b"winner"]


# -- docs/objections.md --------------------------------------------------------------------------
# What docs/objections.md says of producers and transactional ids, where no other test says it.

STAMP = Stamp("s", ProducerIdentity(1, 0), ProducerIdentity(1, 0), 0, 8, Batch("q", 0))
RUNS, BATCHES, TASKS = 5, 12, 2


@pytest.mark.parametrize("tv", [1, 2])
def test_ids_are_bounded_over_many_batches_and_restarts(tv: int) -> None:
    """Two for each task and one for the sink, in every run; nothing for every batch."""
    bench = Bench(tv)
    for run in range(RUNS):
        first = run * BATCHES
        bench.whole_batch(first, completed=first - 1 or None)
        for batch_id in range(first + 1, first + BATCHES):
            bench.whole_batch(batch_id, run=bench.remembered, completed=batch_id - 1)
        assert len(bench.broker.transactions) == 1 + (run + 1) * 2 * TASKS
    assert len(bench.broker.visible()) == RUNS * BATCHES * TASKS


def test_no_two_attempts_have_a_transaction_in_common() -> None:
    """One process: tasks, attempts of them, and the batch after; again only two batches later."""

    def names(batch_id: int) -> list[str]:
        stamp = replace(STAMP, batch=Batch("q", batch_id))
        return [participant_name(stamp, *task_writer._next_slot(stamp)) for _ in range(4)]

    first, second, third = (names(batch_id) for batch_id in range(3))
    assert len({*first, *second}) == 8
    assert third == first


def test_another_process_has_other_names() -> None:
    """Forked ones too, as Spark's Python workers are."""
    mine = {task_writer._next_slot(STAMP)[0]}
    with multiprocessing.get_context("fork").Pool(2) as pool:
        theirs = set(pool.map(_word, range(8), chunksize=4))
    assert not mine & theirs and 1 <= len(theirs) <= 2


def _word(_: int) -> str:
    return task_writer._next_slot(STAMP)[0]
