"""A checkpoint in Spark's layout, made without Spark, and `eoslog checkpoint` on it."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from eoslog.cli import main
from eoslog.client.admin.group_offsets import fetch_committed
from eoslog.client.wire.cluster import Cluster
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.checkpoint.noted_sink import NotedSink
from eoslog.connector.commit.decide import SourceOffsets
from eoslog.connector.commit.decision import Decision, decode
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import Note
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.saved.save import CheckpointSaving
from eoslog.connector.sink.start_of_run import cluster_id
from eoslog.testing import EmbeddedBroker
from tests.connector.stock_kafka import Kafka

SETTINGS = 'v1\n{"batchWatermarkMs":0}\n'
_EDITS = ("rewind", "skip-to", "rebuild", "fork", "move-cluster")


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
) -> Decision:
    """Have the sink decide a batch that is planned, and commit its end to the group. `state`: the topic in
    which the checkpoint is saved with it."""
    found = Checkpoint.at(str(checkpoint))
    NotedSink(sink_of(topic), cluster_id(cluster), 0, group_of(topic)).write(found)
    planned = found.planned(batch)
    text = Note(sink_of(topic), "q", batch).text()
    source = SourceOffsets(group_of(topic), {tp: (at, text) for tp, at in planned.topic_offsets().items()})
    to = Batch("q", batch, planned.digest)
    sink = sink_of(topic)
    saving = None if state is None else CheckpointSaving(cluster, found, sink, to, state, 1, 100_000)
    rules = move_decision(Sink(sink), last, to, source, batch, saving, planned.ends)
    return Runner(cluster, OWN_TIMEOUT_MS).run(rules)


def last(cluster: Cluster, topic: str) -> Decision:
    """The sink's last decision."""
    sink = Sink(sink_of(topic))
    kept = fetch_committed(cluster, sink.group, None)
    found = decode(sink, {number: one for (_, number), one in kept.items()})
    assert found is not None
    return found


def copy_topic(
    old: Kafka, new: Kafka, topic: str, partitions: int, before: int, count: int | None = None
) -> None:
    """Copy a topic's rows to another cluster as a mirror does, one by one, behind others: offsets differ."""
    new.topic(partitions, name=topic)
    for partition in range(partitions):
        new.put(topic, [b"before"] * before, partition, timestamp=1)
    producer = new.producer(acks="all")
    for partition, _, key, value, _, at, _ in old.rows(topic, partitions)[:count]:
        producer.produce(topic, value, key, partition=partition, timestamp=at)
        producer.poll(0)
    assert producer.flush(60) == 0
