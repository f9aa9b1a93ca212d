"""Without a repair a history that is kept breaks its promise again: the judge sees what it is for."""

import pytest

from tests.histories.run_histories import play
from tests.histories.test_kept import KEPT
from tests.histories.without import OF_MOVES, OF_TABLES, ROWS, without

FOUND_BY = {
    "StartsElsewhere": "a group of two queries",
    "StartsElsewhere, another sink's group": "from a group that another query has joined",
    "StartsElsewhere, a source alone": "from a group that another query has joined, by a source alone",
    "StartsElsewhere, at_least_once": "at_least_once from a group that another query moves on",
    "TakenOver": "the old query again after a hand-over",
    "TakenOver, under other names": "the old query again after a hand-over, under another group",
    "TakenOver, a sink that was left": "renamed, the checkpoint lost, and the old name given",
    "a checkpoint's line by hand": "the source's log cut, and a start by hand from the checkpoint's line",
    "TakenOver, the group moved": "an old query, when a third one has moved the group of the hand-over",
    "SinkChanged": "another transactional.id after a kill between decision and commits",
    "the old sink is left": "another transactional.id after a kill before the decision, sealed",
    "at_least_once finishes": "at_least_once from now on, after a kill between decision and commits",
    "at_least_once needs its checkpoint": "at_least_once on a checkpoint of the session, after a kill",
    "at_least_once finishes what its name has decided": "at_least_once under a dead query's name",
    "open winners of a noted batch": "at_least_once for a while, on a checkpoint that it is not to see",
    "a blind checkpoint": "a checkpoint of the session, restored from an older copy",
    "TokenReused": "a token for other rows",
    "DecisionGone, completed batches": "the cluster restored, the checkpoint newer",
    "where the sink's last batch ended": "a group is renamed, and a new checkpoint begins from the old one",
    "what a batch reads": "a power cut takes the last batch's plan, of files",
    "CheckpointOlder": "a copy of the checkpoint goes on, the newest one was put aside",
    "copies of a checkpoint": "a copy of a checkpoint is tried out into another topic",
    "where the last query has written": "a copy has decided last, and another query follows at its offsets",
    "a position is not forgotten": "a topic leaves and is named again",
    "rows are where their batch ended": "a successor, and the sink's log is cut before its first decision",
    "the log before rows are lost": "killed before Spark noted it, and transactional ids are forgotten",
    "leader epochs": "the source's log cut, and grown past the offset",
    "a new checkpoint in a log that was cut": (
        "the source's log cut, the checkpoint lost, and as much written there again"
    ),
    "topics created again behind another connector's batch": (
        "a day with Spark's connector, and the source made anew"
    ),
    "a topic that is added goes on where it was left": "a topic leaves and is added again",
    "an edit in a log that was cut": "set forth by hand in a log that was cut",
    "rows that retention has taken": "killed before Spark noted it, and all is forgotten, the rows too",
    "topics created again": "the source created again, and longer than before",
    "a first batch that is replayed": "startingOffsets changed after a kill in the first batch",
    "where a new source began": "a source renamed, and read again to where the former one ended",
    "anonymous writes are not sealed": "a write without a name, killed sealed",
    "a reader of whole batches": "killed while its rows become visible, partition by partition",
    "an orderly end": "stopped in mid-batch",
    "attempts that come too late": "a copy of a task writes when all is done",
    "a fan-out's table that was set back": "a table is restored to before the last batch",
    "a fan-out's table that was set back, and forth": "a table is restored, and back to its last batch",
    "another query's batches in a table": "a new checkpoint of a fan-out",
    "what the new cluster has decided": "the copy of before the move is moved again",
    "what the new cluster has forgotten": (
        "the copy of before the move is moved again, and the new cluster has forgotten"
    ),
    "rows behind a move": "the copy from right after the move, and the new cluster has forgotten",
    "topics that were left, on the new cluster": (
        "a topic that was left out is named again on the new cluster"
    ),
    "what the mirror lacks": "the mirror lacks the last records, and others write there",
    "what others have written below the place": "a mirror copies on behind others' records",
    "a fan-out's batch with other rows": "a fan-out's checkpoint is restored after a kill, and more has come",
}
SECOND = {"DecisionGone, the group's notes", "leader epochs of shorter logs"}
"""Behind other checks, which stop the same query first, or read what is there."""


def test_every_row_has_its_history() -> None:
    assert {*ROWS, *OF_TABLES, *OF_MOVES} == {*FOUND_BY, *SECOND}


@pytest.mark.parametrize("row", FOUND_BY)
def test_without_it_a_promise_is_broken(row: str) -> None:
    with without(row):
        findings = play(KEPT[FOUND_BY[row]]).findings
    assert findings and not [one for one in findings if one.kind == "crash"], findings
