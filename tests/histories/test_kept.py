"""Histories that once broke a promise, shrunk; each has the name of what people did."""

import re
from collections import Counter
from typing import Any

import pytest

from tests.histories import judge
from tests.histories.kept_moves import MOVES
from tests.histories.query import Query
from tests.histories.run_histories import play
from tests.histories.shapes import SINKS


def _lost(options: dict[str, str]) -> list[tuple[Any, ...]]:
    """A batch is decided, and nobody finishes it in time."""
    return [
        ("query", "A", {"id": "x", "kafka.group.id": "g", "two.phase.commit": "false", **options}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("wait", 1000),
    ]


def _handed_over() -> list[tuple[Any, ...]]:
    """B takes A's place, and has not run yet."""
    return [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("stop", "A"),
        ("follow", "B", "A"),
        ("produce", "in", 4),
    ]


AT_LEAST_ONCE = {"processing.guarantee": "at_least_once"}


def _behind(*, group: str | None = "g") -> list[tuple[Any, ...]]:
    """A replica of the sink's partitions has all rows but those of the last batch."""
    return [
        ("query", "A", {"id": "x"} if group is None else {"id": "x", "kafka.group.id": group}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("keep", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
    ]


CUT: dict[str, list[tuple[Any, ...]]] = {
    "a successor, and the sink's log is cut before its first decision": [
        *_behind(),
        ("follow", "B", "A"),
        ("produce", "in", 4),
        ("run", "B", 1, ("hold", ("task: after INIT_PRODUCER_ID", 1))),
        ("cut", "out"),
        ("wake",),
        ("run", "B", 1),
    ],
    "an edit, the checkpoint lost, and the sink's log cut": [
        *_behind(),
        ("edit", "A", -1),
        ("lost", "A", "committed"),
        ("cut", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "the sink's log cut, and then an edit": [
        *_behind(),
        ("cut", "out"),
        ("edit", "A", -1),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "an edit, and then the sink's log is cut": [
        *_behind(),
        ("edit", "A", -1),
        ("cut", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "renamed, and the sink's log is cut before its first decision": [
        *_behind(),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("cut", "out"),
        ("run", "A", 1),
    ],
    "a batch write under the name, the checkpoint lost, and the sink's log cut": [
        *_behind(),
        ("write", None, "x", "out2", "r1", None),
        ("lost", "A", "committed"),
        ("cut", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "at_least_once for a while, and the sink's log cut": [
        *_behind(),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "processing.guarantee", "exactly_once"),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("cut", "out"),
        ("run", "A", 1),
    ],
    "another topic, the checkpoint lost, and the former topic's log cut": [
        *_behind(),
        ("set", "A", "topic", "out2"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("lost", "A", "committed"),
        ("cut", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "a successor without rows, the sink's log cut, and the decisions forgotten": [
        *_behind(group=None),
        ("anew", "A", "committed"),
        ("run", "A", 1),
        ("cut", "out"),
        ("forget", True, True, False),
    ],
    "the sink's log cut, and a successor with another topic": [
        *_behind(group=None),
        ("cut", "out"),
        ("lost", "A", "committed"),
        ("set", "A", "topic", "out2"),
    ],
    "decided again, the checkpoint lost, and the sink's log cut": [
        *_behind(group=None),
        ("forget", False, True, False, False),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("lost", "A", "committed"),
        ("cut", "out"),
        ("run", "A", 1),
    ],
}
"""The last rows of a query are gone, and it or who follows it does not go on as its checkpoint says."""


UNNOTED: dict[str, list[tuple[Any, ...]]] = {
    "without a name, the checkpoint lost, and the source made anew": [("delete", "in"), ("produce", "in", 4)],
    "without a name, the checkpoint lost, and a consumer in its group": [("meddle", "g", True)],
}
"""What takes all that a cluster knows of a query without a transactional.id: the notes in its group."""


def _known_by_notes(lost: list[tuple[Any, ...]], **name: str) -> list[tuple[Any, ...]]:
    """A query's checkpoint is lost, and the notes in its group with it; it is started at latest."""
    return [
        ("query", "A", {"kafka.group.id": "g", **name}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("lost", "A", "latest"),
        *lost,
    ]


_TWO_BATCHES: list[tuple[Any, ...]] = [
    ("query", "A", {"tables": "delta"}), ("produce", "in", 3), ("run", "A", 1), ("produce", "in", 3),
]  # fmt: skip
"""A fan-out with a Delta table: the second batch is to come."""
TABLES = {
    "a table is restored to before the last batch": [
        *_TWO_BATCHES,
        ("run", "A", 1),
        ("table", "delta", "restore", 1),
    ],
    "a table is restored, and back to its last batch": [
        *_TWO_BATCHES,
        ("run", "A", 1),
        ("table", "delta", "restore", 1),
        ("table", "delta", "restore", 1),
    ],
    "a new checkpoint of a fan-out": [*_TWO_BATCHES, ("run", "A", 1), ("anew", "A", "earliest")],
    "a fan-out's checkpoint is restored after a kill, and more has come": [
        *_TWO_BATCHES,
        ("backup", "A"),
        ("run", "A", 1, ("kill", ("spark: after table", 1))),
        ("restore", "A"),
        ("produce", "in", 2),
    ],
    "a table that two fan-outs share is restored to before both": [
        ("query", "A", {"tables": "delta,delta2"}),
        ("query", "B", {"tables": "delta,delta2", "id": "b"}),
        ("produce", "in", 3),
        ("run", "A", 1),
        ("produce", "in", 3),
        ("run", "A", 1, ("kill", ("spark: after table", 2))),
        ("run", "B", 1),
        ("table", "delta2", "restore", 1),
    ],
}
"""What people do to a fan-out's tables."""
_LEFT: list[tuple[Any, ...]] = [
    ("query", "A", {"id": "x", "kafka.group.id": "g", "in": "in,in2"}),
    ("produce", "in", 4),
    ("produce", "in2", 4),
    ("run", "A", 1),
    ("out", "A", "in2"),
    ("produce", "in2", 2),
]
KEPT: dict[str, list[tuple[Any, ...]]] = {
    **CUT,
    **TABLES,
    **MOVES,
    "killed while its rows become visible, partition by partition": [
        ("cluster", 2, False),
        ("query", "A", {"id": "x", "small": "0"}),
        ("produce", "in", 8),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 2))),
    ],
    "a topic leaves and is added again": [*_LEFT, ("add", "A", "in2"), ("run", "A", 1)],
    "a topic leaves and is added again at its end": [*_LEFT, ("add", "A", "in2", "latest"), ("run", "A", 1)],
    "a topic leaves and is added again at its beginning": [*_LEFT, ("add", "A", "in2", "0"), ("run", "A", 1)],
    "a topic is made anew, is as long as before, and the broker starts again": [
        ("query", "B", {"in": "in2"}),
        ("produce", "in2", 4),
        ("run", "B", 1),
        ("delete", "in2"),
        ("restart",),
    ],
    "a topic grows under a living application": [
        ("query", "B", {"small": "0"}),
        ("living", "B", True),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("grow", "in"),
    ],
    "a driver stands still in its first batch, and the cluster forgets what another one has done": [
        ("query", "C", {}),
        ("produce", "in", 1),
        ("run", "C", 1, ("hold", 30)),
        ("run", "C", 1),
        ("forget", True, True, False),
    ],
    "a copy, its group is deleted, and a power cut takes the only batch's plan": [
        ("query", "B", {}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("backup", "B"),
        ("forget", False, True, False, False),
        ("restore", "B"),
        ("blackout", "B", 2),
    ],
    "a part of a batch is lost, and the topic is made anew": [
        ("cluster", 2, False),
        ("query", "A", {"in": "files"}),
        ("produce", "files", 2),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 2))),
        ("delete", "out"),
        ("wait", 1000),
    ],
    "the sink's log cut, the checkpoint lost, and transactional ids forgotten": [
        ("query", "B", {"in": "in,in2", "id": "B"}),
        ("keep", "out"),
        ("produce", "in2", 1),
        ("run", "B", 1),
        ("cut", "out"),
        ("lost", "B", "latest"),
        ("forget", True, False, False),
    ],
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
    "a topic left out, the checkpoint lost, and the topic read again": [
        ("query", "A", {"in": "in,in2", "id": "A"}),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("out", "A", "in"),
        ("lost", "A", "earliest"),
    ],
    "the checkpoint lost, a topic left out, the group forgotten, and the topic read again": [
        ("query", "A", {"in": "in,in2", "id": "A"}),
        ("produce", "in2", 1),
        ("run", "A", 1),
        ("lost", "A", "committed"),
        ("out", "A", "in2"),
        ("forget", True, True, False),
    ],
    "a copy tried with the query's group, and the query begins anew at its offsets": [
        ("query", "C", {"kafka.group.id": "g"}),
        ("produce", "in", 1),
        ("run", "C", 1),
        ("produce", "in", 1),
        ("tried", "C", "out2", 1),
        ("anew", "C", "committed"),
    ],
    "a source renamed when its topic was made anew": [
        ("query", "A", {"starting": "latest", "named": "orders"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("delete", "in"),
        ("rename", "A", "sales"),
    ],
    "a copy has decided last, and another query follows at its offsets": [
        ("query", "A", {}),
        ("query", "B", {"in": "in,in2", "out": "out2", "id": "x", "small": "0"}),
        ("produce", "in2", 2),
        ("run", "B", 2),
        ("produce", "in", 2),
        ("run", "B", 1, ("kill", ("plan: after OFFSET_FETCH", 1))),
        ("tried", "B", "out", 2),
        ("follow", "A", "B"),
    ],
    "the sink's log is cut while the query lives": [
        ("query", "A", {"id": "A"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("keep", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("cut", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "the sink's log is cut, and a query under at_least_once follows": [
        ("query", "A", {"processing.guarantee": "at_least_once", "small": "0"}),
        ("query", "B", {"kafka.group.id": "g", "id": "x", "small": "0"}),
        ("produce", "in", 3),
        ("keep", "out"),
        ("run", "B", 2),
        ("follow", "A", "B"),
        ("cut", "out"),
    ],
    "a part of the rows is lost and written again, and the query is started again": [
        ("cluster", 2, False),
        ("query", "A", {"id": "x", "on.lost.transaction": "replay", "small": "0"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 3))),
        ("wait", 1000),
        ("run", "A", 1),
        ("kill", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
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
    "another transactional.id beside a token in mid-batch": [
        ("query", "A", {"token": "job"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "id", "x"),
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
    "batch 0 again after the checkpoint was created again, under its token": [
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
    "startingOffsets changed after a kill in the first batch": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("says", "A", "latest"),
        ("run", "A", 1),
    ],
    "a source renamed, and read again to where the former one ended": [
        ("query", "A", {"id": "x", "named": "orders"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("kill", "A"),
        ("rename", "A", "sales"),
        ("run", "A", 1),
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
    "failOnDataLoss=false with a planned batch whose topic was created again": [
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
    "a token's query on an older copy of its checkpoint": [
        ("query", "A", {"token": "job"}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("restore", "A"),
    ],
    "at_least_once from a group that another query moves on": [
        ("query", "A", {"in": "in2", "processing.guarantee": "at_least_once", "kafka.group.id": "g"}),
        ("query", "B", {"in": "in2"}),
        ("produce", "in2", 6),
        ("run", "A", 2),
        ("run", "B", 2),
        ("set", "B", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("produce", "in2", 5),
        ("run", "B", 1),
        ("run", "A", 1),
    ],
    "handed over between decision and commits, at_least_once": [
        ("query", "A", {}),
        ("query", "B", {"id": "B", "kafka.group.id": "group-B"}),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("produce", "in", 3),
        ("run", "B", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "B", "processing.guarantee", "at_least_once"),
        ("follow", "A", "B"),
        ("run", "A", 3),
    ],
    "handed over between decision and commits, at_least_once, no name before": [
        ("query", "A", {}),
        ("query", "B", {"kafka.group.id": "group-B"}),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("produce", "in", 3),
        ("run", "B", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "B", "processing.guarantee", "at_least_once"),
        ("follow", "A", "B"),
        ("run", "A", 3),
    ],
    "handed over between decision and commits, the name changed": [
        ("query", "A", {}),
        ("query", "B", {"id": "B", "kafka.group.id": "group-B"}),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("produce", "in", 3),
        ("run", "B", 1, ("kill", ("commit: after END_TXN", 1))),
        ("follow", "A", "B"),
        ("set", "A", "id", "x"),
        ("run", "A", 3),
    ],
    "small batches, killed between decision and commits": [
        ("query", "A", {"id": "A", "kafka.group.id": "g", "small": "100"}),
        ("produce", "in", 6),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("produce", "in", 3),
        ("run", "A", 2),
    ],
    "small batches, stopped in mid-batch, and created again at the group": [
        ("query", "A", {"id": "A", "kafka.group.id": "g", "small": "100"}),
        ("produce", "in", 6),
        ("run", "A", 1),
        ("produce", "in", 6),
        ("run", "A", 1, ("stop", ("task: after PRODUCE", 1), 11)),
        ("anew", "A", "committed"),
        ("produce", "in", 2),
        ("run", "A", 2),
    ],
    "small batches with a token, killed in a task": [
        ("query", "A", {"token": "job", "small": "100"}),
        ("produce", "in", 6),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("run", "A", 2),
    ],
    "the old query under another name, before its successor has read anything": [
        ("query", "A", {}),
        ("query", "B", {"in": "in2", "id": "B", "kafka.group.id": "group-B"}),
        ("produce", "in2", 1),
        ("run", "B", 1),
        ("follow", "A", "B"),
        ("set", "B", "id", "x"),
        ("run", "A", 1),
        ("produce", "in2", 1),
        ("run", "B", 2),
    ],
    "from a group that another query has joined": [
        ("query", "A", {"id": "x", "in": "in2", "kafka.group.id": "g"}),
        ("query", "B", {"in": "in2"}),
        ("produce", "in2", 6),
        ("run", "A", 2),
        ("run", "B", 2),
        ("set", "B", "kafka.group.id", "g"),
        ("produce", "in2", 5),
        ("run", "B", 1),
        ("anew", "A", "committed"),
        ("run", "A", 1),
    ],
    "from a group that another query has joined, by a source alone": [
        ("query", "A", {}),
        ("query", "B", {"id": "B"}),
        ("produce", "in", 6),
        ("set", "A", "kafka.group.id", "g"),
        ("run", "A", 2),
        ("run", "B", 2),
        ("set", "B", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("set", "A", "kafka.group.id", None),
    ],
    "from a group that another query has joined, by a source alone, at_least_once": [
        ("query", "A", {"processing.guarantee": "at_least_once"}),
        ("query", "B", {"id": "B"}),
        ("produce", "in", 6),
        ("set", "A", "kafka.group.id", "g"),
        ("run", "A", 2),
        ("run", "B", 2),
        ("set", "B", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("set", "A", "kafka.group.id", None),
    ],
    "from a group that another query has joined, into a group of the sink's own": [
        ("query", "A", {}),
        ("query", "B", {"id": "B"}),
        ("produce", "in", 6),
        ("set", "A", "kafka.group.id", "g"),
        ("run", "A", 2),
        ("run", "B", 2),
        ("set", "B", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("set", "A", "kafka.group.id", "h"),
    ],
    "stopped in its first batch, with records to read": [
        ("query", "A", {"id": "A", "kafka.group.id": "group-A"}),
        ("query", "B", {}),
        ("produce", "in", 1),
        ("now", "A"),
        ("follow", "B", "A"),
        ("set", "B", "told", "no"),
    ],
    "failOnDataLoss=false with a planned batch in a log that is shorter now": [
        ("query", "A", {"in": "in2"}),
        ("keep", "in2"),
        ("produce", "in2", 5),
        ("run", "A", 1, ("task", 37)),
        ("cut", "in2"),
    ],
    "lost after the decision, by time-out": [
        ("query", "A", {"two.phase.commit": "false"}),
        ("produce", "in", 1),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("wait", 1000),
    ],
    "lost after the decision, by time-out, at_most_once": [
        ("query", "A", {"two.phase.commit": "false", "processing.guarantee": "at_most_once"}),
        ("produce", "in", 1),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("wait", 1000),
    ],
    "a copy of the checkpoint goes on, the newest one was put aside": [
        ("query", "A", {"most": "3"}),
        ("query", "B", {}),
        ("produce", "in", 6),
        ("run", "A", 1),
        ("backup", "A"),
        ("run", "A", 2, None),
        ("restore", "A"),
        ("fork", "B", "A", True),
    ],
    "the old query again after a hand-over": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("kill", "A"),
        ("follow", "B", "A"),
        ("produce", "in", 4),
        ("run", "B", 3),
        ("run", "A", 2),
    ],
    "the source's log cut, and a start by hand from the checkpoint's line": [
        ("query", "B", {}),
        ("keep", "in"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("cut", "in"),
        ("set", "B", "kafka.group.id", "g"),
        ("anew", "B", "committed"),
    ],
    "the old query again after a hand-over, under another group": [
        ("query", "A", {"in": "in,in2", "id": "A", "kafka.group.id": "g"}),
        ("query", "B", {"id": "B", "kafka.group.id": "group-B"}),
        ("produce", "in2", 3),
        ("run", "A", 2),
        ("produce", "in", 3),
        ("follow", "B", "A"),
        ("run", "B", 3),
        ("fork", "B", "A", True),
        ("set", "B", "kafka.group.id", "h"),
    ],
    "the old query again after a hand-over, under another transactional.id": [
        ("query", "A", {"in": "in,in2", "id": "x", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("produce", "in", 5),
        ("run", "A", 2),
        ("produce", "in2", 4),
        ("follow", "B", "A"),
        ("run", "B", 3),
        ("set", "A", "id", "y"),
        ("run", "A", 2),
    ],
    "a copy of the old checkpoint after a hand-over, as a query of its own": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("query", "C", {}),
        ("produce", "in", 5),
        ("run", "A", 2),
        ("follow", "B", "A"),
        ("produce", "in", 4),
        ("run", "B", 3),
        ("fork", "C", "A", False),
        ("run", "C", 2),
    ],
    "another transactional.id after a kill before the decision, sealed": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: before TXN_OFFSET_COMMIT", 1))),
        ("set", "A", "id", "z"),
        ("run", "A", 1),
    ],
    "at_least_once from now on, after a kill between decision and commits": [
        ("query", "A", {}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("run", "A", 1),
    ],
    "at_least_once for a while, on a checkpoint that it is not to see": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("set", "A", "start.accepted", "no-checkpoint:1"),
        ("set", "A", "told", "no"),
        ("run", "A", 1),
        ("set", "A", "processing.guarantee", "exactly_once"),
        ("set", "A", "told", "yes"),
        ("run", "A", 1),
    ],
    "the source created again, and longer than before": [
        ("query", "A", {"id": "x", "in": "in2"}),
        ("produce", "in2", 2),
        ("run", "A", 1),
        ("delete", "in2"),
        ("produce", "in2", 5),
        ("run", "A", 1),
    ],
    "a copy of a task writes when all is done": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("copy", 0, 0)),
        ("run", "A", 1, ("copy", 0, 1)),
    ],
    "a cluster that offers two-phase commit no longer, with a batch sealed and not decided": [
        ("query", "C", {}),
        ("produce", "in", 1),
        ("run", "C", 1, ("kill", ("commit: before TXN_OFFSET_COMMIT", 1))),
        ("cluster", 1, False),
    ],
    "a group of two queries, the other one at_least_once": [
        ("query", "A", {"kafka.group.id": "g"}),
        ("query", "B", {"processing.guarantee": "at_least_once", "kafka.group.id": "g"}),
        ("run", "B", 2),
        ("produce", "in", 3),
        ("run", "A", 2),
        ("anew", "A", "committed"),
    ],
    "a group of two queries, both at_least_once": [
        ("query", "A", {"processing.guarantee": "at_least_once", "kafka.group.id": "g"}),
        ("query", "B", {"processing.guarantee": "at_least_once", "kafka.group.id": "g"}),
        ("run", "B", 2),
        ("produce", "in", 3),
        ("run", "A", 2),
        ("anew", "A", "committed"),
    ],
    "at_least_once for a while, with a group": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("set", "A", "processing.guarantee", "exactly_once"),
        ("run", "A", 1),
    ],
    "the cluster restored, and at_least_once from now on": [
        ("query", "B", {}),
        ("produce", "in", 1),
        ("snapshot",),
        ("run", "B", 1),
        ("restored",),
        ("set", "B", "processing.guarantee", "at_least_once"),
    ],
    "at_least_once on a checkpoint of the session, after a kill": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("set", "A", "told", "no"),
    ],
    "at_least_once on a new checkpoint, under its name of before": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("anew", "A", "earliest"),
        ("run", "A", 1),
    ],
    "at_least_once under a dead query's name": [
        ("query", "A", {"id": "x"}),
        ("query", "B", {"processing.guarantee": "at_least_once", "id": "x"}),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("stop", "B"),
        ("anew", "A", "earliest"),
        ("set", "A", "id", None),
        ("run", "B", 1),
    ],
    "a copy of a checkpoint as a query of its own, whose query was begun anew at its group": [
        ("query", "A", {}),
        ("query", "B", {"in": "in2", "kafka.group.id": "group-B"}),
        ("run", "B", 1),
        ("produce", "in2", 1),
        ("fork", "A", "B", False),
        ("run", "B", 1),
        ("anew", "B", "committed"),
    ],
    "an old query, when a third one has moved the group of the hand-over": [
        ("query", "A", {"kafka.group.id": "g", "processing.guarantee": "at_least_once"}),
        (
            "query",
            "B",
            {"out": "out", "id": "x", "kafka.group.id": "h", "starting": "latest", "ahead": "yes"},
        ),
        ("query", "C", {"in": "in", "out": "out", "kafka.group.id": "g", "id": "x", "starting": "earliest"}),
        ("produce", "in", 6),
        ("run", "C", 2),
        ("produce", "in", 5),
        ("follow", "B", "C"),
        ("run", "B", 3),
        ("produce", "in", 3),
        ("now", "C"),
        ("run", "A", 2, None),
        ("run", "C", 1, ("stop", ("spark: before commits", 1), 8)),
    ],
    "somebody's consumer ran ahead in the group of a lost checkpoint": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("produce", "in", 20),
        ("meddle", "g", True),
        ("anew", "A", "committed"),
        ("run", "A", 2),
    ],
    "the same in the group by default": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("produce", "in", 20),
        ("meddle", "x/offsets", True),
        ("anew", "A", "committed"),
        ("run", "A", 2),
    ],
    "a group is renamed, and a new checkpoint begins from the old one": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("set", "A", "kafka.group.id", "h"),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("set", "A", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("produce", "in", 10),
        ("run", "A", 2),
    ],
    "a group is left out for a while, and a new checkpoint begins from it": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("set", "A", "kafka.group.id", None),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("set", "A", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("produce", "in", 10),
        ("run", "A", 2),
    ],
    "a lost checkpoint of a query that has a transactional.id alone": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 10),
        ("run", "A", 1),
        ("produce", "in", 10),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("anew", "A", "committed"),
        ("produce", "in", 10),
        ("run", "A", 2),
    ],
    "an older copy of a checkpoint, whose batch is planned with other files": [
        ("query", "A", {"id": "x", "in": "files"}),
        ("produce", "files", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("backup", "A"),
        ("produce", "files", 3),
        ("run", "A", 1),
        ("restore", "A"),
        ("produce", "files", 2),
        ("run", "A", 2),
    ],
    "restored from a copy older than the first run, and others hold readers back": [
        ("query", "A", {}),
        ("query", "C", {"in": "files"}),
        ("produce", "in", 2),
        ("produce", "files", 5),
        ("snapshot",),
        ("produce", "files", 3),
        ("run", "C", 1),
        ("forget", False, False),
        ("restored",),
        ("write", "t1", "x", "out", "r2", None),
        ("run", "A", 1, ("kill", ("commit: after INIT_PRODUCER_ID", 1))),
    ],
    "decisions forgotten after a restored copy older than the last batch": [
        ("query", "A", {"in": "in2"}),
        ("produce", "in2", 1),
        ("run", "A", 1),
        ("produce", "in2", 1),
        ("snapshot",),
        ("run", "A", 2),
        ("restored",),
        ("forget", False, True),
    ],
    "a copy of a checkpoint is tried out into another topic": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("produce", "in", 4),
        ("tried", "A", "out2", 1),
        ("run", "A", 2),
    ],
    "the same without names, in the middle of a batch": [
        ("query", "A", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: after offsets", 1))),
        ("tried", "A", "out2", 1),
        ("run", "A", 2),
    ],
    "another group in a living application, then a hand-over": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {"kafka.group.id": "q"}),
        ("living", "A", True),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("set", "A", "kafka.group.id", "h"),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("follow", "B", "A"),
        ("produce", "in", 4),
        ("run", "B", 2),
        ("produce", "in", 3),
        ("run", "A", 2),
    ],
    "a power cut takes the last batch's plan": [
        ("query", "A", {"id": "x", "checkpoint.sync": "false"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("produce", "in", 4),
        ("blackout", "A", 2),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "the checkpoint is deleted after a kill in a commit, and written again": [
        ("query", "A", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("rebuilt", "A"),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "the same with a group, twice, in a living application": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("living", "A", True),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("rebuilt", "A"),
        ("run", "A", 2),
        ("rebuilt", "A"),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "a copy is tried out into another topic, and the checkpoint deleted": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("tried", "A", "out2", 1),
        ("rebuilt", "A"),
        ("run", "A", 2),
    ],
    "written again, and the brokers are put back to before": [
        ("query", "B", {}),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("snapshot",),
        ("run", "B", 1),
        ("rebuilt", "B"),
        ("restored",),
    ],
    "written again where another has gone on, and again there": [
        ("query", "A", {"two.phase.commit": "false", "small": "0"}),
        ("query", "B", {"id": "B", "small": "0"}),
        ("produce", "in", 5),
        ("run", "B", 2),
        ("follow", "A", "B"),
        ("run", "A", 3),
        ("rebuilt", "B"),
        ("produce", "in", 4),
        ("run", "B", 2),
        ("rebuilt", "B"),
    ],
    "brokers that are put back give an id again, and its first owner starts in the middle of a write": [
        ("query", "A", {"named": "orders"}),
        ("query", "B", {"id": "x", "token": "job", "small": "0"}),
        ("produce", "in", 2),
        ("snapshot",),
        ("run", "A", 3, None),
        ("restored",),
        ("produce", "in", 5),
        ("run", "B", 1, ("hold", 105)),
        ("run", "A", 2, ("stop", 30, 2)),
    ],
    "a power cut takes two of Spark's notes and no plan, all is forgotten, and the topic made anew": [
        ("query", "A", {"out": "out2", "most": "3"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("blackout", "A", 2),
        ("forget", True, True, False),
        ("delete", "out2"),
    ],
    "a power cut takes two of Spark's notes and no plan, and the brokers are restored": [
        ("query", "A", {"id": "x", "most": "3"}),
        ("produce", "in", 12),
        ("run", "A", 1),
        ("snapshot",),
        ("run", "A", 2),
        ("blackout", "A", 2),
        ("restored",),
    ],
    "a power cut takes the last batch's plan, of files": [
        ("query", "A", {"id": "x", "in": "files", "checkpoint.sync": "false"}),
        ("produce", "files", 4),
        ("run", "A", 1),
        ("produce", "files", 4),
        ("run", "A", 1),
        ("blackout", "A", 1),
        ("produce", "files", 2),
        ("run", "A", 2),
    ],
    "a topic leaves and is named again": [
        ("query", "A", {"id": "x", "in": "in,in2"}),
        ("produce", "in", 4),
        ("produce", "in2", 4),
        ("run", "A", 1),
        ("out", "A", "in2"),
        ("produce", "in", 2),
        ("run", "A", 1),
        ("back", "A"),
        ("produce", "in2", 3),
        ("run", "A", 1),
    ],
    "the sink's brokers restored from a copy older than the first run, after a rest": [
        ("query", "A", {"id": "x", "in": "files"}),
        ("snapshot",),
        ("produce", "files", 4),
        ("now", "A"),
        ("produce", "files", 4),
        ("now", "A"),
        ("wait", 8 * 24 * 3600.0),
        ("restored",),
    ],
    "the same, and others have written there since": [
        ("query", "A", {"id": "x", "in": "files"}),
        ("query", "B", {"id": "y", "in": "files"}),
        ("snapshot",),
        ("produce", "files", 4),
        ("now", "A"),
        ("wait", 8 * 24 * 3600.0),
        ("restored",),
        ("now", "B"),
    ],
    "lost after the decision, and another transactional.id": [
        *_lost({"processing.guarantee": "at_most_once"}),
        ("set", "A", "id", "z"),
        ("run", "A", 1),
    ],
    "lost after the decision, and a new checkpoint": [
        *_lost({"processing.guarantee": "at_most_once"}),
        ("anew", "A", "committed"),
        ("run", "A", 1),
    ],
    "lost after the decision, and a new checkpoint with replay": [
        *_lost({}),
        ("anew", "A", "committed"),
        ("run", "A", 1),
    ],
    "lost after the decision, and both are new": [
        *_lost({"processing.guarantee": "at_most_once"}),
        ("set", "A", "id", "z"),
        ("anew", "A", "committed"),
        ("run", "A", 1),
    ],
    "lost after the decision, and handed over": [
        ("query", "B", {}),
        *_lost({"processing.guarantee": "at_most_once"}),
        ("follow", "B", "A"),
        ("run", "B", 1),
    ],
    "lost after the decision, and at_least_once from now on": [
        *_lost({}),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("run", "A", 1),
    ],
    "lost after the decision, and transactional ids are forgotten": [
        *_lost({"processing.guarantee": "at_most_once"}),
        ("forget", True, False),
    ],
    "transactional ids are forgotten, and the topic is made anew": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, False),
        ("delete", "out"),
    ],
    "lost in part, and killed while it is replayed": [
        (
            "query",
            "A",
            {"id": "x", "two.phase.commit": "false", "on.lost.transaction": "replay", "small": "0"},
        ),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 2))),
        ("wait", 1000),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("run", "A", 1),
    ],
    "a forgotten decision, and killed while it is made again": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True),
        ("run", "A", 1, ("kill", ("plan: before END_TXN", 1))),
        ("run", "A", 1),
    ],
    "killed before Spark noted it, and all is forgotten, the rows too": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True, True),
    ],
    "killed before its decision, and all is forgotten, the rows too": [
        ("query", "A", {}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("forget", True, True, True),
    ],
    "visible in part, and all is forgotten, of files": [
        ("cluster", 1, False),
        ("query", "B", {"in": "files", "id": "B", "kafka.group.id": "group-B", "two.phase.commit": "false"}),
        ("produce", "files", 2),
        ("run", "B", 1, ("kill", ("commit: after END_TXN", 2))),
        ("forget", True, True, False),
    ],
    "an older copy of the checkpoint, when the rows are forgotten as well": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("backup", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("forget", True, True, True),
        ("restore", "A"),
    ],
    "two-phase commit is switched off, and the answer to a seal is lost": [
        ("query", "A", {"small": "0"}),
        ("produce", "in", 2),
        ("run", "A", 1, ("hold", ("commit: after INIT_PRODUCER_ID", 1))),
        ("cluster", 2, False),
    ],
    "a topic leaves in the middle of a batch, and comes back": [
        ("query", "A", {"in": "in,in2", "id": "A"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("produce", "in2", 4),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("out", "A", "in2"),
        ("run", "A", 1),
        ("back", "A"),
    ],
    "a topic leaves with a renamed source, and comes back": [
        ("produce", "in", 1),
        ("query", "A", {"in": "in,in2", "named": "orders"}),
        ("run", "A", 1),
        ("rename", "A", "returns"),
        ("out", "A", "in"),
    ],
    "a topic leaves with the checkpoint, and comes back": [
        ("query", "B", {"in": "in,in2", "kafka.group.id": "group-B"}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("lost", "B", "latest"),
        ("out", "B", "in"),
    ],
    "an older copy from before the first rows, when the rows are forgotten as well": [
        ("query", "A", {}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("restore", "A"),
        ("forget", True, True, True),
    ],
    "a rest, in which the cluster forgets": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("now", "A"),
        ("forget", True, True),
        ("produce", "in", 4),
        ("now", "A"),
    ],
    "killed before Spark noted it, and transactional ids are forgotten": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, False),
    ],
    "killed before Spark noted it, and the decision is forgotten": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True),
    ],
    "the same in the first batch": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", False, True),
    ],
    "killed before the decision, and all is forgotten": [
        ("query", "A", {"id": "x", "two.phase.commit": "false"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("forget", True, True),
    ],
    "a day with Spark's connector": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("sparkday", "A"),
    ],
    "a day with Spark's connector on a copy, and the old query started again": [
        ("query", "A", {}),
        ("query", "B", {"most": "3"}),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("fork", "A", "B", True),
        ("sparkday", "A"),
        ("now", "B"),
    ],
    "two days with Spark's connector, with a group": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("sparkday", "A"),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("produce", "in", 4),
        ("sparkday", "A"),
        ("run", "A", 2),
    ],
    "a day with Spark's connector after a rest": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("forget", True, True),
        ("produce", "in", 4),
        ("sparkday", "A"),
    ],
    "a day with Spark's connector, and the source made anew": [
        ("query", "A", {}),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("sparkday", "A"),
        ("delete", "in"),
    ],
    "the source's log cut, the checkpoint lost, and as much written there again": [
        ("query", "B", {"id": "x"}),
        ("keep", "in"),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("cut", "in"),
        ("lost", "B", "latest"),
    ],
    "the source's log cut, the checkpoint lost, with a group alone": [
        ("query", "B", {"kafka.group.id": "h"}),
        ("keep", "in"),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("cut", "in"),
        ("lost", "B", "latest"),
    ],
    "the source's log cut, the checkpoint lost, as at_least_once": [
        ("query", "B", {"id": "x", "kafka.group.id": "h", "processing.guarantee": "at_least_once"}),
        ("keep", "in"),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("cut", "in"),
        ("lost", "B", "latest"),
    ],
    "set forth by hand in a log that was cut": [
        ("query", "B", {}),
        ("keep", "in"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("cut", "in"),
        ("produce", "in", 5),
        ("edit", "B", 2),
    ],
    "set back by hand in a log that was cut": [
        ("query", "B", {}),
        ("keep", "in"),
        ("produce", "in", 8),
        ("run", "B", 1),
        ("cut", "in"),
        ("produce", "in", 12),
        ("edit", "B", -1),
    ],
    "set back by hand, and then the log is cut": [
        ("query", "B", {}),
        ("keep", "in"),
        ("produce", "in", 8),
        ("run", "B", 1),
        ("edit", "B", -1),
        ("cut", "in"),
        ("produce", "in", 12),
    ],
    "a copy is set back by hand that is to be a query of its own": [
        ("query", "A", {}),
        ("query", "B", {"in": "in2"}),
        ("produce", "in2", 2),
        ("run", "B", 2),
        ("produce", "in2", 2),
        ("fork", "A", "B", False),
        ("run", "B", 3, ("stop", ("spark: before commits", 2), 6)),
        ("edit", "A", -3),
        ("set", "B", "id", "z"),
    ],
    "set back by hand, and the checkpoint lost": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("edit", "A", -1),
        ("lost", "A", "committed"),
    ],
    "set forth by hand, and the checkpoint lost": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("edit", "A", 1),
        ("lost", "A", "committed"),
    ],
    "renamed, and a backup of before the change starts under the old name": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("backup", "A"),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("restore", "A"),
        ("set", "A", "id", "x"),
        ("run", "A", 2),
    ],
    "renamed, the checkpoint lost, and the old name given": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "x"),
        ("anew", "A", "committed"),
        ("run", "A", 2),
    ],
    "the name left out, the checkpoint lost, and the old name given": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", None),
        ("set", "A", "kafka.group.id", None),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "x"),
        ("set", "A", "kafka.group.id", "g"),
        ("anew", "A", "committed"),
        ("run", "A", 2),
    ],
    "renamed and named back in a living application, and a backup of between": [
        ("query", "A", {"id": "x"}),
        ("living", "A", True),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("backup", "A"),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("restore", "A"),
        ("set", "A", "id", "x"),
        ("run", "A", 2),
    ],
    "renamed, killed before its first batch, and named back": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("set", "A", "id", "x"),
        ("run", "A", 2),
    ],
    "renamed and named back": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "z"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "id", "x"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "another name at the offsets of the old one, which starts again": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("follow", "B", "A"),
        ("set", "B", "id", "z"),
        ("set", "B", "start.accepted", "offsets-of:x:0"),
        ("set", "B", "kafka.group.id", "h"),
        ("produce", "in", 4),
        ("run", "B", 2),
        ("run", "A", 2),
    ],
    "at_least_once on a new checkpoint, and the old one again": [
        ("query", "A", {"id": "x"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("follow", "B", "A"),
        ("set", "B", "processing.guarantee", "at_least_once"),
        ("produce", "in", 4),
        ("run", "B", 2),
        ("stop", "B"),
        ("run", "A", 2),
    ],
    "a lost checkpoint, and at latest with a partition that is new": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("grow", "in"),
        ("produce", "in", 1),
        ("lost", "A", "latest"),
        ("run", "A", 1),
    ],
    "the same at_least_once, with a group": [
        ("query", "A", {"id": "x", "kafka.group.id": "g", "processing.guarantee": "at_least_once"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("grow", "in"),
        ("produce", "in", 1),
        ("lost", "A", "latest"),
        ("run", "A", 1),
    ],
    "at_least_once from now on, and the same": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("grow", "in"),
        ("produce", "in", 1),
        ("lost", "A", "latest"),
        ("run", "A", 1),
    ],
    "a lost checkpoint, and at latest of a topic that was made anew": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("delete", "in"),
        ("produce", "in", 4),
        ("lost", "A", "latest"),
        ("run", "A", 1),
    ],
    "a lost checkpoint, and at earliest of a topic that was made anew": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("delete", "in"),
        ("produce", "in", 4),
        ("lost", "A", "earliest"),
        ("run", "A", 1),
    ],
    "a power cut takes the note of a decision that the cluster has forgotten, and the name changes": [
        ("query", "A", {"in": "files", "id": "A"}),
        ("produce", "files", 1),
        ("run", "A", 1),
        ("forget", False, True),
        ("set", "A", "id", None),
        ("blackout", "A", 1),
    ],
    "killed before Spark noted it, all is forgotten, and the names change": [
        ("query", "A", {"id": "A", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True),
        ("set", "A", "id", "z"),
        ("set", "A", "kafka.group.id", "h"),
        ("run", "A", 1),
    ],
    "restored from a copy older than a batch without rows, and a day with Spark's connector": [
        ("query", "A", {"in": "in2"}),
        ("snapshot",),
        ("run", "A", 1),
        ("restored",),
        ("produce", "in2", 1),
        ("sparkday", "A"),
    ],
    "the same after a batch with rows": [
        ("query", "A", {"in": "in2"}),
        ("snapshot",),
        ("produce", "in2", 3),
        ("run", "A", 1),
        ("restored",),
        ("produce", "in2", 5),
        ("sparkday", "A"),
    ],
    "at least once: the topic is made anew behind a day with Spark's connector, and set back": [
        ("query", "A", {"processing.guarantee": "at_least_once"}),
        ("produce", "in", 1),
        ("now", "A"),
        ("sparkday", "A"),
        ("delete", "in"),
    ],
    "who hangs before its decision wakes up after another driver has made it": [
        ("query", "A", {"id": "A"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("hold", ("task: after DESCRIBE_TRANSACTIONS", 1))),
        ("run", "A", 1),
        ("stop", "A"),
        ("wake",),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "a living query writes on behind rows that an elected leader lacks, and others do too": [
        ("query", "A", {"small": "0"}),
        ("query", "C", {"in": "in,in2", "id": "C", "starting": "latest", "most": "3"}),
        ("run", "C", 1),
        ("keep", "out"),
        ("produce", "in", 4),
        ("run", "C", 1),
        ("cut", "out"),
        ("now", "A"),
        ("produce", "in", 5),
        ("run", "C", 2),
    ],
    "an older copy of a checkpoint of files, whose refused start has planned new ones": [
        ("produce", "files", 1),
        ("query", "B", {"in": "files", "kafka.transaction.timeout.ms": "20000"}),
        ("run", "B", 1),
        ("backup", "B"),
        ("produce", "files", 3),
        ("run", "B", 1, ("kill", ("commit: before END_TXN", 2))),
        ("blackout", "B", 2),
        ("produce", "files", 2),
        ("run", "B", 2),
        ("blackout", "B", 2),
        ("restore", "B"),
    ],
    "an older copy of the checkpoint, when the cluster has forgotten all": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("backup", "A"),
        ("stop", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("forget", True, True),
        ("restore", "A"),
    ],
    "decided behind another application's open transaction, and the decision is deleted": [
        ("query", "A", {"id": "x"}),
        ("stranger", "out"),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 2))),
        ("forget", False, True, False, False),
    ],
    "an older copy of the checkpoint, and another application's transaction hides the later rows": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("backup", "A"),
        ("stranger", "out"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("restore", "A"),
        ("forget", True, True, False, False),
    ],
    "an older copy of a checkpoint whose batches had no rows, when the cluster has forgotten all": [
        ("query", "B", {}),
        ("run", "B", 1),
        ("backup", "B"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", True, True, False),
    ],
    "the same, and its rows name their topic": [
        ("query", "B", {"rows": "yes"}),
        ("run", "B", 1),
        ("backup", "B"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", True, True, False),
    ],
    "the same, and its group alone is deleted": [
        ("query", "B", {"rows": "yes", "id": "x"}),
        ("run", "B", 1),
        ("backup", "B"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", False, True, False, False),
    ],
    "a copy of a first batch, whose rows name their topic, when the cluster has forgotten all": [
        ("query", "B", {"rows": "yes"}),
        ("produce", "in", 1),
        ("run", "B", 1, ("kill", ("task: after INIT_PRODUCER_ID", 1))),
        ("backup", "B"),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", True, True, False),
    ],
    "the same copy, and its group alone is deleted": [
        ("query", "B", {"rows": "yes"}),
        ("produce", "in", 1),
        ("run", "B", 1, ("kill", ("task: after INIT_PRODUCER_ID", 1))),
        ("backup", "B"),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", False, True, False, False),
    ],
    "an older copy of before its rows went to another topic, when the cluster has forgotten all": [
        ("query", "B", {}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("backup", "B"),
        ("set", "B", "topic", "out2"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", True, True, False),
    ],
    "rows go to a topic of long ago again, and an older copy is put back when the cluster has forgotten": [
        ("query", "B", {"rows": "yes"}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("set", "B", "topic", "out2"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("backup", "B"),
        ("set", "B", "topic", "out"),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("restore", "B"),
        ("forget", True, True, False),
    ],
    "killed in its first batch, and others wrote to the topic, whose rows are removed": [
        ("query", "A", {"id": "x"}),
        ("query", "B", {"id": "b"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after INIT_PRODUCER_ID", 1))),
        ("run", "B", 2),
        ("forget", True, True, True),
    ],
    "a rest beside the dead letters of others, which are removed": [
        ("query", "A", {"id": "x", "deadletter.topic": "out2"}),
        ("query", "B", {"id": "b", "in": "in2", "out": "out2"}),
        ("produce", "in2", 1),
        ("run", "B", 1),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("forget", True, True, True),
    ],
    "two writes in foreachBatch, of which one topic's name begins as the other's, and a copy is put back": [
        ("query", "A", {"out": "out2", "each": "yes", "second": "out"}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("restore", "A"),
    ],
    "df.write in foreachBatch, and an older copy whose next batch has fewer rows": [
        ("query", "B", {"each": "yes", "most": "3"}),
        ("run", "B", 1),
        ("produce", "in", 3),
        ("backup", "B"),
        ("run", "B", 1),
        ("restore", "B"),
    ],
    "df.write in foreachBatch with a token, and an older copy whose next batch has fewer rows": [
        ("query", "B", {"token": "job", "kafka.group.id": None, "most": "3"}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 3),
        ("backup", "B"),
        ("run", "B", 1),
        ("restore", "B"),
        ("set", "B", "most", "1"),
    ],
    "an older copy with another topic, at_least_once, and a day with Spark's connector": [
        ("query", "A", {}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("set", "A", "topic", "out2"),
        ("set", "A", "processing.guarantee", "at_least_once"),
        ("restore", "A"),
        ("sparkday", "A"),
    ],
    "a table of two fan-outs of one name is dropped, made by the other, and brought back": [
        ("query", "A", {"tables": "delta,delta2"}),
        ("query", "B", {"tables": "delta2", "id": "b"}),
        ("run", "A", 1),
        ("produce", "in", 1),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("table", "delta2", "drop", 0),
        ("run", "B", 1),
    ],
    "restored, the cluster forgets its decision, and its group is another query's": [
        ("query", "A", {"id": "A", "state": "3"}),
        ("query", "B", {"id": "B", "starting": "latest"}),
        ("set", "B", "kafka.group.id", "g"),
        ("run", "B", 2),
        ("run", "A", 2),
        ("set", "A", "kafka.group.id", "g"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("restate", "A"),
        ("forget", False, True, False),
    ],
    "a copy of a copy, whose original is newer, and has rows that are removed": [
        ("query", "A", {"in": "files"}),
        ("query", "B", {}),
        ("produce", "files", 1),
        ("run", "A", 1),
        ("produce", "files", 1),
        ("fork", "B", "A", True),
        ("run", "B", 1),
        ("forget", True, True, True),
        ("fork", "B", "A", False),
    ],
    "two queries have one name for their fan-outs, and a table of both; one is killed before that table": [
        ("query", "A", {"tables": "delta,iceberg"}),
        ("query", "B", {"tables": "iceberg"}),
        ("run", "A", 1, ("kill", ("spark: after table", 1))),
        ("run", "B", 1),
    ],
    "two queries have one name for their fan-outs, and a topic of both; one is killed before that topic": [
        ("query", "A", {"tables": "delta"}),
        ("query", "B", {"tables": "iceberg"}),
        ("run", "A", 1, ("kill", ("spark: after table", 1))),
        ("run", "B", 1),
    ],
    "df.write in foreachBatch, and an older copy with more rows, which go to another topic": [
        ("query", "A", {"each": "yes"}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("set", "A", "topic", "out2"),
        ("restore", "A"),
    ],
    "df.write in foreachBatch has lost a row, and an older copy of it has read more": [
        ("query", "A", {"each": "yes"}),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("forget", True, False, False),
        ("restore", "A"),
    ],
    "df.write with a token, and a power cut takes all batches since latest": [
        ("query", "A", {"in": "in,in2", "id": "A", "starting": "latest", "token": "job"}),
        ("run", "A", 1),
        ("produce", "in2", 1),
        ("run", "A", 1),
        ("blackout", "A", 2),
    ],
    "df.write in foreachBatch, a power cut takes its plan, and the next plan has fewer rows": [
        ("query", "B", {"each": "yes"}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("blackout", "B", 1),
        ("set", "B", "most", "2"),
    ],
    "df.write in foreachBatch, a power cut takes its plan, and more rows came": [
        ("query", "B", {"each": "yes"}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("blackout", "B", 1),
        ("produce", "in", 2),
    ],
    "df.write with a token, a power cut takes its plan, and the next plan has fewer rows": [
        ("query", "B", {"token": "job", "kafka.group.id": None}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("blackout", "B", 1),
        ("set", "B", "most", "2"),
    ],
    "df.write with a token, a power cut takes its plan, and more rows came": [
        ("query", "B", {"token": "job", "kafka.group.id": None}),
        ("produce", "in", 1),
        ("run", "B", 1),
        ("produce", "in", 4),
        ("run", "B", 1),
        ("blackout", "B", 1),
        ("produce", "in", 2),
    ],
    "decided, all records of its topic deleted, and a replica behind becomes the leader": [
        ("query", "A", {"token": "job"}),
        ("produce", "in", 3),
        ("run", "A", 1),
        ("keep", "out"),
        ("produce", "in", 3),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("empty", "out"),
        ("cut", "out"),
    ],
    "a new checkpoint where one ended of which a power cut has taken a batch": [
        ("query", "A", {}),
        ("run", "A", 1),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("set", "A", "id", "y"),
        ("blackout", "A", 1),
        ("anew", "A", "committed"),
    ],
    "the topic is compacted, the decision forgotten, and an older copy put back": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 3),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 3),
        ("run", "A", 1),
        ("compact", "out", 1, True),
        ("restore", "A"),
        ("forget", True, True, False),
    ],
    "its state is restored with the topic that it had": [
        ("query", "A", {"id": "x", "state": "1"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("set", "A", "topic", "out2"),
        ("restate", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "its checkpoint is rebuilt with the topic that it had": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("set", "A", "topic", "out2"),
        ("rebuilt", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
    ],
    "its state is restored, and its group deleted before it has run the batches since": [
        ("query", "A", {"id": "x", "state": "3"}),
        *[act for _ in range(5) for act in (("produce", "in", 4), ("run", "A", 1))],
        ("restate", "A"),
        ("forget", False, True, False, False),
    ],
    "the same, put back before, in a topic that others write to as well": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("query", "B", {"id": "y"}),
        ("produce", "in", 1),
        ("run", "A", 2),
        ("backup", "A"),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("run", "B", 2),
        ("restore", "A"),
        ("forget", True, True),
    ],
    "a rest, while another query writes to the topic": [
        ("query", "A", {"id": "x"}),
        ("query", "B", {"id": "y"}),
        ("produce", "in", 4),
        ("now", "A"),
        ("now", "B"),
        ("forget", True, True),
        ("produce", "in", 4),
        ("now", "A"),
    ],
    "killed in a task, and the cluster forgets": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("forget", True, True),
    ],
    "handed over, and the new one is renamed": [
        *_handed_over(),
        ("run", "B", 2),
        ("set", "B", "id", "z"),
        ("set", "B", "kafka.group.id", "h"),
        ("run", "B", 2),
        ("run", "A", 2),
    ],
    "handed over, and both are renamed": [
        *_handed_over(),
        ("run", "B", 2),
        ("set", "B", "id", "z"),
        ("produce", "in", 3),
        ("run", "B", 2),
        ("set", "A", "id", "y"),
        ("set", "A", "kafka.group.id", "q"),
        ("run", "A", 2),
    ],
    "handed over, and the new one is renamed before its first batch": [
        *_handed_over(),
        ("run", "B", 1, ("kill", ("task: after PRODUCE", 1))),
        ("set", "B", "id", "z"),
        ("set", "B", "kafka.group.id", "h"),
        ("set", "B", "start.accepted", "offsets-of:x:0"),
        ("run", "B", 2),
        ("run", "A", 2),
    ],
    "handed over, and at_least_once under another name": [
        *_handed_over(),
        ("run", "B", 2),
        ("set", "B", "processing.guarantee", "at_least_once"),
        ("set", "B", "id", "z"),
        ("produce", "in", 3),
        ("run", "B", 2),
        ("run", "A", 2),
    ],
    "a backup of at_least_once days goes on under exactly_once": [
        ("query", "A", {"id": "x", "kafka.group.id": "g", "processing.guarantee": "at_least_once"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 2),
        ("run", "A", 1),
        ("restore", "A"),
        ("set", "A", "processing.guarantee", "exactly_once"),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "killed before its first decision, and the topic is made anew": [
        ("query", "A", {"in": "files"}),
        ("produce", "files", 1),
        ("run", "A", 1, ("kill", ("commit: before END_TXN", 1))),
        ("delete", "out"),
    ],
    "killed before Spark noted it, and another cluster answers, of the same id": [
        ("query", "A", {"id": "x", "in": "files"}),
        ("produce", "files", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True, False, False),
        ("delete", "out"),
    ],
    "the same in a later batch": [
        ("query", "A", {"id": "x", "in": "files"}),
        ("produce", "files", 4),
        ("run", "A", 1),
        ("produce", "files", 4),
        ("run", "A", 1, ("kill", ("spark: before commits", 1))),
        ("forget", True, True, False, False),
        ("delete", "out"),
    ],
    "decided, and its rows deleted before they were committed": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("empty", "out"),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "a day with Spark's connector, and the checkpoint lost": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("produce", "in", 4),
        ("sparkday", "A"),
        ("lost", "A", "committed"),
        ("run", "A", 2),
    ],
    "groups are deleted between two runs": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("forget", False, True, False, False),
        ("produce", "in", 4),
        ("run", "A", 2),
    ],
    "the same, and the checkpoint lost behind the next start": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("forget", False, True, False, False),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("task: after PRODUCE", 1))),
        ("lost", "A", "committed"),
        ("run", "A", 2),
    ],
    "groups are deleted, and another query begins under the name": [
        ("query", "A", {"id": "x"}),
        ("query", "B", {"id": "x", "in": "in2", "out": "out2"}),
        ("produce", "in", 4),
        ("run", "A", 2),
        ("forget", False, True, False, False),
        ("produce", "in2", 4),
        ("run", "B", 1),
        ("stop", "B"),
        ("run", "A", 1),
    ],
    "a copy tried out, and a power cut takes the batches before it": [
        ("query", "A", {"in": "in2"}),
        ("produce", "in2", 4),
        ("run", "A", 1),
        ("grow", "in2"),
        ("tried", "A", "out2", 2),
        ("blackout", "A", 2),
    ],
    "the same with names and rows": [
        ("query", "A", {"id": "x", "kafka.group.id": "g"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("grow", "in"),
        ("produce", "in", 4),
        ("tried", "A", "out2", 2),
        ("blackout", "A", 2),
    ],
    "a token's rows aborted by hand, and its query begun anew": [
        ("query", "A", {"token": "job"}),
        ("produce", "in", 4),
        ("run", "A", 1, ("kill", ("commit: after END_TXN", 1))),
        ("anew", "A", "earliest"),
    ],
    **{name: _known_by_notes(lost) for name, lost in UNNOTED.items()},
    "groups are deleted, and an older copy of the checkpoint is put back": [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("backup", "A"),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("forget", False, True, False, False),
        ("restore", "A"),
    ],
    "the line of a batch without a topic that has come back": [
        ("query", "C", {"in": "in,in2"}),
        ("run", "C", 1),
        ("out", "C", "in2"),
        ("produce", "in2", 1),
        ("back", "C"),
        ("run", "C", 2),
        ("delete", "out"),
        ("forget", True, True, False),
    ],
    "a stop while a topic is left out, whose line is given when it is back": [
        ("query", "A", {"in": "in,in2", "id": "x", "kafka.group.id": "g"}),
        ("produce", "in2", 1),
        ("run", "A", 1),
        ("produce", "in", 1),
        ("meddle", "g", True),
        ("lost", "A", "committed"),
        ("out", "A", "in2"),
    ],
    "a new checkpoint has planned a partition that its topic, made anew, does not have": [
        ("query", "A", {"id": "y"}),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("grow", "in"),
        ("produce", "in", 4),
        ("lost", "A", "latest"),
        ("run", "A", 2),
        ("drop", "in"),
    ],
    "a copy is cut by a power cut, and an older copy comes back that began at the latest offsets": [
        ("query", "A", {"starting": "latest"}),
        ("produce", "in", 1),
        ("run", "A", 1),
        ("backup", "A"),
        ("restore", "A"),
        ("blackout", "A", 1),
        ("restore", "A"),
    ],
}


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    world = play(KEPT[name])
    assert not world.findings, (world.findings, world.told)


def test_a_word_is_for_one_start() -> None:
    """Who leaves it among the options is asked again when the next checkpoint is lost."""
    begun = [
        ("query", "A", {"id": "x"}),
        ("produce", "in", 4),
        ("run", "A", 1),
    ]
    lost: list[tuple[Any, ...]] = [("lost", "A", "earliest"), ("run", "A", 1)]
    (word,) = re.findall(r"start\.accepted=(new-checkpoint:\S+:1),", play([*begun, *lost]).told[0])
    meant = [*begun, ("set", "A", "start.accepted", word), *lost]
    assert not play(meant).errors
    for later in (lost, [("forget", True, True, False), *lost, ("produce", "in", 2), *lost]):
        world = play([*meant, *later])
        assert world.errors["StartsElsewhere"], (world.told, world.findings)
        assert all(f"set start.accepted={word},new-checkpoint:" in line for line in world.told)


@pytest.mark.parametrize("source", ["in", "files"])
def test_a_word_for_rows_is_for_those_rows(source: str) -> None:
    """A copy of before the first decision is put back twice, and the option still has the first word."""
    begun = [("query", "A", {"in": source}), ("produce", source, 2), ("run", "A", 1, ("kill", 60))]
    copied: list[tuple[Any, ...]] = [("backup", "A"), ("run", "A", 1)]
    back: list[tuple[Any, ...]] = [("forget", True, True, False), ("restore", "A")]
    told = play([*begun, *copied, *back, ("run", "A", 1)]).told[0]
    (word,) = re.findall(r"start\.accepted=(new-checkpoint:\S+)", told)
    goes_on = [("set", "A", "start.accepted", word), ("produce", source, 2), ("run", "A", 2)]
    world = play([*begun, *copied, *back, *goes_on])
    assert not world.told, world.told
    world = play([*begun, *copied, *back, *goes_on, *back, ("run", "A", 1)])
    assert world.told[0].startswith("A: CheckpointOlder: "), (world.told, world.findings)


def test_a_backup_of_at_least_once_days_is_stopped() -> None:
    """Rows that it would write again are rows of exactly_once now; one batch may come twice at the change."""
    world = play(KEPT["a backup of at_least_once days goes on under exactly_once"])
    assert any("A: CheckpointOlder: sink x: group g holds" in line for line in world.told), world.told


def test_who_has_rested_beside_another_query_goes_on_with_the_word() -> None:
    """The rows that follow may be its own, of later batches: its user knows that they are not."""
    world = play(KEPT["a rest, while another query writes to the topic"])
    assert any("A: CheckpointOlder: sink x: the checkpoint has completed" in line for line in world.told)
    assert not world.findings


NOWHERE = (
    "the same, and its rows name their topic",
    "the same, and its group alone is deleted",
    "a copy of a first batch, whose rows name their topic, when the cluster has forgotten all",
    "the same copy, and its group alone is deleted",
)
"""Copies from before any row, of queries whose rows name their topics: nobody can look for later ones."""
BEHIND = (
    "an older copy of before its rows went to another topic, when the cluster has forgotten all",
    "rows go to a topic of long ago again, and an older copy is put back when the cluster has forgotten",
)


@pytest.mark.parametrize("name", [*NOWHERE, *BEHIND])
def test_a_copy_is_told_by_the_topics_that_it_knows(name: str) -> None:
    """And the right checkpoint, which is brought back, is not asked again."""
    world = play(KEPT[name])
    (told,) = world.told
    assert "CheckpointOlder: " in told and ("nothing says to which topics" in told) is (name in NOWHERE)
    assert dict(world.ways) == {"CheckpointOlder: right_checkpoint": 1}


def test_batches_that_all_went_elsewhere_are_written_again() -> None:
    """docs/limits.md: nothing tells that there were any, and the query writes to the first topic again."""
    name = "an older copy of before its rows went to another topic, when the cluster has forgotten all"
    world = play([*KEPT[name], ("set", "B", "topic", "out")])
    assert not world.told and max(judge.seen(world.cluster, SINKS).values()) == 2


@pytest.mark.parametrize("strike", [None, ("kill", ("task: after INIT_PRODUCER_ID", 1))])
def test_who_has_the_right_checkpoint_goes_on_with_the_word(strike: Any) -> None:
    """It has rested, no batch had rows, and its rows name their topics."""
    begun = [("query", "B", {"rows": "yes"}), ("produce", "in", 1 if strike else 0), ("run", "B", 1, strike)]
    world = play([*begun, ("forget", True, True, False)])
    (told,) = world.told
    assert told.endswith("new-checkpoint:0" if strike else "decisions-gone:0")
    assert dict(world.ways) == {"CheckpointOlder: option": 1} and not world.findings


@pytest.mark.parametrize(
    ("name", "ways"),
    [
        ("its state is restored with the topic that it had", {"restored": 1, "CheckpointCopied: option": 1}),
        ("its checkpoint is rebuilt with the topic that it had", {"rebuilt": 1}),
        (
            "killed in its first batch, and others wrote to the topic, whose rows are removed",
            {"CheckpointOlder: option": 1},
        ),
        (
            "its state is restored, and its group deleted before it has run the batches since",
            {"restored": 1, "DecisionGone: option": 1},
        ),
    ],
)
def test_a_way_that_a_command_names_comes_to_its_end(name: str, ways: dict[str, int]) -> None:
    world = play(KEPT[name])
    assert dict(world.ways) == ways and not world.findings, (world.ways, world.told)


QUIET = (
    "a topic leaves and is named again",
    "a rest, in which the cluster forgets",
    "killed before Spark noted it, and transactional ids are forgotten",
    "killed before Spark noted it, and the decision is forgotten",
    "the same in the first batch",
    "a day with Spark's connector",
    "a day with Spark's connector after a rest",
    "two days with Spark's connector, with a group",
    "renamed, killed before its first batch, and named back",
    "renamed and named back",
    "a lost checkpoint, and at earliest of a topic that was made anew",
    "a rest beside the dead letters of others, which are removed",
    "killed in a task, and the cluster forgets",
    "groups are deleted between two runs",
    "the same, and the checkpoint lost behind the next start",
    "restored from a copy older than a batch without rows, and a day with Spark's connector",
    "a part of the rows is lost and written again, and the query is started again",
)
"""Nothing is lost or wrong in these, so nobody is stopped."""


@pytest.mark.parametrize("name", QUIET)
def test_nobody_is_stopped(name: str) -> None:
    world = play(KEPT[name])
    assert set(world.errors) <= {"DataLoss"} if "leaves" in name else not world.errors, world.told


def test_a_living_query_says_that_its_sink_has_lost_rows() -> None:
    """Before it decides more: what it writes would hide the place."""
    world = play(KEPT["the sink's log is cut while the query lives"])
    assert "RowsGone: batch 2 is not decided: it begins at offset " in world.told[0], world.told
    assert "A: RowsGone: sink A: batch 1 is decided, and the cluster has lost rows" in world.told[1]


def test_a_driver_that_was_replaced_notes_no_rows() -> None:
    """Its rows are aborted: a start would take them for lost ones, and have them written again."""
    world = play(KEPT["who hangs before its decision wakes up after another driver has made it"])
    assert any("SinkFenced" in line for line in world.told), world.told
    assert not any("RowsGone" in line for line in world.told), world.told


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_name_is_known_longer_than_its_groups(starting: str) -> None:
    """A lost checkpoint, and the sink's groups are deleted or expired: its transactional id is still there.
    Each start says so, until somebody means it."""
    done = [("query", "A", {"id": "t"}), ("produce", "in", 4), ("run", "A", 1), ("stop", "A")]
    anew = [("anew", "A", starting), ("produce", "in", 4), ("run", "A", 1)]
    world = play([*done, ("forget", False, True, False, False), *anew])
    assert len(world.told) == 2 and world.ways["StartsElsewhere: option"] == 1, world.told
    for line in world.told:
        assert "batches were decided under this transactional.id. The cluster has forgotten which" in line
        assert line.endswith("set start.accepted=new-checkpoint:0")
    assert not play([*done, ("forget", True, True, False, False), *anew]).told, "nobody knows the name"
    killed = ("run", "A", 1, ("kill", ("commit: before END_TXN", 1)))
    assert not play([*done[:2], killed, *anew]).told, "nothing was decided"


def test_wherever_a_driver_hangs_that_is_replaced_nobody_misses_its_rows() -> None:
    """It may have written its note when it wakes up: the next start corrects that by the decision."""
    batch = [("produce", "in", 4), ("run", "A", 1)]
    hung = 0
    for request in range(40, 70):
        held = [("produce", "in", 4), ("run", "A", 1, ("hold", request)), ("run", "A", 1)]
        world = play([("query", "A", {"id": "A"}), *batch, *held, ("stop", "A"), ("wake",), *batch])
        assert not world.findings and not any("RowsGone" in line for line in world.told), world.told
        hung += "SinkFenced" in world.errors
    assert hung > 15


def test_a_living_query_looks_where_a_leader_was_elected() -> None:
    """Others have written behind the cut, and the query itself would: no later start could see it."""
    world = play(KEPT["a living query writes on behind rows that an elected leader lacks, and others do too"])
    said = "C: RowsGone: batch 2 is not decided: offset 0 of out-0 holds other rows than were written there"
    assert world.told[0].startswith(said), world.told
    assert world.told[1].startswith("C: RowsGone: sink C: batch 1 is decided, and"), world.told


@pytest.mark.parametrize("name", CUT)
def test_whoever_goes_on_says_that_the_sink_has_lost_rows(name: str) -> None:
    """A word lets it go on, and rows that were gone then are not told again."""
    world = play(CUT[name])
    assert any(": RowsGone: sink " in line for line in world.told), world.told
    assert world.ways["RowsGone: option"] == 1, world.ways


def test_what_was_accepted_under_another_guarantee_is_not_told_again() -> None:
    weaker, again = (("set", "A", "processing.guarantee", one) for one in ("at_least_once", "exactly_once"))
    word, more = ("set", "A", "start.accepted", "rows-gone:1"), [("produce", "in", 4), ("run", "A", 1)]
    world = play([*_behind(), ("cut", "out"), word, weaker, *more, (*word[:3], None), again, *more])
    assert not world.errors, world.told


REPLACED = (
    "killed before Spark noted it, and another cluster answers, of the same id",
    "the same in a later batch",
    "killed before its first decision, and the topic is made anew",
)
"""A planned batch has rows in a topic that is another one now: what became of them, only its user knows."""


@pytest.mark.parametrize("name", REPLACED)
def test_who_has_written_to_a_topic_that_is_another_one_now_is_asked(name: str) -> None:
    world = play(KEPT[name])
    assert "A: DecisionGone: " in world.told[0] and "out, which is not that topic any more" in world.told[0]


def test_rows_that_were_deleted_before_anybody_could_read_them_are_lost_with_a_word() -> None:
    world = play(KEPT["decided, and its rows deleted before they were committed"])
    assert world.told[0].startswith("A: ParticipantsLost: batch 0 of query "), world.told
    assert "were deleted (out-0 begins at " in world.told[0]


def test_what_spark_s_connector_wrote_is_written_again_without_the_checkpoint() -> None:
    """It leaves nothing in a group (docs/limits.md)."""
    world = play(KEPT["a day with Spark's connector, and the checkpoint lost"])
    rows = Counter(world.cluster.seen("out"))
    assert not world.errors and sorted(rows.values()) == [1] * (len(rows) - 4) + [2] * 4


@pytest.mark.parametrize("lost", UNNOTED.values())
def test_a_query_without_a_name_is_known_by_the_notes_in_its_group(lost: list[tuple[Any, ...]]) -> None:
    """Without them it is a new query to everybody (docs/limits.md); with a name its decision tells."""
    assert not play(_known_by_notes(lost)).errors
    world = play(_known_by_notes(lost, id="x"))
    assert world.told[0].startswith("A: StartsElsewhere: sink x: "), world.told
    rows = Counter(world.cluster.seen("out"))
    assert not world.findings and set(rows.values()) == {1}


@pytest.mark.parametrize(
    "name", [name for name in KEPT if "copy tried out, and" in name or "and rows" in name]
)
def test_an_accepted_copy_s_batch_is_written_into_the_checkpoint(name: str) -> None:
    """The word for the copy is for eoslog checkpoint rebuild as well, which the next message names."""
    assert play(KEPT[name]).ways == {"CheckpointCopied: option": 1, "CheckpointOlder: rebuild": 1}


def test_a_token_whose_rows_are_lost_is_named_and_whose_rows_they_are() -> None:
    """Who begins anew has other rows under the token, and is not to publish those."""
    lost, differs, _ = play(KEPT["a token's rows aborted by hand, and its query begun anew"]).told
    assert lost.startswith("A: ParticipantsLost: the write with write.token=job-0 is decided"), lost
    assert "publish the missing rows of the first time yourself, which these are not" in differs, differs


def test_a_query_does_not_decide_again_in_another_one_s_sink() -> None:
    world = play(KEPT["groups are deleted, and another query begins under the name"])
    assert world.told[0].startswith("B: StartsElsewhere: sink x: the checkpoint is new, and "), world.told
    said = [line for line in world.told if line.startswith("A: ")]
    assert said[0].startswith("A: DecisionGone: sink x: the checkpoint has completed"), world.told


STOPPED = (
    "renamed, and a backup of before the change starts under the old name",
    "renamed, the checkpoint lost, and the old name given",
    "the name left out, the checkpoint lost, and the old name given",
    "renamed and named back in a living application, and a backup of between",
    "another name at the offsets of the old one, which starts again",
    "at_least_once on a new checkpoint, and the old one again",
)
"""In these a sink is left, and somebody starts who does not know it."""


@pytest.mark.parametrize("name", STOPPED)
def test_who_does_not_know_that_a_sink_was_left_is_stopped(name: str) -> None:
    world = play(KEPT[name])
    assert any("TakenOver: sink x: it was left for" in line for line in world.told), world.told


@pytest.mark.parametrize("source", ["in", "files"])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("where", [60, 91, ("commit: before END_TXN", 1)])
def test_a_copy_of_before_the_first_decision_that_the_cluster_has_forgotten(
    source: str, ids: bool, where: Any
) -> None:
    """Nothing is done in the copy, and the sink's rows are there since its first start."""
    begun: list[tuple[Any, ...]] = [
        ("query", "A", {"in": source}),
        ("query", "B", {"id": "other"}),
        ("produce", source, 2),
        ("run", "A", 1, ("kill", where)),
        ("backup", "A"),
    ]
    written: list[tuple[Any, ...]] = [("run", "A", 1, ("kill", ("commit: after END_TXN", 2)))]
    forgotten = [("forget", ids, True, False), ("restore", "A"), ("run", "A", 1)]
    world = play([*begun, *written, *forgotten])
    assert set(world.errors) == {"CheckpointOlder"} and not world.findings, (world.told, world.findings)
    word = re.search(r"set (start\.accepted)=(\S+)", world.told[0])
    assert world.ways == {"CheckpointOlder: right_checkpoint": 1} and word is not None, world.told
    meant = play([*begun, *written, *forgotten[:2], ("set", "A", *word.groups()), ("run", "A", 2)])
    there = Counter(meant.cluster.seen("out"))
    assert not meant.told and sorted(there.values())[-3:] == [1, 2, 2], (meant.told, there)
    beside: list[tuple[Any, ...]] = [("produce", "in", 2), ("run", "B", 1)]
    world = play([*begun, *beside, ("restore", "A"), ("run", "A", 1)])
    assert not world.findings and not world.errors, world.told


def test_a_second_copy_without_a_name_is_known_by_the_group_of_the_first() -> None:
    """By mistake, on a new checkpoint. Nobody says that it may begin: the first one goes on."""
    world = play(
        [
            ("query", "A", {"kafka.group.id": "g"}),
            ("query", "B", {"kafka.group.id": "g"}),
            ("produce", "in", 4),
            ("run", "A", 2),
            ("run", "B", 1),
            ("run", "A", 1),
        ]
    )
    assert world.told[0].startswith("B: StartsElsewhere: ") and not world.findings, world.told
    assert not any(line.startswith("A: ") for line in world.told), world.told


def test_who_takes_a_lost_batch_over_hears_of_the_rows_before_it() -> None:
    """A leader was elected that has no batch of the query, and ids are forgotten."""
    world = play(
        [
            ("query", "A", {}),
            ("query", "B", {"in": "in2", "out": "out2", "id": "B", "most": "3"}),
            ("keep", "out2"),
            ("produce", "in2", 4),
            ("run", "B", 2),
            ("cut", "out2"),
            ("forget", True, False, False),
            ("follow", "A", "B"),
        ]
    )
    assert "Brokers that have lost these rows may lack some of earlier batches" in world.told[0], world.told
    assert not world.findings


def test_a_first_batch_is_killed_above_a_topic_that_was_emptied() -> None:
    """What was removed before the query's first start was not its own."""
    others: list[tuple[Any, ...]] = [
        ("query", "A", {"id": "other"}),
        ("query", "B", {}),
        ("produce", "in", 4),
        ("run", "A", 1),
        ("stop", "A"),
        ("empty", "out"),
    ]
    world = play([*others, ("run", "B", 1, ("kill", 60)), ("run", "B", 1)])
    assert not [line for line in world.told if line.startswith("B: ")] and not world.findings, world.told


def _loses_all(act: tuple[Any, ...]) -> bool:
    return bool(act[0] == "lost" or (act[0] == "anew" and act[2] == "committed"))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("source", ["in", "files"])
@pytest.mark.parametrize("ident", [{}, {"id": "x"}])
def test_a_batch_that_is_decided_again_is_the_last_one(
    ident: dict[str, str], source: str, rows: bool
) -> None:
    """An older copy is stopped, a power cut takes its plan, and the cluster forgets what has stopped it."""
    world = play(
        [
            ("query", "C", {"in": source, **ident}),
            ("produce", source, 1),
            ("run", "C", 1),
            ("backup", "C"),
            ("produce", source, 3),
            ("run", "C", 1),
            ("restore", "C"),
            ("produce", source, 2),
            ("run", "C", 2),
            ("blackout", "C", 1),
            ("forget", False, True, rows),
        ]
    )
    assert not world.findings, (world.findings, world.told)
    assert "the checkpoint is at batch 0, the cluster does not have the sink's decision" in world.told[-1]


@pytest.mark.parametrize("ident", [{}, {"id": "x"}])
def test_what_a_copy_has_read_at_least_once_into_another_topic_is_not_missed(ident: dict[str, str]) -> None:
    """The copy and the query are one to the group. Its note says where the rows went."""
    world = play(
        [
            ("query", "B", {"in": "in,in2", "kafka.group.id": "h", **AT_LEAST_ONCE, **ident}),
            ("produce", "in", 1),
            ("run", "B", 1),
            ("produce", "in2", 1),
            ("tried", "B", "out2", 2),
            ("lost", "B", "committed"),
        ]
    )
    assert not world.findings, (world.findings, world.told)
    said = "which has written to topic out2" if ident else "and writes to out2 as it did"
    assert said in world.told[0], world.told


@pytest.mark.parametrize("name", [name for name, acts in KEPT.items() if any(map(_loses_all, acts))])
def test_a_checkpoint_that_is_lost_as_a_whole_comes_back_by_one_command(name: str) -> None:
    """It goes on as if nothing had happened; or the command refuses, where nothing is decided under the name,
    the query has left it, or the cluster has forgotten it."""
    acts = [("rebuilt", act[1]) if _loses_all(act) else act for act in KEPT[name]]
    assert not play(acts).findings


@pytest.mark.parametrize("name", [name for name in KEPT if name.startswith("handed over, and")])
def test_an_old_query_is_stopped_whatever_its_successor_is_called(name: str) -> None:
    world = play(KEPT[name])
    assert any(line.startswith("A: TakenOver: sink x: ") for line in world.told), world.told


def test_a_topic_that_has_grown_is_no_loss() -> None:
    """The task's process knows the topic as it was."""
    assert not play(KEPT["a topic grows under a living application"]).told


@pytest.mark.parametrize("batches", [1, 3])
@pytest.mark.parametrize("rows", [False, True])
def test_a_batch_that_is_planned_anew_is_not_the_one_that_was_written(batches: int, rows: bool) -> None:
    """The checkpoint has lost its last plan, and the cluster its decision, and perhaps its rows."""
    done = [act for _ in range(batches) for act in (("produce", "in", 2), ("run", "B", 1))]
    begun: list[tuple[Any, ...]] = [("query", "B", {}), *done, ("backup", "B")]
    lost: list[tuple[Any, ...]] = [
        ("forget", False, True, rows, False),
        ("restore", "B"),
        ("blackout", "B", 1),
    ]
    anew: list[tuple[Any, ...]] = [("produce", "in", 2), ("run", "B", 2)]
    world = play([*begun, *lost, *anew])
    assert world.ways["DecisionGone: right_checkpoint"] and not world.findings, world.told
    word = re.search(r"set (start\.accepted)=(\S+),", world.told[0])
    assert word is not None and word[2].startswith("batch-missing:"), world.told
    meant = play([*begun, *lost, ("set", "B", *word.groups()), *anew])
    there = Counter(meant.cluster.seen("out"))
    assert (batches > 1 or rows or not meant.told) and set(there) >= {
        f"B1:in/{2 * batches + n}" for n in (1, 2)
    }, (meant.told, there)


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("by", [-3, 3])
def test_a_batch_before_an_edit_is_done_whatever_a_power_cut_takes(by: int, rows: bool) -> None:
    """The edit forgets what says so beside Spark's own note, which nobody else has synced."""
    edited: list[tuple[Any, ...]] = [("edit", "B", by), ("blackout", "B", 1), ("forget", False, True, rows)]
    produced: list[tuple[Any, ...]] = [("run", "B", 1), ("produce", "in", 7)]
    world = play([("query", "B", {}), ("produce", "in", 7), *produced, *edited])
    assert not world.findings, world.findings


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_name_that_is_given_twice_does_not_stop_who_has_it(starting: str) -> None:
    """The second start is refused, with its checkpoint and with another new one; the first query goes on."""
    begun: list[tuple[Any, ...]] = [
        ("query", "A", {"id": "x"}),
        ("query", "B", {"id": "x", "starting": starting}),
    ]
    more: list[tuple[Any, ...]] = [("produce", "in", 7), ("run", "A", 1)]
    second: list[tuple[Any, ...]] = [("produce", "in", 7), ("run", "B", 1)]
    world = play([*begun, *more, *second, *more, *second, *more, ("anew", "B", starting), *second, *more])
    assert {text.partition(":")[0] for text in world.told} == {"B"} and not world.findings, world.told
    assert world.errors.keys() == {"StartsElsewhere"} and world.errors.total() >= 3


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("strike", ["task: before INIT_PRODUCER_ID", "commit: before END_TXN"])
def test_a_batch_of_the_former_name_is_done_whatever_a_power_cut_takes(strike: str, rows: bool) -> None:
    """The sink of the new name knows nothing of it."""
    begun: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("produce", "in", 7), ("run", "A", 1)]
    renamed: list[tuple[Any, ...]] = [("set", "A", "id", "y"), ("produce", "in", 7)]
    cut: list[tuple[Any, ...]] = [("run", "A", 1, ("kill", (strike, 1))), ("blackout", "A", 1)]
    world = play([*begun, *renamed, *cut, ("forget", False, True, rows)])
    assert not world.findings, world.findings


@pytest.mark.parametrize("source", ["in", "files"])
@pytest.mark.parametrize("rows", [False, True])
def test_a_rebuilt_checkpoint_rests_and_its_batch_is_still_the_one_that_was_written(
    source: str, rows: bool
) -> None:
    """The cluster forgets the decision before the first start."""
    done: list[tuple[Any, ...]] = [("query", "B", {"in": source}), ("produce", source, 2), ("run", "B", 1)]
    world = play([*done, ("rebuilt", "B"), ("forget", True, True, rows)])
    assert world.ways["rebuilt"] and not world.findings and not world.errors, (world.told, world.findings)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("starting", ["latest", "earliest"])
@pytest.mark.parametrize("ident", [None, "x"])
def test_a_copy_without_its_last_batches_is_known_by_its_notes(
    ident: str | None, starting: str, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has synced a copy by hand: a power cut takes all of Spark's files, when the cluster has
    forgotten the decisions. `kept`: the whole checkpoint is still there."""
    if not kept:
        monkeypatch.setattr(Query, "bring_back", lambda _: False)
    world = play(
        [
            ("query", "B", {"starting": starting, "id": ident}),
            ("query", "C", {}),
            ("run", "B", 1),
            ("produce", "in", 3),
            ("run", "B", 1),
            ("forget", True, True, False),
            ("fork", "C", "B", True),
            ("blackout", "C", 2),
        ]
    )
    assert not world.findings, (world.findings, world.told)
    assert (
        "has noted batch 1 of this query in the checkpoint, and Spark's files there lead to batch 0"
        in (world.told[0])
    )
    assert world.ways == {f"CheckpointOlder: {'right_checkpoint' if kept else 'option'}": 1}


@pytest.mark.parametrize("taken", ["follow", "anew"])
def test_who_takes_the_place_of_a_dead_query_finishes_its_last_batch(taken: str) -> None:
    """The group has forgotten its offsets with the topic, so nothing leads from it to that query's sink."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"kafka.group.id": "g"}), ("query", "B", {})]
    acts += [("produce", "in", 1), ("run", "A", 1), ("produce", "in", 1)]
    acts += [("run", "A", 1, ("kill", ("commit: after END_TXN", 1)))]
    acts += [("follow", "B", "A") if taken == "follow" else ("anew", "A", "committed"), ("delete", "in")]
    world = play(acts)
    assert not world.findings, (world.findings, world.told)
    assert "To take the place of another query, start that one once" in world.told[0]


def test_who_takes_the_place_of_a_restored_query_cannot_start_that_one_again() -> None:
    """It was restored at the group's offsets, which are gone: its user takes the other way."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "kafka.group.id": "g", "state": "2"})]
    acts += [("produce", "in", 3), ("run", "A", 1), ("lost", "A", "committed")]
    acts += [("run", "A", 1, ("kill", ("spark: before commits", 1))), ("delete", "in"), ("restate", "A")]
    world = play(acts)
    assert not world.findings, (world.findings, world.told)


def test_who_goes_back_to_a_former_checkpoint_begins_where_that_began() -> None:
    """Brokers restored from an older copy, without anything of it: not where its first batch ended."""
    hold = ("hold", ("commit: after END_TXN", 2))
    acts: list[tuple[Any, ...]] = [("query", "B", {"id": "B"}), ("produce", "in", 1), ("snapshot",)]
    world = play([*acts, ("run", "B", 1, hold), ("restored",)])
    assert not world.findings and world.ways["OptionError: earliest"], (world.findings, world.told)


def test_an_older_checkpoint_without_its_writes_is_gone_on_with_by_a_token() -> None:
    """df.write of foreachBatch, of which a power cut has left no batch, and the topic was changed since. With
    the token it is told once more that a later batch was written, and what accepts that."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"each": "yes"}), ("run", "A", 1), ("produce", "in", 1)]
    world = play([*acts, ("run", "A", 1), ("set", "A", "topic", "out2"), ("blackout", "A", 2)])
    assert not world.findings, (world.findings, world.told)
    assert world.ways == {"CheckpointOlder: given_a_token": 1, "CheckpointOlder: option": 1}


def test_a_query_of_the_same_application_does_not_hide_an_election() -> None:
    """Rows of the one are gone, and the other has written to the new leader before it."""
    world = play(
        [
            ("query", "A", {"kafka.group.id": "h", "most": "3"}),
            ("query", "B", {}),
            ("living", "A", True),
            ("living", "B", True),
            ("keep", "out"),
            ("produce", "in", 6),
            ("run", "A", 1),
            ("cut", "out"),
            ("run", "B", 2),
            ("run", "A", 1),
        ]
    )
    assert world.told[0].startswith("A: RowsGone: batch 1 is not decided: offset 0 of out-"), world.told
    assert not world.findings, world.findings


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("ident", [None, "x"])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_copy_is_tried_out_and_the_guarantee_changes(
    batches: int, ident: str | None, guarantee: str
) -> None:
    """The copy is named, and the way out that tells the two apart works under each guarantee."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"most": "3", "id": ident}), ("produce", "in", 5)]
    acts += [("run", "A", 1), ("tried", "A", "out2", batches)]
    world = play([*acts, ("set", "A", "processing.guarantee", guarantee)])
    assert not world.findings, (world.told, world.findings)
    assert set(world.errors) == {"CheckpointCopied"} and world.ways["CheckpointCopied: fork"], world.told


def test_a_topic_that_joins_a_new_checkpoint_later_is_read_from_its_beginning() -> None:
    """A group without a name tells of another query for the topics of the first batch (docs/limits.md)."""
    acts: list[tuple[Any, ...]] = [
        ("query", "B", {"in": "in,in2", "kafka.group.id": "g"}),
        ("produce", "in", 1),
    ]
    acts += [("run", "B", 1), ("lost", "B", "latest"), ("out", "B", "in"), ("drop", "in2")]
    world = play(acts)
    assert not world.findings and world.told[0].startswith("B: StartsElsewhere"), (world.told, world.findings)
    assert judge.seen(world.cluster, SINKS)["B1:in/1"] == 2


def test_a_query_of_the_same_application_that_reads_the_same_does_not_stop_a_rebuilt_one() -> None:
    """Spark asks a source nothing for a batch without rows: what is known of it is the other query's."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "A"}), ("query", "B", {"id": "B", "out": "out2"})]
    acts += [("living", name, True) for name in "AB"]
    for _ in range(2):
        acts += [("produce", "in", 5), ("run", "A", 1), ("run", "B", 1)]
    world = play([*acts, ("rebuilt", "A"), ("run", "A", 2)])
    assert world.ways["rebuilt"] and not world.errors and not world.findings, (world.told, world.findings)


def test_a_copy_of_a_checkpoint_keeps_the_other_query_s_group() -> None:
    """Of the ways out that DecisionGone names one is for a query of its own, and it works."""
    acts: list[tuple[Any, ...]] = [("query", "A", {}), ("query", "B", {"kafka.group.id": "h"}), ("now", "B")]
    world = play([*acts, ("fork", "A", "B", False), ("set", "A", "kafka.group.id", "h")])
    assert not world.findings and world.ways["DecisionGone: group_alone"], (world.told, world.findings)


def test_rows_of_spark_s_own_connector_that_an_election_takes_are_not_missed() -> None:
    """eoslog has no note of them (docs/limits.md)."""
    acts: list[tuple[Any, ...]] = [("query", "B", {"in": "in2"}), ("keep", "out"), ("run", "B", 1)]
    world = play([*acts, ("produce", "in2", 1), ("sparkday", "B"), ("cut", "out")])
    assert not world.findings and not world.errors and world.warned, (world.told, world.findings)


@pytest.mark.parametrize("batches", [1, 2, 3])
def test_rows_of_a_rebuilt_checkpoint_that_an_election_takes_are_missed(batches: int) -> None:
    """Also when the cluster has forgotten the decision: no plan has the range of the batch to write it again.
    The first batch has its beginning, and writes them again."""
    acts: list[tuple[Any, ...]] = [("query", "C", {})]
    acts += [("produce", "in", 5), ("run", "C", 1)] * (batches - 1)
    acts += [("keep", "out"), ("produce", "in", 5), ("run", "C", 1), ("rebuilt", "C"), ("cut", "out")]
    world = play([*acts, ("forget", True, True, False)])
    assert world.ways["rebuilt"] and not world.findings, (world.told, world.findings)
    assert set(world.errors) == ({"RowsGone"} if batches > 1 else set()), world.told


@pytest.mark.parametrize("kept", [True, False])
def test_an_older_copy_of_a_query_whose_tokens_were_forgotten(
    kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function of foreachBatch writes under tokens. The cluster remembers a later batch than that of the
    copy: it is said, and each way works. `kept`: somebody has the right checkpoint."""
    acts: list[tuple[Any, ...]] = [("query", "B", {"token": "job"}), ("produce", "in", 4), ("run", "B", 2)]
    acts += [("backup", "B"), ("produce", "in", 2), ("run", "B", 1), ("forget", True, True, False)]
    acts += [("produce", "in", 4), ("run", "B", 1), ("restore", "B")]
    if not kept:
        monkeypatch.setattr(Query, "bring_back", lambda self: False)
    world = play([*acts, ("produce", "in", 2)])
    assert not world.findings and set(world.errors) == {"DecisionGone"}, (world.told, world.findings)


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_most_once", "at_least_once"])
@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_copy_has_written_batches_that_this_one_has_not(
    batches: int, same: bool, guarantee: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`same`: in its place, and its checkpoint is gone: its decision counts, and the batch is rebuilt. Else
    both go on."""
    acts: list[tuple[Any, ...]] = [("query", "A", {}), ("query", "B", {"most": "3"}), ("produce", "in", 2)]
    acts += [("run", "B", 1), ("produce", "in", 6), ("fork", "A", "B", same)]
    acts += [("stop", "B"), ("run", "B", batches)]
    if same:
        monkeypatch.setattr(Query, "bring_back", lambda self: False)
    world = play([*acts, ("set", "A", "processing.guarantee", guarantee)])
    assert not world.findings and world.errors, (world.told, world.findings)
    if same:
        assert world.ways["CheckpointCopied: option"] and (
            batches == 1 or world.ways["CheckpointOlder: rebuild"]
        ), world.ways
    elif guarantee == "at_least_once":
        assert world.ways["CheckpointCopied: fork"], world.ways


def test_a_copy_is_told_behind_another_query_of_the_name() -> None:
    """A copy has written a batch elsewhere, and another query has decided in the sink since."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x"})]
    acts += [("query", "B", {"out": "out2", "id": "x", "starting": "latest", "small": "0"})]
    acts += [("produce", "in", 5), ("run", "A", 1), ("produce", "in", 3), ("tried", "A", "out2", 1)]
    killed = ("stop", ("commit: before TXN_OFFSET_COMMIT", 3), 8)
    world = play([*acts, ("run", "B", 1, killed), ("run", "A", 1, None)])
    assert not world.findings and "CheckpointCopied" in world.errors, (world.told, world.findings)


def test_brokers_are_put_back_after_a_day_with_spark_s_own_connector() -> None:
    """Its offsets have no epochs, and at_least_once leaves no places: nobody sees it (docs/limits.md)."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"processing.guarantee": "at_least_once"}), ("snapshot",)]
    acts += [("produce", "in", 1), ("run", "A", 1), ("sparkday", "A"), ("restored",)]
    world = play(acts)
    assert not world.findings and not world.errors, (world.told, world.findings)
    seen = play([*acts[:-1], ("produce", "in", 2), ("run", "A", 1), acts[-1]])
    assert not seen.findings and set(seen.errors) == {"DataLoss"}, (seen.told, seen.findings)


@pytest.mark.parametrize("more", [[], [("produce", "in", 2)]])
def test_an_older_copy_of_a_query_whose_token_has_another_topic(more: list[tuple[Any, ...]]) -> None:
    """The option topic was changed, and an older backup is put back: its way out is the former topic."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"token": "job-A"}), ("run", "A", 1), ("backup", "A")]
    acts += [("produce", "in", 1), ("run", "A", 1), ("set", "A", "topic", "out2"), *more, ("restore", "A")]
    world = play(acts)
    assert not world.findings, (world.told, world.findings)
    assert world.ways["SinkChanged: topic_of_the_write"], (world.told, world.ways)


@pytest.mark.parametrize("act", ["delete", "drop"])
def test_who_goes_on_without_a_topic_that_is_gone_or_made_anew_is_not_stopped(act: str) -> None:
    """Nobody has read the new one, and what is gone cannot be named."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"in": "in,in2", "id": "A"}), ("produce", "in2", 1)]
    acts += [("produce", "in", 1), ("run", "A", 1), (act, "in2"), ("lost", "A", "committed")]
    world = play([*acts, ("out", "A", "in2")])
    assert not world.findings and "StartsElsewhere" not in world.errors, (world.told, world.findings)


def test_who_goes_on_without_a_topic_names_it_as_before() -> None:
    acts: list[tuple[Any, ...]] = [("query", "A", {"in": "in,in2", "id": "A"}), ("produce", "in2", 1)]
    world = play([*acts, ("run", "A", 1), ("lost", "A", "committed"), ("out", "A", "in2")])
    assert not world.findings and world.ways["StartsElsewhere: named_as_before"], (world.told, world.ways)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("ident", [{}, {"id": "x"}])
def test_an_edit_is_taken_back_and_the_cluster_forgets_the_decision(ident: dict[str, str], by: int) -> None:
    """The batch that Spark has not noted is decided, as its rows are visible: it is not written again."""
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", ident), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1, killed), ("edit", "A", by), ("undo", "A")]
    world = play([*acts, ("forget", False, True, False)])
    assert world.ways["undo"] and not world.findings, (world.told, world.findings)
    seen = judge.seen(world.cluster, SINKS)
    assert {*seen.values()} == {1}, seen


@pytest.mark.parametrize("query", [{}, {"id": "x"}, {"in": "files"}])
def test_a_copy_of_another_topic_does_not_count_rows_as_its_own(query: dict[str, str]) -> None:
    """The cluster has forgotten the decision, which says where they went. Who changes the topic of a query in
    its place is not asked."""
    killed, source = ("kill", ("spark: before commits", 1)), query.get("in", "in")
    acts: list[tuple[Any, ...]] = [("query", "A", query), ("produce", source, 3), ("run", "A", 1)]
    acts += [("produce", source, 3), ("run", "A", 1, killed), ("forget", True, True, False)]
    world = play([*acts, ("tried", "A", "out2", 1)])
    assert not world.findings and set(world.errors) == {"CheckpointCopied"}, (world.told, world.findings)
    world = play([*acts, ("set", "A", "topic", "out2")])
    assert not world.findings and not world.errors, (world.told, world.findings)


def test_a_copy_of_another_topic_goes_on_as_a_query_of_its_own() -> None:
    """Each way that the message names comes to its end."""
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("query", "B", {}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1, killed), ("forget", True, True, False)]
    world = play([*acts, ("fork", "B", "A", False), ("set", "B", "topic", "out2")])
    assert not world.findings and world.ways["CheckpointCopied: fork"], (world.told, world.findings)


@pytest.mark.parametrize("ident", [{}, {"id": "x"}])
def test_what_is_written_and_forgotten_is_not_edited(ident: dict[str, str]) -> None:
    """The edit would take the batch for one that is to be written. A start decides it again."""
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", ident), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1, killed), ("forget", False, True, False)]
    world = play([*acts, ("edit", "A", -1)])
    assert not world.findings and {*judge.seen(world.cluster, SINKS).values()} == {1}, world.findings


@pytest.mark.parametrize("query", [{"id": "x"}, {"in": "files"}])
@pytest.mark.parametrize("batches", [1, 2])
def test_a_batch_that_is_rebuilt_has_its_places(batches: int, query: dict[str, str]) -> None:
    """An older copy comes back behind a power cut, and a leader is elected that lacks the batch's rows."""
    killed, source = ("kill", ("spark: before commits", 1)), query.get("in", "in")
    acts: list[tuple[Any, ...]] = [("query", "A", query), ("produce", source, 3), ("run", "A", 1)]
    acts += [("backup", "A"), ("keep", "out"), ("produce", source, 3), ("run", "A", 1, killed)]
    world = play([*acts, ("blackout", "A", batches), ("restore", "A"), ("cut", "out")])
    assert not world.findings and world.ways["CheckpointMismatch: rebuild"], (world.told, world.findings)
    assert "RowsGone" in world.errors, world.told


@pytest.mark.parametrize("ident", [{}, {"kafka.group.id": "g"}, {"id": "x"}])
def test_a_rebuilt_batch_of_an_edit_is_decided_whatever_is_forgotten(ident: dict[str, str]) -> None:
    """It has no rows of its own: those of the batch that was edited are told as older ones."""
    killed = ("kill", ("task: after INIT_PRODUCER_ID", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", ident), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1, killed), ("edit", "A", 1), ("rebuilt", "A")]
    world = play([*acts, ("forget", False, True, False)])
    assert world.ways["rebuilt"] and not world.findings, (world.told, world.findings)


def test_a_copy_of_a_rebuilt_checkpoint_does_not_count_rows_of_another_topic() -> None:
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1), ("rebuilt", "A"), ("forget", False, True, False)]
    world = play([*acts, ("tried", "A", "out2", 1)])
    assert world.ways["rebuilt"] and not world.findings, (world.told, world.findings)
    assert [said[:23] for said in world.told] == ["A-tried: CheckpointCopi"], world.told


@pytest.mark.parametrize("ident", [{}, {"id": "x"}, {"kafka.group.id": "g"}])
def test_who_is_rebuilt_beside_a_copy_that_went_on_begins_where_the_last_batch_ended(
    ident: dict[str, str],
) -> None:
    """A copy of a rebuilt checkpoint goes on under a name of its own, over brokers that were put back."""
    acts: list[tuple[Any, ...]] = [("query", "A", ident), ("query", "B", {}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("snapshot",), ("produce", "in", 3), ("run", "A", 1), ("rebuilt", "A")]
    world = play([*acts, ("restored",), ("fork", "B", "A", False), ("produce", "in", 3), ("run", "A", 1)])
    assert not world.findings, (world.told, world.findings)
    assert ident or world.ways["CheckpointMismatch: rebuild"], world.ways


@pytest.mark.parametrize("every", ["1", "2"])
def test_a_copy_that_was_tried_out_is_not_restored_for_the_query(every: str) -> None:
    """Its saves are the last ones of the name: what it has read would be missing. The way is walked."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "state": every}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("tried", "A", "out2", 1), ("restate", "A")]
    world = play([*acts, ("produce", "in", 3), ("run", "A", 1)])
    assert not world.findings and not world.ways["restored"], (world.told, world.findings)
    assert "StartsElsewhere" in world.errors, world.told


@pytest.mark.parametrize("every", ["1", "2", "3"])
def test_a_restored_checkpoint_of_a_killed_query_goes_on(every: str) -> None:
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "state": every}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1), ("produce", "in", 3)]
    world = play([*acts, ("run", "A", 1, killed), ("restate", "A"), ("produce", "in", 3), ("run", "A", 1)])
    assert world.ways["restored"] and not world.errors and not world.findings, (world.told, world.findings)


@pytest.mark.parametrize("more", [[], [("set", "A", "state.every.batches", "1")]])
def test_batches_that_run_again_for_the_state_have_the_rows_that_they_had(
    more: list[tuple[Any, ...]],
) -> None:
    """A leader was elected that lacks them, and others stand at their offsets: those would be missing. Who
    saves every batch from now on compares, too."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "state": "3"}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1), ("keep", "in"), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("cut", "in"), ("produce", "in", 4), ("restate", "A"), *more]
    world = play(acts)
    assert world.ways["restored"] and world.errors["RunsDifferently"] and not world.findings, world.findings


@pytest.mark.parametrize("batches", [1, 2])
def test_a_power_cut_does_not_stop_a_query_that_saves_its_state(batches: int) -> None:
    """Each save needs Spark's note of the batch before."""
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "state": "2"}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1), ("produce", "in", 3)]
    world = play([*acts, ("run", "A", 1, killed), ("blackout", "A", batches), ("forget", True, True, False)])
    assert not world.errors and not world.findings, (world.told, world.findings)


@pytest.mark.parametrize("act", ["restate", "rebuilt"])
def test_what_is_known_to_be_decided_is_not_edited_when_its_rows_are_gone(act: str) -> None:
    """Nothing is visible, and the checkpoint knows the batch: the edit would have it written again."""
    killed = ("kill", ("spark: before commits", 1))
    query = {"id": "x", "state": "1"} if act == "restate" else {"id": "x"}
    acts: list[tuple[Any, ...]] = [("query", "A", query), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1, killed), (act, "A"), ("forget", True, True, True)]
    world = play([*acts, ("edit", "A", -1)])
    assert not world.findings, world.findings


def test_a_union_goes_on_where_its_sources_have_ended() -> None:
    """Each source has a line of its own in the offset log."""
    killed = ("kill", ("spark: before commits", 1))
    query = {"id": "x", "in": "in,in2", "union": "yes"}
    acts: list[tuple[Any, ...]] = [("query", "A", query), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in2", 3), ("run", "A", 1), ("produce", "in", 3), ("produce", "in2", 3)]
    acts += [("run", "A", 1, killed), ("rebuilt", "A"), ("run", "A", 1), ("anew", "A", "committed")]
    world = play(acts)
    assert world.ways["rebuilt"] and not world.errors and not world.findings, (world.told, world.findings)


@pytest.mark.parametrize("act", [("tried", "A", "out2", 1), ("fork", "B", "A", False)])
def test_a_copy_whose_rows_name_their_topic_does_not_count_those_of_the_copied_one(
    act: tuple[Any, ...],
) -> None:
    """Nobody knows where it writes, so it asks."""
    killed = ("kill", ("spark: before commits", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"rows": "yes"}), ("query", "B", {}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1, killed), ("forget", True, True, False)]
    world = play([*acts, act, ("run", "B", 1)])
    assert not world.findings and world.errors["CheckpointCopied"], (world.told, world.findings)


@pytest.mark.parametrize("rows", ["yes", "no"])
def test_a_lost_checkpoint_does_not_tell_the_query_from_a_copy(rows: str) -> None:
    """Where the rows name their topic (docs/limits.md). With the option topic the start stops."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "rows": rows}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("tried", "A", "out2", 1), ("lost", "A", "committed")]
    world = play([*acts, ("produce", "in", 3), ("run", "A", 1)])
    assert not world.findings, world.findings
    assert ("StartsElsewhere" in world.errors) == (rows == "no"), world.told
    found = {row for row in judge.seen(world.cluster, ["out"]) if row.startswith("A1:")}
    assert rows == "no" or "A1:in/4" not in found


@pytest.mark.parametrize("topic", ["out", "out2"])
def test_a_word_accepts_all_that_its_error_has_told(topic: str) -> None:
    """A stranger moved the group, and the topic is another one: one error tells both."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x", "kafka.group.id": "g"}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("anew", "A", "committed"), ("meddle", "g", True)]
    world = play([*acts, ("set", "A", "topic", topic)])
    assert not world.findings and world.ways["StartsElsewhere: exact"], (world.told, world.findings)
    assert ("has written to topic out" in world.told[0]) == (topic == "out2"), world.told


def test_a_write_of_foreachbatch_is_named_by_its_batch_and_its_topic() -> None:
    """Its sink counts writes, two a batch here: who is told that number publishes other rows."""
    killed = ("kill", ("commit: after END_TXN", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"each": "yes", "second": "out2"}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1, killed), ("forget", True, False, False)]
    world = play(acts)
    assert not world.findings and world.ways["ParticipantsLost: published"], (world.told, world.findings)
    assert re.search(r"the write of batch 1 of query \S+ to topic out is decided", world.told[0]), world.told


@pytest.mark.parametrize("lost", [True, False])
def test_a_query_that_was_set_forth_sees_that_its_log_was_cut(lost: bool) -> None:
    """The edit names today's leader epoch, in the checkpoint and in the group."""
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("produce", "in", 1), ("run", "A", 1)]
    acts += [("keep", "in"), ("produce", "in", 2), ("edit", "A", 1)]
    acts += [("lost", "A", "committed")] if lost else []
    world = play([*acts, ("cut", "in"), ("produce", "in", 4), ("run", "A", 1)])
    assert not world.findings and world.errors["DataLoss"], (world.told, world.findings)


@pytest.mark.parametrize("hidden", [True, False])
def test_a_named_write_of_foreachbatch_is_looked_for_in_the_log_before_it_is_called_lost(
    hidden: bool,
) -> None:
    """Transactional ids are forgotten. The query's own sink knows where its rows are; behind another
    transaction nobody sees them."""
    acts: list[tuple[Any, ...]] = [("query", "B", {"id": "x", "each": "yes"}), ("produce", "in", 1)]
    acts += [("stranger", "out")] if hidden else []
    world = play([*acts, ("run", "B", 1), ("forget", True, False, False)])
    assert not world.findings and not world.errors, (world.told, world.findings)


FIRST_BATCH = ("plan: after INIT_PRODUCER_ID", "task: after PRODUCE", "commit: before END_TXN")


@pytest.mark.parametrize("moment", FIRST_BATCH)
@pytest.mark.parametrize("source", ["in", "files"])
def test_a_copy_of_before_the_first_decision_does_not_write_what_retention_has_taken(
    source: str, moment: str
) -> None:
    """The cluster has forgotten the decision, and the log the rows."""
    acts: list[tuple[Any, ...]] = [("query", "B", {"in": source}), ("produce", source, 1)]
    acts += [("run", "B", 1, ("kill", (moment, 1))), ("backup", "B"), ("run", "B", 1)]
    world = play([*acts, ("forget", False, True, True), ("restore", "B")])
    assert not world.findings and world.errors["CheckpointOlder"], (world.told, world.findings)


LEAVES = {
    "a third name": ("id", "z"),
    "none": ("id", None),
    "the name of before": ("id", "x"),
    "at_least_once": ("processing.guarantee", "at_least_once"),
}
"""How a sink is left."""


def _copied_in_first(moment: str, before: int, rows: str) -> list[tuple[Any, ...]]:
    """A copy of before the first decision of a name, under which the query goes on. `before`: batches of its
    former name. `rows`: whether they name their topics."""
    query = {"id": "x"} | ({"rows": rows} if rows else {})
    acts: list[tuple[Any, ...]] = [("query", "B", query)]
    for _ in range(before):
        acts += [("produce", "in", 2), ("run", "B", 1)]
    killed = ("run", "B", 1, ("kill", (moment, 1)))
    acts += [("set", "B", "id", "y"), ("produce", "in", 2), killed, ("backup", "B")]
    for _ in range(2):
        acts += [("run", "B", 1), ("produce", "in", 2)]
    return acts


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("moment", FIRST_BATCH)
@pytest.mark.parametrize("rows", ["", "yes"])
@pytest.mark.parametrize("before", [0, 2])
def test_a_copy_of_before_a_name_s_first_decision_comes_back_under_another_name(
    before: int, rows: str, moment: str, leaves: str
) -> None:
    """The cluster has forgotten all decisions: rows of the name that is left are looked for."""
    acts = _copied_in_first(moment, before, rows)
    change = ("set", "B", *LEAVES[leaves])
    world = play([*acts, ("forget", False, True, False), ("restore", "B"), change, ("run", "B", 2)])
    assert not world.findings and world.errors["CheckpointOlder"], (world.told, world.findings)


@pytest.mark.parametrize("before", [0, 2])
def test_who_accepts_that_a_left_name_has_rows_goes_on_with_the_word(before: int) -> None:
    acts = _copied_in_first(FIRST_BATCH[1], before, "")
    acts += [("forget", False, True, False), ("restore", "B"), ("set", "B", "id", "z")]
    (told, *_) = play([*acts, ("run", "B", 1)]).told
    word = re.search(r"rows of it are visible already.* set (start\.accepted)=(\S+)", told)
    assert word is not None, told
    meant = play([*acts, ("set", "B", *word.groups()), ("run", "B", 1)])
    there = Counter(judge.seen(meant.cluster, SINKS).values())
    assert not meant.told and there[2] == 4 and max(there) == 2, (meant.told, there)


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("moment", FIRST_BATCH)
@pytest.mark.parametrize("before", [0, 2])
def test_who_has_written_nothing_under_a_name_leaves_it(before: int, moment: str, leaves: str) -> None:
    """Killed in its first batch: others have written to the topic since."""
    acts = _copied_in_first(moment, before, "")[:-4]
    others: list[tuple[Any, ...]] = [
        ("query", "A", {"id": "other", "in": "in2"}),
        ("produce", "in2", 2),
        ("run", "A", 1),
        ("stop", "A"),
    ]
    world = play([*acts, *others, ("set", "B", *LEAVES[leaves]), ("run", "B", 2)])
    assert not world.findings and not world.errors, (world.told, world.findings)


@pytest.mark.parametrize("seconds", [0.0, 86400.0])
def test_a_first_batch_of_today_is_begun_again_whatever_others_have_removed(seconds: float) -> None:
    """No decision is forgotten so soon, so what a topic has lost meanwhile is another writer's."""
    killed = ("kill", ("commit: after TXN_OFFSET_COMMIT", 1))
    acts: list[tuple[Any, ...]] = [("query", "B", {}), ("produce", "in", 1), ("produce", "out", 3)]
    acts += [
        ("run", "B", 1, killed),
        ("wait", seconds),
        ("forget", False, False, True, False),
        ("run", "B", 1),
    ]
    world = play(acts)
    assert not world.findings and not world.errors, (world.told, world.findings)


def test_a_write_of_foreachbatch_that_lost_rows_goes_on_with_the_word() -> None:
    """Without a token it is not replayed, so the error does not say that, and its word counts."""
    killed = ("kill", ("commit: after END_TXN", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"each": "yes"}), ("produce", "in", 3)]
    acts += [("run", "A", 1), ("produce", "in", 3), ("run", "A", 1, killed), ("forget", True, False, False)]
    world = play(acts)
    assert not world.findings and world.ways["ParticipantsLost: published"], (world.told, world.findings)
    assert not any("on.lost.transaction" in said for said in world.told), world.told


def test_a_checkpoint_whose_copy_has_left_the_sink_is_forked() -> None:
    """The copy was tried out with the names of today, elsewhere. A day of Spark's connector follows."""
    killed = ("kill", ("task: after INIT_PRODUCER_ID", 1))
    acts: list[tuple[Any, ...]] = [("query", "A", {"id": "x"}), ("produce", "in", 3), ("run", "A", 1)]
    acts += [("produce", "in", 3), ("run", "A", 1, killed), ("edit", "A", 1), ("set", "A", "id", None)]
    acts += [("tried", "A", "out2", 1), ("sparkday", "A"), ("produce", "in", 2), ("run", "A", 1)]
    world = play(acts)
    assert not world.findings and world.ways["CheckpointCopied: fork"], (world.told, world.findings)
