"""Checkpoints of queries that were killed in a real Spark, edited, forked, moved: make test-checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from eoslog.checkpoint import carry_out
from eoslog.checkpoint.edit_numbers import is_name
from eoslog.client.admin.topics import LATEST, list_offsets
from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import PARTITIONS as FILLED_PARTITIONS
from tests.audit.auditkit import cluster_at, create
from tests.audit.auditkit import fill as fill_columns
from tests.checkpoint.checkpointkit import (
    A_BATCH,
    NEXT,
    PARTITIONS,
    ROUNDS,
    ROWS,
    STATES,
    EditedQuery,
    Stateful,
    copy_topic,
    fill,
    lines,
    plan,
)
from tests.connector.brokers import Kafka

# -- edits ---------------------------------------------------------------------------------------
# Checkpoints of queries that were killed in a real Spark, edited: `eoslog audit` then counts what the edit
# has foretold, row by row. make test-checkpoint runs it.


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "state", [*(pytest.param(state, marks=pytest.mark.long) for state in STATES[:-1]), STATES[-1]]
)
def test_a_checkpoint_that_is_lost_as_a_whole_is_written_again(query: EditedQuery, state: str) -> None:
    query.bring_to(state)
    shutil.rmtree(query.checkpoint)
    said = query.command("rebuild", "--transactional-id", query.sink, "--topic", query.target)
    assert said.exit_code == 0, said.output
    assert query.shown()["next_start"].startswith("finish")
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_stops_a_query_whose_state_nobody_can_write_again(
    spark: SparkSession, hasty: Kafka, tmp_path: Path
) -> None:
    query = Stateful(spark, hasty, tmp_path)
    query.bring_to("stopped")
    shutil.rmtree(query.checkpoint)
    done = query.command("rebuild", "--transactional-id", query.sink, "--topic", query.target)
    assert done.exit_code == 0, done.output
    said = query.run()
    assert "MISSING_STATE_DIRECTORY" in said or "STATE_STORE" in said, said  # as Spark's versions call it
    assert query.audited()["doubled"] == 0


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
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

    def noted(self: Checkpoint, name: str, text: str, **named: Any) -> None:
        note(self, name, text, **named)
        if not is_name(name):  # a claim, which comes before the backup, or where rows are
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


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("state", ["all sealed, nothing staged", "decided, no winner finished"])
@pytest.mark.parametrize("step", STEPS)
def test_an_edit_that_dies_at_a_step(query: EditedQuery, step: str, state: str, kind: str) -> None:
    """A start then goes on as if the edit had never begun or were done, or it stops; and then the edit can be
    taken back."""
    query.bring_to(state)
    has_step = step != {"all sealed, nothing staged": "done noted"}.get(state, "later batch removed")
    with pytest.MonkeyPatch.context() as patch:
        told = json.loads(query.command(*EDITS[kind], "--dry-run", "--json").stdout)["rows"]
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


# -- forks ---------------------------------------------------------------------------------------
# Checkpoints of queries that were killed in a real Spark, forked: both go on, and `eoslog audit` counts what
# was foretold. make test-checkpoint runs it.


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("kind", [EditedQuery, Stateful])
def test_both_go_on_and_write_twice_what_was_foretold(
    spark: SparkSession, hasty: Kafka, tmp_path: Path, kind: type[EditedQuery], state: str
) -> None:
    """Each from where the query stood; then each every later row. Also if the old one starts first."""
    query = kind(spark, hasty, tmp_path)
    query.bring_to(state)
    if kind is Stateful and NEXT[state] == "finish":
        said = query.command("fork", str(tmp_path / "new"), "--group", "new")
        assert said.exit_code == 1 and "only Spark knows" in said.output
        return
    copy, foretold = query.fork(tmp_path / "new")
    assert foretold > 0
    for one in (query, copy):
        assert one.command("check").exit_code == 0
        assert one.shown()["next_start"].startswith(NEXT[state])
    order = (query, copy) if kind is Stateful else (copy, query)
    assert [one.run() for one in order] == ["", ""]
    assert query.audited() == {"doubled": foretold, "lost": 0}
    fill(query.kafka, query.source, "later")
    assert [one.run() for one in order] == ["", ""]
    assert query.audited() == {"doubled": foretold + ROUNDS * ROWS, "lost": 0}


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_copy_alone_takes_the_place_of_a_query_that_never_comes_back(
    query: EditedQuery, tmp_path: Path
) -> None:
    """What the dead one had decided is there: each row is, once."""
    query.bring_to("decided, no winner finished")
    copy, _ = query.fork(tmp_path / "new")
    shutil.rmtree(query.checkpoint)
    assert copy.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


class ForkDied(Exception):
    """The command's process is dead."""


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("decided", [False, True])
def test_a_copy_that_is_not_complete_does_not_start(
    query: EditedQuery, tmp_path: Path, decided: bool
) -> None:
    query.bring_to("stopped")
    move = carry_out.move

    def died(*given: Any) -> None:
        if decided:
            move(*given)
        raise ForkDied

    with pytest.MonkeyPatch.context() as patch, pytest.raises(AssertionError):
        patch.setattr(carry_out, "move", died)
        query.fork(tmp_path / "new")
    copy = EditedQuery(query.spark, query.kafka, tmp_path / "unused")
    copy.source, copy.topics, copy.target = query.source, query.topics, query.target
    copy.checkpoint, copy.sink, copy.group = tmp_path / "new", f"forked-{query.sink}", f"forked-{query.group}"
    assert "eoslog checkpoint fork has not finished" in copy.run()
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


