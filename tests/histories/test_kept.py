"""Histories that once broke a promise, shrunk; each has the name of what people did."""

from typing import Any

import pytest

from tests.histories.run_histories import play

KEPT: dict[str, list[tuple[Any, ...]]] = {
    "hand-over while the old query lives": [
        ("query", "A", {"id": "copy", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("follow", "B", "A"),
        ("produce", "in", 4),
        ("run", "B", 1, ("hold", ("plan: before INIT_PRODUCER_ID", 1))),
        ("produce", "in", 3),
        ("run", "A", 1),
        ("wake",),
        ("run", "B", 2),
    ],
    "a group of two queries": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {"id": "y", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("produce", "in", 4),
        ("run", "B", 2),
        ("anew", "A", "committed"),
        ("run", "A", 2),
    ],
    "another transactional.id after a kill between decision and commits": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "id", "z"),
        ("run", "A", 2),
    ],
    "a checkpoint of the session, restored from an older copy": [
        ("query", "A", {"id": "x", "told": "no"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("restore", "A"),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "a token for two topics": [
        ("write", "t1", None, "out", "r1", None),
        ("write", "t1", None, "out2", "r1", None),
    ],
    "a token for other rows": [
        ("write", "job-0", None, "out", "r1", None),
        ("write", "job-0", None, "out", "r2", None),
    ],
    "batch 0 again after the checkpoint was made anew, under its token": [
        ("query", "A", {"token": "job"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("anew", "A", "earliest"),
        ("run", "A", 2),
    ],
    "the cluster restored, the checkpoint newer": [
        ("query", "A", {"id": "x", "kafka.group.id": "g", "most": "3"}),
        ("produce", "in", 12),
        ("run", "A", 1),
        ("snapshot",),
        ("run", "A", 2),
        ("restored",),
        ("run", "A", 2),
    ],
    "the cluster restored under a living query": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 3),
        ("snapshot",),
        ("run", "A", 1),
        ("restored",),
        ("produce", "in", 6),
        ("run", "A", 2),
    ],
    "the cluster restored between two batches of a living query": [
        ("query", "A", {"kafka.group.id": "h"}),
        ("run", "A", 1),
        ("produce", "in", 8),
        ("snapshot",),
        ("run", "A", 1),
        ("restored",),
        ("produce", "in", 1),
        ("run", "A", 2),
    ],
    "another transactional.id after the cluster was restored": [
        ("query", "C", {"id": "C"}),
        ("produce", "in", 4),
        ("snapshot",),
        ("run", "C", 1),
        ("restored",),
        ("set", "C", "id", "x"),
        ("run", "C", 1),
    ],
    "the source's log cut, and grown past the offset": [
        ("query", "A", {"id": "x"}),
        ("produce", "in2", 2),
        ("query", "A", {"id": "x", "in": "in2"}),
        ("run", "A", 1),
        ("keep", "in2"),
        ("produce", "in2", 4),
        ("run", "A", 1),
        ("cut", "in2"),
        ("produce", "in2", 9),
        ("run", "A", 1),
    ],
    "a write without a name, killed sealed": [
        ("write", None, None, "out", "r1", ("kill", ("commit: before TXN_OFFSET_COMMIT", 1))),
    ],
    "stopped in mid-batch": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("stop", ("task: after PRODUCE", 1), 11)),
    ],
    "a task killed, and the query ends": [
        ("query", "A", {"in": "in2"}),
        ("produce", "in2", 1),
        ("run", "A", 1, ("task", ("task: after PRODUCE", 1))),
    ],
    "at_least_once after a kill between decision and commits": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 2))),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("run", "A", 1),
        ("set", "A", "processing.guarantee", "exactly_once"),
        ("run", "A", 1),
    ],
    "failOnDataLoss=false with a planned batch whose topic was made anew": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("delete", "in"),
        ("run", "A", 1),
    ],
    "failOnDataLoss=false with a planned batch one of whose topics was deleted": [
        ("query", "A", {"id": "x", "in": "in,in2"}),
        ("produce", "in", 4),
        ("produce", "in2", 4),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("drop", "in2"),
        ("run", "A", 1),
    ],
    "the same with a group": [
        ("query", "A", {"id": "x", "kafka.group.id": "g", "in": "in,in2"}),
        ("produce", "in", 4),
        ("produce", "in2", 4),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("drop", "in2"),
        ("run", "A", 1),
    ],
    "failOnDataLoss=false with a planned batch whose records were cut off": [
        ("query", "A", {}),
        ("keep", "in"),
        ("produce", "in", 1),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("cut", "in"),
    ],
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    world = play(KEPT[name])
    assert not world.findings, (world.findings, world.told)
