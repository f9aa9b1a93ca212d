"""A driver that lives on when a broker dies: it asks the partitions whether its batch is readable."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit import commands as c
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from tests.connector.brokers import Broker
from tests.connector.stock_kafka import Kafka


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