# -- another cluster -----------------------------------------------------------------------------
# Queries that were killed in a real Spark go on on another cluster, whose mirrored topics have other offsets.
# make test-checkpoint runs it.


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("state", STATES)
def test_each_row_is_there_once(query: EditedQuery, other: EmbeddedBroker, state: str) -> None:
    """With what it had written, which is mirrored, too. On the old cluster the query does not start again."""
    query.bring_to(state)
    old, new = query.kafka, Kafka(other.bootstrap)
    then = query.shown()["partitions"]
    copy_topic(old, new, query.source, PARTITIONS, before=0)
    assert query.edit("move-cluster", "--to-bootstrap-server", other.bootstrap) == {"doubled": 0, "lost": 0}
    copy_topic(old, new, query.target, PARTITIONS, before=0)
    assert "WrongCluster" in query.run()
    query.kafka = new
    assert query.command("check").exit_code == 0
    assert all(now["to"] < was["to"] for now, was in zip(query.shown()["partitions"], then, strict=True))
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}
    fill(new, query.source, "later")
    assert query.run() == ""
    assert query.audited() == {"doubled": 0, "lost": 0}


# -- ten million records -------------------------------------------------------------------------
# What it costs to foretell an edit over ten million records: time, and the most memory of the process. make
# test-checkpoint runs it; -s prints the figures of docs/checkpoints.md.

RECORDS, FILLS, VALUE_BYTES = 10_000_000, 20, 100
SECONDS, MEGABYTES = 60, 200

