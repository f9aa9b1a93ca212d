"""Checkpoints to edit: made without Spark, and of a query in a real Spark that is killed in a commit."""

from __future__ import annotations

import copy
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from click.testing import CliRunner, Result
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from eoslog.cli import main
from eoslog.client.admin.groups import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.saved.save import CheckpointSaving
from eoslog.connector.sink import committer
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.connector.checkpoint import halting
from tests.spark_session import all_available

# -- made without Spark ----------------------------------------------------------------------------
# A checkpoint in Spark's layout, made without Spark, and `eoslog checkpoint` on it.


SETTINGS = 'v1\n{"batchWatermarkMs":0}\n'
_EDITS = ("rewind", "skip-to", "add-topic", "rebuild", "fork", "move-cluster")


def run(broker: EmbeddedBroker, command: str, checkpoint: Path | str, *more: str) -> Result:
    """`eoslog checkpoint COMMAND`; nobody runs the query."""
    watch = ["--watch", "0"] if command in _EDITS else ["--fence"] if command == "undo" else []
    arguments = [command, str(checkpoint), "--bootstrap-server", broker.bootstrap, *watch, *more]
    return CliRunner().invoke(main, ["checkpoint", *arguments])


def plan(checkpoint: Path, batch: int, text: str) -> None:
    """Have a batch planned and done."""
    (checkpoint / "offsets" / str(batch)).write_text(text)
    (checkpoint / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def lines(ends: dict[str, dict[str, int]]) -> str:
    """A file of the offset log of one source."""
    return SETTINGS + json.dumps(ends)


def sink_of(topic: str) -> str:
    """The sink of the query that reads the topic."""
    return f"sink-{topic}"


def group_of(topic: str) -> str:
    """Its group."""
    return f"group-{topic}"


def decide(
    cluster: Cluster,
    checkpoint: Path,
    topic: str,
    batch: int,
    last: Decision | None = None,
    state: str | None = None,
    named: str | None = None,
) -> Decision:
    """Have the sink decide a batch that is planned, and commit its end to the group. `state`: the topic in
    which the checkpoint is saved with it. `named`: another sink."""
    found, sink = Checkpoint.at(str(checkpoint)), named or sink_of(topic)
    NotedSink(sink, cluster_id(cluster), 0, group_of(topic)).write(found)
    planned = found.planned(batch)
    text = Note(sink, "q", batch).text()
    source = SourceOffsets(group_of(topic), {tp: (at, text) for tp, at in planned.topic_offsets().items()})
    to = Batch("q", batch, planned.digest)
    saving = None if state is None else CheckpointSaving(cluster, found, sink, to, state, 1, 100_000)
    rules = move_decision(Sink(sink), last, to, source, batch, saving, planned.ends)
    return Runner(cluster, OWN_TIMEOUT_MS).run(rules)


def last(cluster: Cluster, topic: str) -> Decision:
    """The sink's last decision."""
    found = last_of(cluster, sink_of(topic))
    assert found is not None
    return found


def last_of(cluster: Cluster, name: str) -> Decision | None:
    """The last decision of the sink of this name."""
    sink = Sink(name)
    kept = fetch_committed(cluster, sink.group, None)
    return decode(sink, {number: one for (_, number), one in kept.items()})


def write_in_foreach(
    broker: EmbeddedBroker, topic: str, batch: Batch, token: str | None, by: str = "", **more: str
) -> None:
    """A df.write of three rows in a micro-batch, as a run of Spark makes it. `by`: that; "": a new one."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    options = sink_options(given | ({} if token is None else {"write.token": token}) | more, stream=False)
    begun = committer.begin_batch(options)
    assert begun is not None
    attempt = Attempt(begun.batch.query_id, begun.batch.batch_id, 0, batch, by or uuid.uuid4().hex)
    rows = pa.record_batch({"value": pa.array([b"row"] * 3)})
    committer.commit_batch(options, [write_rows(options, begun, attempt, iter([rows])).report])


class Reading:
    """A query that reads topics with eoslog's source in this process. What it reads counts as written."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        for log in ("offsets", "commits"):
            (folder / log).mkdir(parents=True)
        (folder / "metadata").write_text('{"id":"q"}')
        self.rows: list[bytes] = []

    def batch(self, kafka: Kafka, cluster: Cluster, topics: str, **options: str) -> list[bytes]:
        """Start a driver, and run one batch. Returns its rows."""
        given = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topics, **options}
        given.setdefault("startingOffsets", "earliest")
        reader = StreamReader(source_options(given, stream=True))
        done = [int(path.name) for path in (self.folder / "commits").iterdir() if path.name.isdecimal()]
        number = max(done, default=-1) + 1
        begin = reader.initialOffset() if not number else self.ends(number - 1)
        end = reader.latestOffset(begin, ReadAllAvailable())
        parts = reader.partitions(begin, end)
        rows: list[bytes] = [
            value for part in parts for rows in reader.read(part) for value in values_of(rows)
        ]
        plan(self.folder, number, lines(end))
        decide(cluster, self.folder, self.name, number, last_of(cluster, sink_of(self.name)))
        self.rows += rows
        return rows

    def ends(self, batch: int) -> dict[str, dict[str, int]]:
        """The line of the batch's source."""
        found: dict[str, dict[str, int]] = json.loads(
            (self.folder / "offsets" / str(batch)).read_text().splitlines()[-1]
        )
        return found


