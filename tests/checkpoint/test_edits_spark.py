"""Checkpoints of queries that were killed in a real Spark, edited: `eoslog audit` then counts what the edit
has foretold, row by row. make test-checkpoint runs it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.edit_numbers import is_name
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from tests.checkpoint.edited_query import NEXT, PARTITIONS, STATES, EditedQuery, Stateful, fill
from tests.connector.stock_kafka import Kafka

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_query_that_runs_is_not_edited(query: EditedQuery) -> None:
    """It goes on as if nobody had tried."""
    running = query.start_for_ever()
    try:
        until = time.monotonic() + 60
        while not (query.checkpoint / "commits" / "1").exists():
            assert running.exception() is None and time.monotonic() < until
            time.sleep(0.1)
        said = query.command("rewind", "--by", "17", "--accept-duplicates", "1000", fences=False)
        seen = "a driver of this query lives on this machine", "the query runs"  # it begins a batch just now
        assert said.exit_code == 1 and any(one in said.output for one in seen), said.output
        fill(query.kafka, query.source, "later")
        running.processAllAvailable()
    finally:
        running.stop()
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("edit", [("rewind", "--by", "17"), ("rewind", "--to", "earliest")])
def test_a_query_that_is_set_back_writes_twice_what_was_foretold(
    query: EditedQuery, state: str, edit: tuple[str, ...]
) -> None:
    query.bring_to(state)
    assert query.shown()["next_start"].startswith(NEXT[state])
    foretold = query.edit(*edit)
    assert foretold["doubled"] > 0 == foretold["lost"]
    assert query.command("check").exit_code == 0
    assert query.shown()["next_start"].startswith("go on")
    assert query.run() == ""
    assert query.audited() == foretold


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("edit", [("skip-to", "--by", "17"), ("skip-to", "--to", "latest")])
def test_a_query_that_is_set_forth_leaves_out_what_was_foretold(
    query: EditedQuery, state: str, edit: tuple[str, ...]
) -> None:
    query.bring_to(state)
    foretold = query.edit(*edit)
    assert foretold["lost"] > 0 == foretold["doubled"]
    assert query.command("check").exit_code == 0
    fill(query.kafka, query.source, "later")
    assert query.run() == ""
    assert query.audited() == foretold


@pytest.mark.parametrize("state", STATES)
def test_an_edit_that_is_taken_back_has_done_nothing(query: EditedQuery, state: str) -> None:
    query.bring_to(state)
    before = query.shown()
    query.edit("rewind", "--to-batch", "0")
    assert query.command("undo").exit_code == 0
    after = query.shown()
    assert after["last_edit"] == {"name": "edit-0001", "kind": "rewind", "state": "undone"}
    assert {**after, "last_edit": None} == {**before, "coordinator": after["coordinator"]}
    assert query.command("check").exit_code == 0
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("start", ["earliest", '{"TOPIC":{"0":20,"1":-1}}'])
def test_a_topic_that_is_added_is_read_from_where_it_was_said(
    query: EditedQuery, state: str, start: str
) -> None:
    query.bring_to(state)
    added = query.kafka.topic(PARTITIONS)
    fill(query.kafka, added, "added")
    foretold = query.edit("add-topic", added, "--start", start.replace("TOPIC", added))
    assert foretold["doubled"] == 0 and (foretold["lost"] > 0) == (start != "earliest")
    assert "reads" in query.command("add-topic", added).output, "it is read already"
    query.topics.append(added)
    assert query.command("check").exit_code == 0
    assert query.run() == ""
    assert query.audited(added) == foretold
    assert query.audited() == {"doubled": 0, "lost": 0}


@pytest.mark.parametrize("edit", [("rewind", "--to-batch", "1"), ("skip-to", "--by", "17")])
@pytest.mark.parametrize("state", ["stopped", "all sealed, nothing staged"])
def test_a_query_with_state(
    spark: SparkSession, hasty: Kafka, tmp_path: Path, state: str, edit: tuple[str, ...]
) -> None:
    """It goes back with its state, so what it has written since, it writes again."""
    query = Stateful(spark, hasty, tmp_path)
    query.bring_to(state)
    assert query.shown()["stateful"]
    if edit[0] == "rewind":
        assert "keeps state" in query.command("rewind", "--by", "5").output
    foretold = query.edit(*edit)
    assert query.command("check").exit_code == 0
    fill(query.kafka, query.source, "later")
    assert query.run() == ""
    assert query.audited() == foretold


STEPS = ("backup", "transaction", "later batch removed", "ends written", "done noted", "backup closed")
LOUD = ("CheckpointMismatch", "CheckpointOlder", "DecisionGone", "DataLoss")
EDITS = {"rewind": ("rewind", "--to", "earliest"), "skip": ("skip-to", "--by", "17")}


def stop_after(step: str, patch: pytest.MonkeyPatch) -> None:
    """Have an edit die when this step is done; if it has no such step, at its end."""
    move, change, note = carry_out._move, Checkpoint.change, Checkpoint.note

    def moved(*given: Any) -> None:
        move(*given)
        _die(step == "transaction")

    def changed(self: Checkpoint, log: str, batch: int, text: str | None) -> None:
        change(self, log, batch, text)
        _die(step == ("later batch removed" if text is None else WRITES[log]))

    def noted(self: Checkpoint, name: str, text: str) -> None:
        note(self, name, text)
        if not is_name(name):  # a claim, which comes before the backup
            return
        _die(step == ("backup" if json.loads(text)["state"] == "begun" else "backup closed"))

    patch.setattr(carry_out, "_move", moved)
    patch.setattr(Checkpoint, "change", changed)
    patch.setattr(Checkpoint, "note", noted)


WRITES = {"offsets": "ends written", "commits": "done noted"}


class Died(Exception):
    """The edit's process is dead."""


def _die(now: bool) -> None:
    if now:
        raise Died


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("state", ["all sealed, nothing staged", "decided, no winner finished"])
@pytest.mark.parametrize("step", STEPS)
def test_an_edit_that_dies_at_a_step(query: EditedQuery, step: str, state: str, kind: str) -> None:
    """A start then goes on as if the edit had never begun or were done, or it stops; and then the edit can be
    taken back."""
    query.bring_to(state)
    has_step = step != {"all sealed, nothing staged": "done noted"}.get(state, "later batch removed")
    with pytest.MonkeyPatch.context() as patch:
        told = json.loads(query.command(*EDITS[kind], "--dry-run", "--json").stdout)["foretold"]
        stop_after(step, patch)
        accepted = ["--accept-duplicates", str(told["twice"]), "--accept-loss", str(told["never"])]
        result = query.command(*EDITS[kind], *accepted)
        assert isinstance(result.exception, Died) == has_step
    foretold, nothing = {"doubled": told["twice"], "lost": told["never"]}, {"doubled": 0, "lost": 0}
    said = query.run()
    if said:
        assert any(error in said for error in LOUD), said
        assert "was interrupted" in query.command("check").output
        assert "was interrupted" in query.command(*EDITS[kind], *accepted).output
        assert query.command("undo").exit_code == 0
        assert query.run() == ""
        assert query.audited() == nothing
    else:
        assert query.audited() in (foretold, nothing)
