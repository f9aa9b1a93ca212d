"""`eoslog checkpoint` on a checkpoint in Spark's layout, without Spark: what it tells, and what it
refuses."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eoslog.client.wire.cluster import Cluster
from eoslog.connector.commit.faults import CheckpointOlder, SinkChanged
from eoslog.connector.commit.move_decision import move_decision
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import last, lines, plan, run, sink_of
from tests.connector.stock_kafka import Kafka

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"


@pytest.fixture
def checkpoint(plain: Path) -> Path:
    return plain


def shown(broker: EmbeddedBroker, checkpoint: Path) -> Any:
    return json.loads(run(broker, "show", checkpoint, "--json").stdout)


def test_what_is_shown(broker: EmbeddedBroker, checkpoint: Path) -> None:
    found = shown(broker, checkpoint)
    assert (found["planned"], found["done"], found["decided"]) == (1, 1, None)
    (row,) = found["partitions"]
    assert (row["from"], row["to"], row["end"], row["lag"]) == (10, 20, 30, 10)
    assert "next start: go on" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0


def example(topic: str) -> str:
    """What the page's example prints, for this topic."""
    (text,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return str(text).partition("\n")[2].replace("orders-0", f"{topic}-0")


def test_an_edit_needs_its_price_accepted(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """As the page's example shows it."""
    before = (checkpoint / "offsets" / "1").read_text()
    said = run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "14")
    assert said.exit_code == 1 and example(topic) in said.output
    assert (checkpoint / "offsets" / "1").read_text() == before
    assert run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "15").exit_code == 0
    assert shown(broker, checkpoint)["partitions"][0]["lag"] == 25
    assert run(broker, "undo", checkpoint, "--fence").exit_code == 0
    assert (checkpoint / "offsets" / "1").read_text() == before
    assert "no edit to take back" in run(broker, "undo", checkpoint, "--fence").output


@pytest.mark.parametrize(
    ("command", "more", "status", "says"),
    [
        ("rewind", [], 2, "give one of --to, --by and --to-batch"),
        ("skip-to", ["--to", "latest", "--by", "3"], 2, "give one of --to and --by"),
        ("rewind", ["--to", '{"TOPIC":{"0":25}}'], 1, "use eoslog checkpoint skip-to"),
        ("skip-to", ["--to", '{"TOPIC":{"0":15}}'], 1, "use eoslog checkpoint rewind"),
        ("skip-to", ["--to", '{"TOPIC":{"0":31}}'], 1, "not in the log, which has 0 to 30"),
        ("skip-to", ["--to", '{"other":{"0":31}}'], 1, "does not read other-0"),
        ("rewind", ["--to", "earlier"], 1, "--to cannot be"),
        ("rewind", ["--to-batch", "7"], 1, "batches 0 to 1"),
        ("rewind", ["--to-batch", "1"], 1, "stands there already"),
    ],
)
def test_what_is_refused(
    broker: EmbeddedBroker,
    checkpoint: Path,
    topic: str,
    command: str,
    more: list[str],
    status: int,
    says: str,
) -> None:
    said = run(broker, command, checkpoint, *(text.replace("TOPIC", topic) for text in more))
    assert (said.exit_code, says in said.output) == (status, True), said.output


def test_a_query_whose_place_is_taken(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """Another query has made the sink's last decision: the next start would stop, so no edit is safe."""
    assert run(broker, "check", decided).exit_code == 0
    to, plan = Batch("successor", 0), 'v1\n{}\n{"t":{"0":1}}'
    rules = move_decision(Sink(sink_of(topic)), last(cluster, topic), to, None, 1, ends=plan)
    Runner(cluster, OWN_TIMEOUT_MS).run(rules)
    said = run(broker, "check", decided)
    assert said.exit_code == 1 and "TakenOver: sink " in said.output, said.output
    said = run(broker, "rewind", decided, "--by", "5", "--accept-duplicates", "5")
    assert said.exit_code == 1 and "the next start would stop" in said.output, said.output


def test_a_batch_that_nobody_knows_of_is_not_edited_away(broker: EmbeddedBroker, checkpoint: Path) -> None:
    (checkpoint / "commits" / "1").unlink()
    assert "run again" in run(broker, "show", checkpoint).output
    assert "Start the query once" in run(broker, "rewind", checkpoint, "--by", "1").output


def write_in_foreach(broker: EmbeddedBroker, topic: str, batch: Batch, token: str | None) -> None:
    """A df.write of three rows, as a run of Spark makes it in a micro-batch."""
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}
    options = sink_options(given | ({} if token is None else {"write.token": token}), stream=False)
    begun = committer.begin_batch(options)
    assert begun is not None
    attempt = Attempt(begun.batch.query_id, begun.batch.batch_id, 0, batch, uuid.uuid4().hex)
    rows = pa.record_batch({"value": pa.array([b"row"] * 3)})
    committer.commit_batch(options, [write_rows(options, begun, attempt, iter([rows])).report])


@pytest.mark.parametrize("token", [None, "job-2"])
def test_what_foreach_batch_has_written_is_told_as_each_start_takes_it(
    broker: EmbeddedBroker, checkpoint: Path, topic: str, token: str | None
) -> None:
    query, out = f"query-{topic}", Kafka(broker.bootstrap).topic()
    (checkpoint / "metadata").write_text(json.dumps({"id": query}))
    plan(checkpoint, 2, lines({topic: {"0": 30}}))
    (checkpoint / "commits" / "2").unlink()
    given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": out}
    stream = sink_options({**given, "checkpointLocation": str(checkpoint)}, stream=True)
    write_in_foreach(broker, out, Batch(query, 2), token)
    assert "next start: run again in foreachBatch" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0, "with foreachBatch it goes on"
    write_in_foreach(broker, out, Batch(query, 2), token)
    with pytest.raises(SinkChanged, match=r"has written 3 rows .* in batch 2, and the query has no foreach"):
        committer.begin_stream(stream)
    said = run(broker, "rewind", checkpoint, "--by", "1").output
    assert "Start the query once" in said and "foreachBatch has written" in said, said
    (checkpoint / "offsets" / "2").unlink()
    assert "next start: run again in foreachBatch" in run(broker, "show", checkpoint).output
    (checkpoint / "offsets" / "1").unlink()
    (checkpoint / "commits" / "1").unlink()
    for command in ("show", "check"):
        said = run(broker, command, checkpoint).output
        assert "CheckpointOlder: foreachBatch has written batch 2 of this query" in said, said
    if token is None:
        with pytest.raises(CheckpointOlder, match=r"a df\.write of foreachBatch has written batch 2"):
            write_in_foreach(broker, out, Batch(query, 1), token)
    for batch in (1, 2):
        plan(checkpoint, batch, lines({topic: {"0": 10 * batch + 10}}))
    assert "next start: go on" in run(broker, "show", checkpoint).output
    assert run(broker, "check", checkpoint).exit_code == 0
    assert len(Kafka(broker.bootstrap).rows(out)) == 3


def test_damaged_and_missing_files(broker: EmbeddedBroker, checkpoint: Path) -> None:
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"t":{"0"')
    said = run(broker, "check", checkpoint)
    assert said.exit_code == 1 and "offsets/1: it is damaged" in said.output
    assert run(broker, "show", checkpoint / "nothing").exit_code == 1