def values_of(rows: Any) -> list[bytes]:
    """The values of what a source has read."""
    found: list[bytes] = rows["value"].to_pylist()
    return found


def copy_topic(
    old: Kafka, new: Kafka, topic: str, partitions: int, before: int, count: int | None = None
) -> None:
    """Copy a topic's rows to another cluster as a mirror does, one by one, behind aborted ones: offsets
    differ."""
    new.topic(partitions, name=topic)
    if before > 1:  # and the marker
        aborted = new.transactional(f"{topic}-before")
        aborted.begin_transaction()
        for partition in range(partitions):
            for _ in range(before - 1):
                aborted.produce(topic, b"before", partition=partition)
        assert aborted.flush(60) == 0
        aborted.abort_transaction(60)
    producer = new.producer(acks="all")
    for partition, _, key, value, _, at, _ in old.rows(topic, partitions)[:count]:
        producer.produce(topic, value, key, partition=partition, timestamp=at)
        producer.poll(0)
    assert producer.flush(60) == 0


# -- of a query in Spark ---------------------------------------------------------------------------
# A query in a real Spark that copies a topic, is killed in the middle of a commit, and whose checkpoint is
# then edited by `eoslog checkpoint`. `eoslog audit` counts what has become of each row.
#
# The source has aborted records and control records: offsets do not tell how many rows there are.


END_SECONDS = 400
TRIES = 30
A_BATCH, KILLED = 40, 2
PARTITIONS, ROUNDS, ROWS, ABORTED = 2, 8, 12, 5
STATES = ("stopped", *halting.POINTS)
"""Where a query is when it ends: after whole batches, or killed in the commit of batch KILLED."""
NEXT = dict(zip(STATES, ("go on", "replay", "replay", "finish"), strict=True))
"""What the next start then does first, as `show` says it."""


