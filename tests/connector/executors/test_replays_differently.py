"""A query whose batches do not replay equally: each run has other rows for the same batch, and more or fewer.
The outcome of a batch is that of one of its runs, whole."""

from pathlib import Path

import pytest

from eoslog.testing import EmbeddedBroker
from tests.connector.crashes.crash_query import Crash, Query, rows_of_run, run
from tests.connector.stock_kafka import Kafka

BETWEEN_PREPARE_AND_DECIDE = ("all tasks prepared", "before the decision")
BETWEEN_DECIDE_AND_FINISH = ("decided, no winner finished", "decided, some winners finished")


@pytest.mark.parametrize("at", [*BETWEEN_PREPARE_AND_DECIDE, *BETWEEN_DECIDE_AND_FINISH])
def test_one_of_the_runs_counts(broker: EmbeddedBroker, tmp_path: Path, at: str) -> None:
    """Killed before the decision: the batch is what the second run has, and nothing of the first is seen.
    Killed after it: what the first run had, though the second one gets other rows."""
    kafka = Kafka(broker.bootstrap)
    topic = kafka.topic(2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "transactional.id": f"sink-{topic}",
    }
    query = Query(tmp_path / "checkpoint", options, varies=True)
    assert run(query, Crash(at)) == "killed"
    first = {mark(row[3]) for row in kafka.rows(topic, 2, committed=False)}
    assert run(query) == "done"
    of_the_batch = [row[3] for row in kafka.rows(topic, 2) if row[3].startswith(b"1/")]
    (winner,) = {mark(row) for row in of_the_batch}
    assert (winner in first) == (at in BETWEEN_DECIDE_AND_FINISH)
    assert sorted(of_the_batch) == sorted(
        b"1/%d/%d@%s" % (partition, number, winner.encode())
        for partition in range(query.partitions)
        for number in range(rows_of_run(winner))
    )


def mark(row: bytes) -> str:
    """The run that wrote the row."""
    return row.partition(b"@")[2].decode()
