"""The checkpoint notes where the query stood in partitions that its batches name no more."""

import json
from pathlib import Path

import pytest

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_left import NotedLeft, note_left, stood_in
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.offsets.offsets import NOTHING_LEFT, Left, to_json

T, U, V = ("t", 0), ("u", 0), ("v", 0)
IDS = {"t": "1", "u": "2", "v": "3"}


def batch(number: int, left: Left = NOTHING_LEFT, **ends: int) -> Planned:
    """A batch of eoslog's source that ends there."""
    return Planned(number, (json.dumps(to_json({(t, 0): at for t, at in ends.items()}, IDS, left=left)),))


def plain(number: int, **ends: int) -> Planned:
    """A batch of another connector."""
    return Planned(number, (json.dumps({topic: {"0": at} for topic, at in ends.items()}),))


def left(**ends: int) -> Left:
    return Left({(topic, 0): at for topic, at in ends.items()}, {topic: IDS[topic] for topic in ends})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint.at(str(tmp_path))


def test_what_is_left_is_noted_when_it_is_left(checkpoint: Checkpoint) -> None:
    note_left(checkpoint, batch(0, t=3, u=4), batch(1, t=5, u=4))
    assert checkpoint.noted("left") is None
    note_left(checkpoint, batch(1, t=5, u=4), batch(2, left(u=4), t=6))
    assert stood_in(checkpoint, [T, U], 9, IDS) == {U: 4}
    checkpoint.forget("left")
    note_left(checkpoint, batch(2, left(u=4), t=6), batch(3, left(u=4), t=7))
    assert checkpoint.noted("left") is None  # the first such batch has noted it
    note_left(checkpoint, batch(3, left(u=4), t=7), plain(4, t=8))  # an earlier version has not
    assert stood_in(checkpoint, [T, U], 9, IDS) == {U: 4}


def test_the_newest_batch_tells(checkpoint: Checkpoint) -> None:
    note_left(checkpoint, batch(0, t=3, u=4, v=1), batch(1, left(u=4, v=1), t=3))
    note_left(checkpoint, batch(5, left(v=1), t=3, u=7), plain(6, t=9))
    assert stood_in(checkpoint, [T, U, V], 7, IDS) == {U: 7, V: 1}
    assert stood_in(checkpoint, [U, V], 5, IDS) == {}  # set back to before: it is all to come again
    assert stood_in(checkpoint, [U], 7, IDS, [batch(6, t=9, u=8)]) == {U: 8}
    assert stood_in(checkpoint, [U], 7, IDS, [batch(4, t=9, u=5)]) == {U: 7}
    assert len(NotedLeft.read(checkpoint).batches) == 1


def test_another_topic_of_the_name_was_not_read(checkpoint: Checkpoint) -> None:
    note_left(checkpoint, batch(0, t=3, u=4), batch(1, t=5))
    assert stood_in(checkpoint, [U], 9, {"t": "1", "u": "9"}) == {}
    assert stood_in(checkpoint, [U], 9, {"t": "1"}) == {U: 4}


@pytest.mark.parametrize("text", ['{"version":2}', "[]", '{"version":1,"left":[[0,"v9"]]}', "{"])
def test_a_damaged_note_stops(checkpoint: Checkpoint, text: str) -> None:
    checkpoint.note("left", text)
    with pytest.raises(CheckpointUnreadable, match="eoslog/left is "):
        stood_in(checkpoint, [T], 9, IDS)
