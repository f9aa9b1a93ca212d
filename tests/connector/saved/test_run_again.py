"""Batches that are run again after a restore are compared with what they were; a restore that was interrupted
is noticed; and a living driver is stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.begin import begin
from eoslog.connector.commit.faults import CheckpointOlder, RunsDifferently, SinkFenced
from eoslog.connector.commit.task_reports import Batch, Decided, Empty, Stamp
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.saved.run_again import (
    UNFINISHED,
    check_equal_run,
    check_operators,
    check_restored,
    differs,
    note_decided,
)
from eoslog.connector.saved.state_files import DecidedBatch
from eoslog.errors import OptionError
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.testing import EmbeddedBroker
from tests.connector.saved.saved_world import SavedWorld, operator

STAMP = Stamp("s", ProducerIdentity(1, 0), ProducerIdentity(1, 0), 1, 1, Batch("q", 5))


def planned(watermark: int) -> str:
    return "\n".join(["v1", json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 4711}), "{}"])


THEN = DecidedBatch(planned(100), (3, 0), (17, 0))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (THEN, None),
        (THEN._replace(checksums=()), None),
        (THEN._replace(planned=planned(99)), "its watermark is 99 ms, and was 100"),
        (THEN._replace(rows=(2, 1)), r"its tasks have \(2, 1\) rows, and had \(3, 0\)"),
        (THEN._replace(rows=(3,)), "its tasks have"),
        (THEN._replace(checksums=(17, 1)), r"its partitions \[1\] have other rows"),
    ],
)
def test_what_is_compared(now: DecidedBatch, said: str | None) -> None:
    found = differs(THEN, now)
    if said is None:
        assert found is None
        return
    with pytest.raises(AssertionError, match=said):
        assert found is None, found


@pytest.fixture
def options(tmp_path: Path) -> SinkOptions:
    """Those of a query with a checkpoint that was restored: batches 5 and 6 are decided."""
    place = tmp_path / "checkpoint"
    (place / "offsets").mkdir(parents=True)
    (place / "offsets" / "5").write_text(planned(100))
    (place / "offsets" / "7").write_text(planned(300))
    note_decided(Checkpoint.at(str(place)), {5: THEN, 6: THEN})
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "checkpointLocation": str(place)}
    return sink_options(given, stream=True)


def test_an_equal_run_passes(options: SinkOptions) -> None:
    check_equal_run(options, [Decided(STAMP, 1, 0, 0), Decided(STAMP, 0, 3, 17)], 5)


def test_another_run_stops(options: SinkOptions) -> None:
    reports = [Decided(STAMP, 0, 2, 17), Decided(STAMP, 1, 0, 0)]
    with pytest.raises(RunsDifferently, match=r"batch 5 was decided.*start.accepted=runs-differently:5"):
        check_equal_run(options, reports, 5)
    check_equal_run(replace(options, accepted=frozenset({"runs-differently:5"})), reports, 5)


def test_what_is_not_run_again_is_not_compared(options: SinkOptions) -> None:
    check_equal_run(options, [Decided(STAMP, 0, 2, 17)], 7)
    check_equal_run(options, [Empty(STAMP, 0)], 5)
    check_equal_run(replace(options, checkpoint_location=None), [Decided(STAMP, 0, 2, 17)], 5)


def test_a_batch_whose_lost_rows_are_written_again_is_not_compared_here(options: SinkOptions) -> None:
    lost = replace(STAMP, lost=(1,))
    check_equal_run(options, [Decided(lost, 0, 3, 17), Empty(lost, 1)], 5)
    with pytest.raises(RunsDifferently):
        check_equal_run(options, [Decided(STAMP, 0, 3, 17)], 5)


def test_a_note_that_cannot_be_read_stops(options: SinkOptions) -> None:
    assert options.checkpoint_location is not None
    Checkpoint.at(options.checkpoint_location).note("decided", "{}")
    with pytest.raises(CheckpointUnreadable, match="eoslog/decided cannot be read"):
        check_equal_run(options, [Decided(STAMP, 0, 3, 17)], 5)


def test_a_restore_that_was_interrupted_is_not_whole(tmp_path: Path) -> None:
    checkpoint = Checkpoint.at(str(tmp_path))
    check_restored(checkpoint)
    checkpoint.note(UNFINISHED, "{}")
    with pytest.raises(CheckpointUnreadable, match="it was being restored, and that was interrupted"):
        check_restored(checkpoint)


def timed(mode: str) -> str:
    head, _, text = operator("transformWithStateInPySparkExec").partition("\n")
    said = json.loads(text) | {"operatorPropertiesJson": json.dumps({"timeMode": mode})}
    return f"{head}\n{json.dumps(said)}"


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        (operator("stateStoreSave"), None),
        (operator("dedupe"), None),
        (operator("symmetricHashJoin"), "symmetricHashJoin"),
        (operator("applyInPandasWithState"), "applyInPandasWithState"),
        (operator("somethingNew"), "somethingNew"),
        (timed("EventTime"), None),
        (timed("None"), None),
        (timed("ProcessingTime"), "with time mode ProcessingTime"),
        (operator("transformWithStateExec"), "with time mode None"),
    ],
)
def test_operators_whose_batches_may_not_run_again_equally(
    tmp_path: Path, text: str, refused: str | None
) -> None:
    place = tmp_path / "state" / "3" / "_metadata"
    (place / "v2").mkdir(parents=True)
    (place / "v2" / "9").write_text(operator("symmetricHashJoin"))
    (place / "v2" / "10").write_text(text)
    checkpoint = Checkpoint.at(str(tmp_path))
    check_operators(checkpoint, 1)
    if refused is None:
        check_operators(checkpoint, 2)
        return
    with pytest.raises(OptionError, match=refused):
        check_operators(checkpoint, 2)


def test_a_restore_stops_the_living_driver(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Its open batch is not decided, whenever it comes to that."""
    world = SavedWorld(broker, tmp_path / "checkpoint")
    world.decide(0)
    batch, begun = world.begin(1)
    other = SavedWorld(broker, tmp_path / "other")
    other.sink, other.state = world.sink, world.state
    (tmp_path / "other" / "metadata").unlink()
    restored = other.restore()
    assert restored is not None and restored.decided == 0
    with pytest.raises(SinkFenced):
        world.end(batch, begun)


def restored_elsewhere(broker: EmbeddedBroker, world: SavedWorld, folder: Path) -> SavedWorld:
    """The same query on another machine."""
    other = SavedWorld(broker, folder)
    other.sink, other.state = world.sink, world.state
    (folder / "metadata").unlink()
    assert other.restore() is not None
    return other


def test_of_two_machines_that_restore_the_later_start_goes_on(broker: EmbeddedBroker, tmp_path: Path) -> None:
    lost = SavedWorld(broker, tmp_path / "lost")
    for number in range(3):
        lost.decide(number)
    one, two = (restored_elsewhere(broker, lost, tmp_path / name) for name in ("one", "two"))
    batch = one.plan(2)
    begun, run = one.runner.run(begin(one.sink, batch))
    two.decide(2)
    one.end(batch, begun)  # it was decided, and nothing is written
    with pytest.raises(SinkFenced):
        one.runner.run(begin(one.sink, one.plan(3), last_run=run))
    two.decide(3)
    with pytest.raises(CheckpointOlder, match="has decided batch 3"):
        one.begin(2)