class EditedQuery:
    """A query with a group, from one topic to another. `name`: of its topics, group, sink and checkpoint."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        self.spark, self.kafka = spark, kafka
        self.source, self.target = kafka.topic(PARTITIONS), kafka.topic(PARTITIONS)
        self.checkpoint = folder / "checkpoint"
        self.group, self.sink = f"group-{self.target}", f"sink-{self.target}"
        self.topics = [self.source]
        fill(kafka, self.source)

    def rows(self) -> DataFrame:
        """What the query writes."""
        return self._read().select("key", "value")

    def _read(self) -> DataFrame:
        return (
            self.spark.readStream.format("eoslog").options(**self._cluster())
            .option("subscribe", ",".join(self.topics)).option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", A_BATCH).load()
        )  # fmt: skip

    def _cluster(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.kafka.bootstrap, "kafka.group.id": self.group}

    def start(self, sink: str = "eoslog", **halt: str) -> StreamingQuery:
        """Until all is read."""
        query: StreamingQuery = all_available(self._write(sink, **halt))
        return query

    def start_for_ever(self) -> StreamingQuery:
        """Until it is stopped."""
        return self._write("eoslog").trigger(processingTime="0 seconds").start()

    def _write(self, sink: str, **halt: str) -> DataStreamWriter:
        return (
            self.rows().writeStream.format(sink).options(**self._cluster())
            .options(**{name.replace("_", "."): text for name, text in halt.items()})
            .option("transactional.id", self.sink).option("topic", self.target)
            .option("checkpointLocation", str(self.checkpoint))
        )  # fmt: skip

    def run(self, sink: str = "eoslog", **halt: str) -> str:
        """Until the query ends; what it failed with, or "". A start that Spark itself gave up, for its new
        Python process took longer than ten seconds, is no start."""
        for _ in range(TRIES):
            try:
                assert self.start(sink, **halt).awaitTermination(END_SECONDS)
                return ""
            except StreamingQueryException as error:
                if "failed to connect back" not in str(error):
                    return str(error)
        raise AssertionError("Spark's Python processes do not start")

    def bring_to(self, state: str) -> None:
        """Run the query until it is there."""
        if state == "stopped":
            assert self.run() == ""
            fill(self.kafka, self.source, "more")
            return
        cloudpickle.register_pickle_by_value(halting)  # type: ignore[no-untyped-call]
        self.spark.dataSource.register(halting.HaltingDataSource)
        said = self.run("halting", halt_at=state, halt_batch=str(KILLED))
        assert "Python worker exited" in said or "crashed" in said or "EOF" in said, said
        assert not (self.checkpoint / "commits" / str(KILLED)).exists()

    def command(self, name: str, *more: str, fences: bool = True) -> Result:
        """`eoslog checkpoint NAME` of this checkpoint. The driver of a test lives on: what it has run is
        taken from it."""
        fence = ["--fence"] if fences and name not in ("show", "check") else []
        arguments = ["--bootstrap-server", self.kafka.bootstrap, "--timeout", "60", *fence, *more]
        return CliRunner().invoke(main, ["checkpoint", name, str(self.checkpoint), *arguments])

    def edit(self, name: str, *more: str) -> dict[str, int]:
        """Carry an edit out, and accept what it foretells: that."""
        told = json.loads(self.command(name, *more, "--dry-run", "--json").stdout)["rows"]
        accepted = ["--accept-duplicates", str(told["twice"])]
        accepted += ["--accept-loss", str(told["never"])] if told["never"] else []
        result = self.command(name, *more, *accepted)
        assert result.exit_code == 0, result.output
        return {"doubled": told["twice"], "lost": told["never"]}

    def fork(self, new: Path) -> tuple[EditedQuery, int]:
        """A query that goes on from a copy of the checkpoint, and how many rows both write, as foretold."""
        copy_of = copy.copy(self)
        copy_of.checkpoint = new
        copy_of.group, copy_of.sink = f"forked-{self.group}", f"forked-{self.sink}"
        names = ("--transactional-id", copy_of.sink, "--group", copy_of.group)
        return copy_of, self.edit("fork", str(new), *names)["doubled"]

    def shown(self) -> Any:
        """What `show` tells."""
        result = self.command("show", "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def audited(self, source: str | None = None) -> dict[str, int]:
        """How many rows are there twice, or not at all."""
        arguments = [
            "--from",
            source or self.source,
            "--to",
            self.target,
            "--order",
            "none",
            "--allow-foreign",
        ]
        arguments += ["--bootstrap-server", self.kafka.bootstrap, "--output", "json", "--timeout", "60"]
        result = CliRunner().invoke(main, ["audit", *arguments])
        assert result.exit_code in (0, 1), result.output
        counts = json.loads(result.stdout)["counts"]
        return {"doubled": counts["doubled"], "lost": counts["lost"]}


class Stateful(EditedQuery):
    """Drops rows that it has seen: its state has all of them."""

    def rows(self) -> DataFrame:
        """Each value once."""
        return super().rows().dropDuplicates(["value"])


def fill(kafka: Kafka, topic: str, name: str = "row") -> None:
    """Rows in transactions, and aborted ones between them."""
    producer = kafka.transactional(f"fills-{topic}-{name}")
    for at in range(ROUNDS):
        for kind, count in (("aborted", ABORTED), (name, ROWS)):
            producer.begin_transaction()
            for number in range(count):
                producer.produce(topic, f"{kind} {at} {number}", partition=(at + number) % PARTITIONS)
            if kind == "aborted":
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