_MEASURED = """
import atexit, pathlib, sys
from eoslog.cli import main
status, peak = pathlib.Path("/proc/self/status"), sys.argv.pop(1)
atexit.register(lambda: pathlib.Path(peak).write_text(status.read_text()))
main()
"""
"""The command, which writes down its own peak: wait4 tells that of its parent, where that was larger."""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_edit_over_ten_million_records_is_foretold(tmp_path: Path) -> None:
    """Batch headers are counted, so it takes no more than to fetch them, and little memory."""
    with EmbeddedBroker(tmp_path / "data") as broker, cluster_at(broker.bootstrap) as cluster:
        create(cluster, "orders")
        each = RECORDS // FILLS // FILLED_PARTITIONS
        for _ in range(FILLS):
            fill_columns(cluster, "orders", [np.arange(each)] * FILLED_PARTITIONS, VALUE_BYTES)
        where = [("orders", partition) for partition in range(FILLED_PARTITIONS)]
        ends = list_offsets(cluster, dict.fromkeys(where, LATEST), committed=True)
        checkpoint = a_checkpoint(tmp_path / "checkpoint", {str(p): at for (_, p), at in ends.items()})
        peak = tmp_path / "peak"
        command = ["rewind", str(checkpoint), "--to", "earliest", "--dry-run", "--json"]
        command += ["--bootstrap-server", broker.bootstrap]
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", _MEASURED, str(peak), "checkpoint", *command], stdout=subprocess.PIPE
        )
        output, _ = process.communicate(timeout=600)
        seconds = time.monotonic() - began
    assert process.returncode == 0
    assert json.loads(output)["rows"]["twice"] == RECORDS
    (kilobytes,) = (line.split()[1] for line in peak.read_text().splitlines() if line.startswith("VmHWM:"))
    megabytes = int(kilobytes) / 1024
    print(f"{RECORDS:,} records of {VALUE_BYTES} bytes: {seconds:.1f} s, {megabytes:.0f} MB")
    assert seconds < SECONDS and megabytes < MEGABYTES


def a_checkpoint(folder: Path, ends: dict[str, int]) -> Path:
    """Of a query that has read all."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    plan(folder, 0, lines({"orders": ends}))
    return folder


# -- sources with names ----------------------------------------------------------------------------
# Edits of checkpoints of version 2 of the offset log: of queries whose sources have names (Spark's source
# evolution), killed in a real Spark. make test-checkpoint runs it.


EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"


class Named(EditedQuery):
    """Two sources with names, each of a topic."""

    def __init__(self, spark: SparkSession, kafka: Kafka, folder: Path) -> None:
        super().__init__(spark, kafka, folder)
        self.second = kafka.topic(PARTITIONS)
        fill(kafka, self.second, "second")

    def rows(self) -> DataFrame:
        """Those of both."""
        return self._source("left", self.source).union(self._source("right", self.second))

    def _source(self, name: str, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("eoslog").options(**self._cluster()).option("subscribe", topic)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", A_BATCH)
        return reader.name(name).load().select("key", "value")

    def audited(self, source: str | None = None) -> dict[str, int]:
        """What has become of the rows of both topics."""
        both = [super(Named, self).audited(topic) for topic in (self.source, self.second)]
        return {name: sum(one[name] for one in both) for name in both[0]}


@pytest.fixture
def named(spark: SparkSession, hasty: Kafka, tmp_path: Path) -> Iterator[Named]:
    before = spark.conf.get(EVOLUTION)
    spark.conf.set(EVOLUTION, "true")
    yield Named(spark, hasty, tmp_path)
    spark.conf.set(EVOLUTION, before or "false")


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("state", STATES)
def test_an_edit_of_named_sources(named: Named, state: str) -> None:
    """It is shown by their names, taken back, and made: then the audit counts what was foretold."""
    named.bring_to(state)
    before = named.shown()
    assert before["offset_log"] == "v2" and before["next_start"].startswith(NEXT[state])
    assert {one["source"] for one in before["partitions"]} == {"left", "right"}
    named.edit("rewind", "--to-batch", "0")
    assert named.command("undo").exit_code == 0
    assert named.shown()["partitions"] == before["partitions"]
    foretold = named.edit("rewind", "--by", "17")
    assert foretold["doubled"] > 0 == foretold["lost"]
    assert named.command("check").exit_code == 0
    assert named.run() == ""
    assert named.audited() == foretold


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_fork_of_named_sources(named: Named, tmp_path: Path) -> None:
    named.bring_to("stopped")
    fill(named.kafka, named.second, "other")
    copy, doubled = named.fork(tmp_path / "new")
    assert [copy.run(), named.run()] == ["", ""]
    assert named.audited() == {"doubled": doubled, "lost": 0}
