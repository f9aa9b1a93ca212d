"""Topics that change while a batch is being written: the target grows, goes away, or is created again. A task
stands still in the middle of its rows meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions

from eoslog.testing import EmbeddedBroker
from tests.connector.crashes.crash_query import ROWS, Crash, Query, Running, start
from tests.connector.stock_kafka import Kafka

MIDDLE = "a task in the middle of its rows"


class Bench:
    """A query that writes to a topic, and the readers' view."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, keyed: bool = True, **options: str) -> None:
        self.kafka, self.folder = Kafka(broker.bootstrap), folder
        self.topic = self.kafka.topic(2)
        more = {name.replace("__", "."): value for name, value in options.items()}
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": self.topic,
            "transactional.id": f"sink-{self.topic}",
        }
        self.query = Query(folder / "checkpoint", given | more, keyed=keyed)

    def stopped(self, at: str) -> Running:
        """The query, standing still in its second batch."""
        running = start(self.query, Crash(at, stop=True))
        running.wait_until_stopped()
        return running

    def visible(self, partitions: int = 2) -> list[bytes]:
        return sorted(row[3] for row in self.kafka.rows(self.topic, partitions))

    def goes_on_without_batch_0(self) -> str:
        """Its rows went with the old topic: a start says so, and goes on with the word that it names."""
        said = start(self.query).end()
        word = said.rpartition("start.accepted=")[2]
        assert said.startswith("RowsGone") and word == "rows-gone:0", said
        return start(replace(self.query, options=self.query.options | {"start.accepted": word})).end()

    def batch(self, number: int) -> list[bytes]:
        return [row for row in self.query.rows() if row.startswith(b"%d/" % number)]


def test_the_target_gets_partitions(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Rows of a key stay together within a task: it goes on with the count that it began with. A later
    process sees the new partitions, as a producer of Kafka does."""
    bench = Bench(broker, tmp_path)
    running = bench.stopped(MIDDLE)
    bench.kafka.admin.create_partitions([NewPartitions(bench.topic, 16)])[bench.topic].result(10)
    running.wake()
    assert running.end() == "done"
    rows = bench.kafka.rows(bench.topic, 16)
    assert sorted(row[3] for row in rows) == bench.query.rows()
    of_the_task = {row[0] for row in rows if row[3].startswith(b"1/0/")}
    assert len(of_the_task) == 1 and of_the_task <= {0, 1}
    assert any(row[0] > 1 for row in rows if row[3].startswith(b"1/1/"))


@pytest.mark.parametrize(
    ("at", "partitions", "keyed"),
    [(MIDDLE, 2, True), (MIDDLE, 2, False), (MIDDLE, 1, False), ("some tasks prepared", 2, True)],
)
def test_the_target_is_made_anew(
    broker: EmbeddedBroker, tmp_path: Path, at: str, partitions: int, keyed: bool
) -> None:
    """The rows written so far went with the old topic; the new one must not get the rest of the batch. (Rows
    without key would go on in another partition, where the broker has no reason to refuse them.)"""
    bench = Bench(broker, tmp_path, keyed)
    running = bench.stopped(at)
    bench.kafka.make_anew(bench.topic, partitions)
    running.wake()
    said = running.end()
    assert "created again" in said and bench.topic in said
    assert bench.visible(partitions) == []
    assert bench.goes_on_without_batch_0() == "done"
    assert bench.visible(partitions) == bench.batch(1), "the whole batch, in the new topic"


def test_the_target_goes_away(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """It is not created again on the sly, and the query stops after its time for delivery."""
    bench = Bench(broker, tmp_path, kafka__delivery__timeout__ms="5000", kafka__request__timeout__ms="2000")
    running = bench.stopped(MIDDLE)
    bench.kafka.admin.delete_topics([bench.topic])[bench.topic].result(10)
    running.wake()
    said = running.end()
    assert bench.topic in said
    assert bench.topic not in bench.kafka.admin.list_topics(timeout=10).topics
    bench.kafka.topic(2, name=bench.topic)
    assert bench.goes_on_without_batch_0() == "done"
    assert bench.visible() == bench.batch(1) and len(bench.visible()) == 2 * ROWS
