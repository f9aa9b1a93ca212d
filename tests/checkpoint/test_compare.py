"""`eoslog checkpoint diff`, on checkpoints in Spark's layout, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from eoslog.client.wire.cluster import Cluster
from eoslog.testing import EmbeddedBroker
from tests.checkpoint.plain_checkpoint import SETTINGS, decide, last, lines, plan, run
from tests.connector.stock_kafka import Kafka


@pytest.fixture
def checkpoint(plain: Path) -> Path:
    return plain


def diffed(broker: EmbeddedBroker, a: Path, b: Path | str, *more: str) -> Any:
    result = run(broker, "diff", a, str(b), "--json", *more)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def copy(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path_factory.mktemp("copies") / "copy"))


def test_rows_between_two_checkpoints(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    """Aborted rows and control records between them are no rows."""
    kafka = Kafka(broker.bootstrap)
    producer = kafka.transactional(f"fills-{topic}")
    producer.begin_transaction()
    producer.produce(topic, "aborted", partition=0)
    producer.flush(60)
    producer.abort_transaction(60)
    kafka.put(topic, [b"later"])
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 33}}))
    found = diffed(broker, checkpoint, copy)
    (one,) = found["partitions"]
    assert (one["a_from"], one["a_to"], one["a_stands"]) == (20, 33, 33)
    assert (one["b_from"], one["b_to"], one["b_stands"]) == (10, 20, 20)
    assert (one["rows"], one["ahead"]) == (11, "a")
    assert found["rows_ahead"] == {"a": 11, "b": 0}
    assert diffed(broker, copy, checkpoint)["rows_ahead"] == {"a": 0, "b": 11}
    assert diffed(broker, checkpoint, copy, "--read-uncommitted")["rows_ahead"]["a"] == 12
    assert [one["same"] for one in found["batches"]] == [True, True, False]
    assert found["batches"][2] == {"batch": 2, "a": "done", "b": None, "same": False}
    said = run(broker, "diff", checkpoint, str(copy)).output
    assert "batch 2: a has it done, b does not have it" in said
    assert "a has read 11 rows that b has not, b 0 that a has not" in said
    assert "a and b: the offsets do not say of which cluster they are" in said, (
        "as those of Spark's own source"
    )


def test_a_batch_that_is_planned_alone_is_not_read(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path
) -> None:
    (checkpoint / "commits" / "1").unlink()
    found = diffed(broker, checkpoint, copy)
    assert (found["a"]["stands_after"], found["b"]["stands_after"]) == (0, 1)
    assert found["rows_ahead"] == {"a": 0, "b": 10}


def test_what_an_edit_has_changed(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """Also when other edits and batches have come after it."""
    assert run(broker, "rewind", checkpoint, "--by", "15", "--accept-duplicates", "15").exit_code == 0
    assert diffed(broker, checkpoint, "edit-0001")["rows_ahead"] == {"a": 0, "b": 15}
    assert run(broker, "skip-to", checkpoint, "--by", "3", "--accept-loss", "3").exit_code == 0
    assert diffed(broker, checkpoint, "edit-0001")["rows_ahead"] == {"a": 0, "b": 12}
    assert diffed(broker, checkpoint, "edit-0002")["rows_ahead"] == {"a": 3, "b": 0}
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 30}}))
    found = diffed(broker, checkpoint, "edit-0001")
    assert found["rows_ahead"] == {"a": 10, "b": 0}
    assert (found["a"]["planned"], found["b"]["planned"], found["b"]["done"]) == (2, 1, 1)


def test_an_edit_before_one_that_removed_batches(
    broker: EmbeddedBroker, decided: Path, cluster: Cluster, topic: str
) -> None:
    """Those are there again, in the view of it."""
    for batch, end in ((2, 25), (3, 30)):
        plan(decided, batch, lines({topic: {"0": end}}))
    decide(cluster, decided, topic, 3, last(cluster, topic))
    assert run(broker, "rewind", decided, "--by", "1", "--accept-duplicates", "1").exit_code == 0
    (decided / "state" / "0" / "0").mkdir(parents=True)
    (decided / "state" / "0" / "0" / "2.delta").write_text("")
    said = run(broker, "rewind", decided, "--to-batch", "1", "--accept-duplicates", "9")
    assert said.exit_code == 0, said.output
    found = diffed(broker, decided, "edit-0001")
    assert found["rows_ahead"] == {"a": 0, "b": 10} and found["b"]["stands_after"] == 3
    assert [(one["a"], one["b"]) for one in found["batches"]][2:] == [(None, "done"), (None, "done")]


def test_sources_are_compared_by_name(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    """Their lines may stand in any order."""
    sources = [f"{name}:" + json.dumps({topic: {"0": at}}) for name, at in (("x", 5), ("y", 9))]
    settings = SETTINGS.replace("v1", "v2")
    for folder, order in ((checkpoint, sources), (copy, sources[::-1])):
        plan(folder, 2, settings + "\n".join(order))
    found = diffed(broker, checkpoint, copy)
    assert found["rows_ahead"] == {"a": 0, "b": 0} and found["batches"][2]["same"]
    assert [(one["source"], one["a_stands"]) for one in found["partitions"]] == [("x", 5), ("y", 9)]


def test_what_cannot_be_counted_is_said(
    broker: EmbeddedBroker, checkpoint: Path, copy: Path, topic: str
) -> None:
    plan(checkpoint, 2, SETTINGS + json.dumps({topic: {"0": 20}, "gone": {"0": 7}}))
    found = diffed(broker, checkpoint, copy)
    assert found["uncounted"] == ["gone-0"] and found["rows_ahead"] == {"a": 0, "b": 0}
    assert "not counted: gone-0" in run(broker, "diff", checkpoint, str(copy)).output


@pytest.mark.parametrize(
    ("other", "status", "says"),
    [("edit-0007", 1, "there is no backup edit-0007; it has none"), ("nothing", 1, "nothing")],
)
def test_what_is_no_other_checkpoint(
    broker: EmbeddedBroker, checkpoint: Path, other: str, status: int, says: str
) -> None:
    said = run(broker, "diff", checkpoint, other)
    assert (said.exit_code, says in said.output) == (status, True), said.output


def test_earlier_sources_are_found_by_name(broker: EmbeddedBroker, checkpoint: Path, topic: str) -> None:
    """A rewind to the end of a batch whose lines stand in another order."""
    settings = SETTINGS.replace("v1", "v2")
    ends = [[("x", 5), ("y", 9)], [("y", 19), ("x", 15)]]
    for batch, sources in enumerate(ends, 1):
        texts = [f"{name}:" + json.dumps({topic: {"0": at}}) for name, at in sources]
        plan(checkpoint, batch, settings + "\n".join(texts))
    said = run(broker, "rewind", checkpoint, "--to-batch", "1", "--accept-duplicates", "20")
    assert said.exit_code == 0, said.output
    text = (checkpoint / "offsets" / "2").read_text()
    assert f'x:{{"{topic}":{{"0":5}}}}' in text and f'y:{{"{topic}":{{"0":9}}}}' in text
