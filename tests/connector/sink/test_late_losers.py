"""A copy of a task that writes when its batch is over must not hold readers back: nobody begins a batch for
the sink again, perhaps for days, and until then its transaction would be open.

The places between two requests are those of the model (commit/test_model.py); here it is a real broker.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from eoslog.client.admin import transaction_states
from eoslog.client.admin.list_offsets import LATEST, list_offsets
from eoslog.client.wire.cluster import Cluster, shared_cluster
from eoslog.connector.commit.commands import FENCED
from eoslog.connector.commit.task_reports import Begun, Prepared, Report
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.errors import ProduceFailed
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.connector.brokers import skip_unless_served
from tests.connector.stock_kafka import Kafka


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
