"""The start of a query: checkpoint, decision, group and cluster compared; what stops it and what is said."""

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from eoslog.connector.checkpoint.cluster_check import check_cluster, check_group_cluster, check_sink_cluster
from eoslog.connector.checkpoint.completed_batches import check_forgotten, others_batches
from eoslog.connector.checkpoint.new_checkpoint import check_plain_start, remade, unread
from eoslog.connector.checkpoint.spark_logs import Planned
from eoslog.connector.checkpoint.start_checks import check_given, check_story, check_taken_over, check_unnoted
from eoslog.connector.checkpoint.start_facts import Completed, OtherSink, RowsFound, StartFacts
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CheckpointOlder,
    DecisionGone,
    RowsGone,
    SinkChanged,
    StartsElsewhere,
    TakenOver,
)
from eoslog.connector.commit.places import Place, Seen
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.offsets.group_notes import Note, NotedOffset, check_notes, read_note
from eoslog.connector.offsets.offsets import TakenFrom, cluster_from_json, position_from_json, to_json
from eoslog.connector.offsets.plan import losses
from eoslog.connector.options.source_options import source_options
from eoslog.errors import WrongCluster
from eoslog.protocol.producer_identity import ProducerIdentity

PLACE = ("t", 0)
LACKS = ("out-0 ends at 3, and rows were written up to 9",)
VISIBLE = ("out-1 has 2 rows from offset 4 on",)


def story(
    batch: int, decided: Batch | None = None, *, completed: int | None = None, at: Any = None, **more: Any
) -> StartFacts:
    """Query q's sink s at a batch that ends at 10 x its number; `at`: the group's offset, and its note.
    `begins`: where the query began, if the batch says it."""
    committed: Mapping[tuple[str, int], NotedOffset] = {} if at is None else {PLACE: NotedOffset(*at)}
    ended, begins = None, more.pop("begins", None)
    if decided is not None and decided.query_id == "q":
        ended = (f"d{decided.batch_id}", {PLACE: 10 * decided.batch_id})
    known: dict[str, Any] = {"sink": "s", "group": "g", "ended": ended, **more}
    return StartFacts(
        batch=Batch("q", batch, f"d{batch}"),
        ends={PLACE: 10 * batch},
        begins={PLACE: {"0": 10 * batch if begins is None else begins}},
        completed=completed,
        decided=decided,
        committed=committed,
        **known,
    )


def both(told: StartFacts, first: tuple[int, Note], second: tuple[int, Note]) -> StartFacts:
    """The story on two partitions, of which the group holds these."""
    other = ("t", 1)
    ends = {PLACE: told.ends[PLACE], other: told.ends[PLACE]}
    begins = {place: {"0": at} for place, at in ends.items()}
    return told._replace(
        ends=ends, begins=begins, committed={PLACE: NotedOffset(*first), other: NotedOffset(*second)}
    )


def of(query: str, batch: int) -> Batch:
    return Batch(query, batch, f"d{batch}")


def ended_at(batch: int) -> OtherSink:
    """Where another sink's query has ended."""
    return OtherSink(of("other", batch))


def note(batch: int, query: str = "q", sink: str = "s", *, decided: bool = True) -> Note:
    return Note(sink, query, batch, decided=decided)


@pytest.mark.parametrize(
    "fits",
    [
        pytest.param(story(0), id="all is new"),
        pytest.param(story(5, of("q", 4), completed=4, at=(40, note(4))), id="the next batch"),
        pytest.param(story(5, of("q", 5), completed=4, at=(50, note(5))), id="killed after the decision"),
        pytest.param(story(0, of("q", 0), at=(0, note(0))), id="killed in its first batch, decided"),
        pytest.param(story(0, of("q", 0), group=None), id="the same without kafka.group.id"),
        pytest.param(story(5, of("q", 4), completed=4), id="kafka.group.id is new"),
        pytest.param(
            story(5, of("q", 4), completed=4, ended=None, at=(50, note(5)._replace(decided=False))),
            id="killed as at_least_once, which decides nothing",
        ),
        pytest.param(story(5, of("q", 4), completed=4, group=None), id="no kafka.group.id"),
        pytest.param(story(0, of("old", 7), at=(0, note(7, "old"))), id="a new checkpoint, from committed"),
        pytest.param(
            story(0, of("old", 7), at=(-7, note(7, "old")), begins=-7),
            id="a new checkpoint, from the group's offsets by number, with rows",
        ),
        pytest.param(story(5, of("q", 4), completed=4, ended=None, at=(33, None)), id="batch 4 is removed"),
        pytest.param(story(5, Batch("q", 4), completed=4), id="decided without a digest"),
    ],
)
def test_what_fits_is_not_talked_about(fits: StartFacts) -> None:
    assert check_story(fits) == []


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        pytest.param(
            story(5, of("q", 4), completed=4, at=(33, None)),
            r"group g were changed by somebody else \(by hand.*t-0 at 33, not at 40, where batch 4 ended",
            id="moved by hand",
        ),
        pytest.param(
            story(5, of("q", 4), completed=4, at=(33, note(9, "other", "s2"))),
            r"changed by the sink s2: t-0 at 33.*Give each query a kafka.group.id of its own",
            id="two queries share a group",
        ),
        pytest.param(
            story(5, completed=4),
            "completed batch 4, but the sink has decided no batch of this query. That is right where another "
            "connector.*killed right after it decided batch 5, its rows are written twice",
            id="no decision",
        ),
        pytest.param(
            story(5, of("other", 2), completed=4),
            r"decided no batch of this query \(its last decision is batch 2 of query other\)",
            id="another query used the sink",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8),
            "completed batch 8, but the sink has decided batch 4 last",
            id="the cluster was set back",
        ),
    ],
)
def test_what_does_not_fit_is_said(odd: StartFacts, says: str) -> None:
    (said,) = check_story(odd)
    assert said.startswith("sink s: ")
    assert re.search(says, said), said


@pytest.mark.parametrize(
    ("wrong", "fault", "says"),
    [
        pytest.param(
            story(5, completed=4, at=(50, note(5, sink="before"))),
            DecisionGone,
            "group g holds the source offsets that the sink before committed with batch 5 of query q, so its "
            "rows are written.*Give the old transactional.id back.*startingOffsets=committed",
            id="transactional.id changed after a decision",
        ),
        pytest.param(
            story(5, of("other", 1), completed=4, at=(50, note(5))),
            DecisionGone,
            "did another query use it",
            id="another query's decision took the place of ours",
        ),
        pytest.param(
            story(0, at=(0, note(0))), DecisionGone, "batch 0 of query q", id="the same in the first batch"
        ),
        pytest.param(
            both(story(5, completed=4), (30, note(3)), (50, note(5))),
            DecisionGone,
            "batch 5 of query q, so its rows are written",
            id="the same, and a partition without new rows",
        ),
        pytest.param(
            story(5, completed=4, at=(90, note(9))),
            CheckpointOlder,
            "batch 9 of query q, and the checkpoint is at batch 5.*Bring the right checkpoint back",
            id="checkpoint older than the group's offsets",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8, ended=("another", {PLACE: 44})),
            CheckpointMismatch,
            "decided batch 4 of query q with other source offsets than the checkpoint has for it",
            id="a checkpoint that went another way",
        ),
        pytest.param(
            story(0, of("old", 7), at=(70, note(7, "old"))),
            StartsElsewhere,
            r"checkpoint is new, and group g holds source offsets of an earlier query \(t-0 at 70.* at 0\): "
            "rows may be written.*startingOffsets=committed.*accepted=new-checkpoint:old:7",
            id="a lost checkpoint, not from committed; or the group moved on while this query began",
        ),
        pytest.param(
            story(0, of("old", 7), at=(0, note(7, "old")), begins=-7),
            StartsElsewhere,
            r"earlier query \(t-0 at 0, this query's first batch begins at -7\)",
            id="a lost checkpoint, and the first batch ends where the group is, but begins before",
        ),
        pytest.param(
            both(story(0, of("old", 7)), (0, note(7, "old")), (30, note(7, "old"))),
            StartsElsewhere,
            r"group g holds source offsets of an earlier query \(t-0 at 0.*t-1 at 30",
            id="from committed in one partition alone",
        ),
        pytest.param(
            story(0, at=(70, note(7, "old", "old"))),
            StartsElsewhere,
            "group g holds source offsets of an earlier query",
            id="the same without transactional.id",
        ),
        pytest.param(
            story(0, of("old", 7), group=None),
            StartsElsewhere,
            "checkpoint is new, and the sink has written batch 7 of query old.*startingOffsets=committed.*"
            "start.accepted=new-checkpoint:0, or give it a transactional.id",
            id="a lost checkpoint, no group",
        ),
        pytest.param(
            story(0, of("old", 3), at=(0, note(7, "other", "s2"))),
            StartsElsewhere,
            "begins at offsets of group g that the sink s2 has committed.*transactional.id=s2, in source and "
            "sink.*start.accepted=offsets-of:s2",
            id="from another sink's offsets",
        ),
        pytest.param(
            story(0, at=(0, note(7, "other", "s2")._replace(decided=False))),
            StartsElsewhere,
            "begins at offsets of group g that the sink s2 has committed",
            id="from the offsets of a query of at_least_once",
        ),
        pytest.param(
            story(0, group=None, taken={TakenFrom("s2", "h")}),
            StartsElsewhere,
            "begins at offsets of group h that the sink s2 has committed.*start.accepted=offsets-of:s2",
            id="from another sink's offsets, and the sink has no group",
        ),
        pytest.param(
            story(0, at=(7, note(3, "old")), taken={TakenFrom("s2", "h")}, accepted={"new-checkpoint:old:3"}),
            StartsElsewhere,
            "offsets of group h .*start.accepted=new-checkpoint:old:3,offsets-of:s2",
            id="from another sink's offsets, and the sink has another group",
        ),
        pytest.param(
            story(5, of("q", 4), completed=4, at=(70, note(1, "successor"))),
            TakenOver,
            "query successor has taken the place of query q: group g .*t-0 at 70, this query stands at "
            "40.*Stop this query",
            id="started again after another query took over",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8, since=0),
            DecisionGone,
            "completed batch 8, and the sink knows batch 4 as its last one.*restored from an older copy.*"
            "start.accepted=decisions-gone:8",
            id="the cluster was set back",
        ),
        pytest.param(
            story(9, completed=8, since=3),
            DecisionGone,
            "the sink knows none of this query",
            id="the cluster was set back to before the query",
        ),
        pytest.param(
            story(9, completed=8, since=3, rested=True, rows=RowsFound(8, 8, LACKS)),
            DecisionGone,
            r"the sink knows none of this query.*\(out-0 ends at 3, and rows were written up to 9\)",
            id="it rested, and the log does not have its rows",
        ),
        pytest.param(
            story(
                9, completed=8, since=3, rested=True, rows=RowsFound(8, 7, followed=("out-0 has some at 9",))
            ),
            CheckpointOlder,
            r"rows of transactions follow those of batch 7 \(out-0 has some at 9\).*Bring the right "
            "checkpoint back.*start.accepted=decisions-gone:8",
            id="it rested, and rows follow its own",
        ),
        pytest.param(
            story(9, completed=8, since=3, rows=RowsFound(8, 7, followed=("out-0 has some",), proven=8)),
            CheckpointOlder,
            r"decision on it any more, and rows of transactions follow those of batch 7 \(out-0 has some\)",
            id="its rows are there without a decision, and rows follow",
        ),
        pytest.param(
            story(9, completed=8, since=3, rows=RowsFound(8, 7, LACKS, proven=8)),
            DecisionGone,
            "the sink knows batch 8 as its last one",
            id="the last rows are there without a decision, and others are gone",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8, since=0, rows=RowsFound(8, 8, LACKS, undecided=VISIBLE)),
            DecisionGone,
            r"knows batch 4 as its last one: .* a part of the rows of later batches is visible \(out-1 has 2 "
            r"rows from offset 4 on\)\. Others may be gone \(out-0 ends.*publish those that are missing; "
            "then set start.accepted=decisions-gone:8,.*startingOffsets=committed",
            id="the cluster has lost decisions, and a part of the rows is visible",
        ),
        pytest.param(
            story(9, of("q", 8), completed=8, since=0, rows=RowsFound(8, 8, LACKS, undecided=VISIBLE)),
            CheckpointOlder,
            r"batch 8 of query q is the last one that the sink has decided and that the checkpoint knows, "
            r"and later rows of the sink are visible \(out-1 has 2 .*set start.accepted=decisions-gone:8",
            id="later rows are visible than checkpoint and decision know",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8, since=0, rows=RowsFound(8, 8, LACKS, proven=6)),
            DecisionGone,
            "knows batch 6 as its last one.*the last line of offsets/6 in",
            id="a later batch is visible, and the last one is not",
        ),
        pytest.param(
            story(9, of("q", 4), completed=8, since=3, rows=RowsFound(6, 6)),
            DecisionGone,
            "has completed batch 6, and the sink knows batch 4 as its last one.*"
            "Batches 7 to 8 were run by another connector: who begins before them writes their rows again",
            id="the cluster was set back, and another connector has run the last batches",
        ),
        pytest.param(
            story(9, of("q", 8), completed=8, since=0, rows=RowsFound(8, 7, LACKS)),
            RowsGone,
            "batch 7 is decided, and the cluster has lost rows of it .*checkpoint rewind.*"
            "start.accepted=rows-gone:7",
            id="the log has lost rows of what is decided",
        ),
        pytest.param(
            story(9, completed=8, since=7, rows=RowsFound(7, 7)),
            DecisionGone,
            "whose rows are in the sink's topics .*Batch 8 was run by another",
            id="the cluster was set back to before the query, and another connector has run the last batch",
        ),
        pytest.param(
            story(5, completed=4, at=(70, note(7, decided=False))),
            CheckpointOlder,
            "with batch 7 of query q, under at_least_once, and the checkpoint's batch 5 ends elsewhere.*"
            "Bring the right checkpoint back.*run the query with at_least_once until",
            id="set back behind batches of at_least_once",
        ),
        pytest.param(
            story(5, completed=4, at=(55, note(5, decided=False))),
            CheckpointOlder,
            "with batch 5 of query q, under at_least_once",
            id="the same batch of at_least_once, which was planned anew",
        ),
        pytest.param(
            story(0, completed=0, since=0),
            DecisionGone,
            "completed batch 0, and the sink knows none of this query",
            id="the same in its first batch",
        ),
    ],
)
def test_what_would_double_or_lose_rows_stops_the_query(wrong: StartFacts, fault: type, says: str) -> None:
    with pytest.raises(fault, match=says):
        check_story(wrong)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(story(9, completed=8, since=3, rested=True, rows=RowsFound(8, 8)), id="expired"),
        pytest.param(story(9, of("q", 6), completed=8, since=3, rows=RowsFound(6, 5)), id="run by others"),
        pytest.param(story(9, completed=8, since=3, rows=RowsFound(8, 8, proven=8)), id="proven"),
        pytest.param(story(9, of("q", 7), completed=8, since=3, rows=RowsFound(8, 8, proven=8)), id="lost"),
        pytest.param(
            story(9, of("q", 8), completed=8, since=0, rows=RowsFound(8, 7, LACKS), accepted={"rows-gone:7"}),
            id="accepted",
        ),
        pytest.param(story(9, completed=8, since=3, rows=RowsFound(2, 2)), id="all run by others"),
        pytest.param(
            story(9, completed=8, since=9, at=(90, note(9, decided=False))),
            id="killed before Spark noted a batch of at_least_once",
        ),
        pytest.param(story(9, completed=8, since=3, rows=RowsFound(8, 8, any=False)), id="without rows"),
    ],
)
def test_what_is_forgotten_or_run_by_others_is_not_lost(told: StartFacts) -> None:
    assert check_story(told) == []


def test_batches_of_another_connector_are_told_in_a_sentence() -> None:
    assert others_batches(Completed(8, 0, False, RowsFound(8))) == ""
    assert others_batches(Completed(8, 0, False)) == "" == others_batches(Completed(None, 0, False))
    assert others_batches(Completed(8, 0, False, RowsFound(7))).startswith("batch 8 was run by another")
    assert others_batches(Completed(8, 0, False, RowsFound(5))).startswith("batches 6 to 8 were run by")


def by_writers(*how: Seen) -> dict[Place, Seen]:
    """What the log shows of writers that have written one place each, to topics t0, t1, ..."""
    who = [ProducerIdentity(number, 0) for number in range(len(how))]
    return {Place(f"t{n}", "id", 0, 5, who[n], 1): one for n, one in enumerate(how)}


def test_a_batch_that_is_visible_in_part_stops_the_query() -> None:
    batch = Batch("q", 4)
    for how in ((Seen.ABORTED,), (Seen.GONE,), (Seen.OPEN, Seen.HIDDEN), ()):
        assert not check_forgotten("s", batch, by_writers(*how), ())
    assert check_forgotten("s", batch, by_writers(Seen.COMMITTED), ())
    parts = by_writers(Seen.COMMITTED, Seen.ABORTED)
    with pytest.raises(DecisionGone, match=r"all rows were \(others are aborted\).*batch-written:q:4, and"):
        check_forgotten("s", batch, parts, ())
    assert check_forgotten("s", batch, parts, {"batch-written:q:4"})


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ((Seen.REMOVED,), "by retention or compaction"),
        ((Seen.REMOVED, Seen.ABORTED), "by retention or compaction"),
        ((Seen.REMOVED, Seen.HIDDEN), "by retention or compaction"),
        (
            (Seen.GONE, Seen.REPLACED),
            "in t1, which is not that topic any more: it was deleted",
        ),
        ((Seen.ABORTED, Seen.REPLACED, Seen.REPLACED), "in t1, t2, which is not that topic"),
    ],
)
def test_rows_that_the_log_had_say_nothing_of_a_decision(how: tuple[Seen, ...], why: str) -> None:
    batch, seen = Batch("q", 4), by_writers(*how)
    with pytest.raises(
        DecisionGone, match=rf"{why}.*batch-written:q:4, and .* set start.accepted=x,batch-missing:q:4"
    ):
        check_forgotten("s", batch, seen, {"x"})
    assert check_forgotten("s", batch, seen, {"batch-written:q:4"})
    assert not check_forgotten("s", batch, seen, {"batch-missing:q:4"})


@pytest.mark.parametrize(("how", "goes_on"), [(Seen.COMMITTED, True), (Seen.ABORTED, False)])
def test_a_writer_s_other_topics_tell_how_it_ended(how: Seen, goes_on: bool) -> None:
    """Its topic was made anew; but in another one the log shows whether the batch was decided."""
    (gone,), who = by_writers(Seen.REPLACED), ProducerIdentity(0, 0)
    other = Place("other", "id", 3, 7, who, 1)
    assert check_forgotten("s", Batch("q", 4), {other: how, gone: Seen.REPLACED}, ()) is goes_on


@pytest.mark.parametrize(
    ("odd", "words", "warnings"),
    [
        (story(0, of("old", 7), at=(70, note(7, "old")), accepted={"new-checkpoint:old:7"}), "continuing", 1),
        (story(0, of("old", 7), group=None, accepted={"new-checkpoint:0"}), "continuing", 1),
        (story(0, at=(0, note(7, "other", "s2")), accepted={"x", "offsets-of:s2:other:7"}), "", 0),
        (story(0, group=None, taken={TakenFrom("s2", "h")}, accepted={"offsets-of:s2:0"}), "", 0),
        (story(0, sink="q", taken={TakenFrom("s2", "h")}, accepted={"offsets-of:s2:q"}), "", 0),
        (story(0, group=None, taken={TakenFrom("s", "h")}), "", 0),
        (story(9, of("q", 4), completed=8, since=0, accepted={"decisions-gone:8"}), "", 0),
        (story(9, completed=8, since=3, rested=True), "", 0),
        (story(9, of("q", 4), completed=8, since=9), "", 0),
        (story(0, at=(70, None)), "", 0),
    ],
)
def test_what_is_accepted_goes_on(odd: StartFacts, words: str, warnings: int) -> None:
    """As its user says; or as nothing else can be told: decisions expire with a query's long rest, those from
    before `since` are another sink's, offsets without a note are some consumer's."""
    said = check_story(odd)
    assert len(said) == warnings and all(words in text for text in said)


@pytest.mark.parametrize(
    ("at", "says"),
    [
        (0, "begins at offsets of group g that the sink s2 has committed.*transactional.id=s2"),
        (70, r"the sink s2 has committed to its group g since it was planned \(t-0 at 70, not at 0\).*s2"),
    ],
)
def test_at_least_once_does_not_begin_where_another_sink_has_committed(at: int, says: str) -> None:
    """Nor does it at its next start, when the group has moved on."""
    with pytest.raises(StartsElsewhere, match=says):
        check_plain_start(story(0, at=(at, note(7, "other", "s2"))))
    check_plain_start(story(0, at=(at, note(7, "other", "s2")), accepted={"offsets-of:s2:other:7"}))
    with pytest.raises(StartsElsewhere, match=says):
        check_plain_start(story(0, at=(at, note(7, "other", "s2")), accepted={"offsets-of:s2:other:6"}))
    with pytest.raises(StartsElsewhere, match=says):
        check_plain_start(story(0, at=(at, note(7, "other", "s2")._replace(decided=False))))
    check_plain_start(story(0, at=(-1, note(7, "other", "s2")), begins=-2))  # what others have read, again
    with pytest.raises(StartsElsewhere, match="begins at offsets of group h that the sink s2 has committed"):
        check_plain_start(story(0, group=None, taken={TakenFrom("s2", "h")}))
    check_plain_start(story(1, completed=0, group=None, taken={TakenFrom("s2", "h")}))
    check_plain_start(story(0, at=(at, note(7, "before"))))
    check_plain_start(story(0, at=(at, None)))
    check_plain_start(story(5, completed=4, at=(at, note(7, "other", "s2"))))


def test_a_sink_whose_last_decision_is_another_query_s() -> None:
    """It has taken over, although it stands where this one stands, or a third one has moved the group."""
    for at in ((40, note(4)), (40, note(4, "third", "t")), (90, note(4, "third", "t"))):
        told = story(5, of("q", 4), completed=4, at=at, followed_by="successor")
        with pytest.raises(TakenOver, match="query successor has taken the place of query q: that query has"):
            check_story(told)
        check_story(told._replace(accepted={"taken-over:successor:5"}))
        with pytest.raises(TakenOver):
            check_story(told._replace(accepted={"taken-over:successor:4", "taken-over:successor"}))
        check_story(told._replace(followed_by=None))


def test_who_has_left_a_sink_is_told_of_its_successor_from_its_first_batch_on() -> None:
    """Under another name it would not stop that one; under the same it does, and goes on where both stand."""
    where = {PLACE: NotedOffset(40, note(0, "successor"))}
    check_taken_over("s", of("q", 5), "g", where, {PLACE: 40}, ())
    with pytest.raises(TakenOver, match=r"t-0 at 40, this query stands at 40.*taken-over:successor:5$"):
        check_taken_over("s", of("q", 5), "g", where, {PLACE: 40}, (), is_left=True)
    check_taken_over("s", of("q", 5), "g", where, {PLACE: 40}, {"taken-over:successor:5"}, is_left=True)
    check_taken_over("s", of("successor", 5), "g", where, {PLACE: 40}, (), is_left=True)


def test_who_has_read_before_what_is_read_first_is_no_successor() -> None:
    """Under at_least_once nobody knows who came first."""
    where = {PLACE: NotedOffset(40, note(0, "earlier"))}
    check_taken_over("s", of("q", 5), "g", where, {}, (), fresh=[PLACE])
    for fresh, found in (([], note(0, "earlier")), ([PLACE], note(0, "earlier")._replace(decided=False))):
        with pytest.raises(TakenOver):
            check_taken_over("s", of("q", 5), "g", {PLACE: NotedOffset(40, found)}, {}, (), fresh=fresh)


def ended(*ends: int) -> Planned:
    """The plan of the sink's last batch: where each of its sources ended."""
    return Planned(7, tuple(f'{{"t":{{"0":{at}}}}}' for at in ends))


OLD = of("old", 7)
ALIEN = note(7, "other", "s2")
LOOSE = note(3, "loose")._replace(decided=False)
APART = note(7, "old")._replace(apart=(("0", 20), ("1", 15)))
FILES = Planned(7, ('{"t":{"0":0}}', '{"logOffset":3}'))
TWO: Any = {PLACE: {"0": 20, "1": 15}}


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        pytest.param(story(0, OLD, at=(0, None)), "t-0 at 0, committed by somebody else", id="moved by hand"),
        pytest.param(
            story(0, of("old", 9), at=(0, note(7, "old"))),
            r"\(batch 9 of query old\): t-0 at 0, committed with batch 7 of query old\. Rows.*by number",
            id="the group was left out for a while",
        ),
        pytest.param(
            story(0, OLD, at=(5, note(7, "old")), begins=5, left=ended(9)),
            r't-0 at 5, .* and that batch ended at 9.*and startingOffsets=\{"t":\{"0":9\}\}, to go on',
            id="moved by somebody who keeps notes",
        ),
        pytest.param(
            both(story(0, OLD), (0, note(7, "old")), (0, note(7, "old")))._replace(
                committed={PLACE: NotedOffset(0, note(7, "old"))},
                left=Planned(7, ('{"t":{"0":0,"1":30}}',)),
            ),
            "t-1 at no offset, and that batch ended at 30",
            id="one offset was deleted",
        ),
        pytest.param(
            story(0, OLD, at=(5, LOOSE), begins=5, left=ended(9)),
            "t-0 at 5, committed with batch 3 of query loose, and that batch ended at 9",
            id="at_least_once stands behind",
        ),
        pytest.param(
            story(0, OLD, at=(0, LOOSE)), "committed with batch 3 of query loose", id="or that is not known"
        ),
        pytest.param(
            story(0, at=(0, ALIEN), accepted={"offsets-of:s2:other:7"}, others={"s2": ended_at(8)}),
            "t-0 at 0, committed with batch 7 of query other, and batch 8 of query other came later",
            id="another sink has gone on elsewhere",
        ),
        pytest.param(
            story(0, OLD, at=(15, APART), begins=15),
            "t-0 at 15, and that batch ended at 20 in source 0, 15 in source 1",
            id="the lowest end of two sources",
        ),
        pytest.param(
            story(0, OLD, at=(15, APART), begins=15, left=ended(20, 15)),
            r'at 20 in source 0, 15 in source 1.*"0":20\}\} for source 0, startingOffsets=.* for source 1',
            id="the same, and the plan is known",
        ),
        pytest.param(
            story(0, OLD, at=(0, note(7, "old")), left=FILES, without_topics=["1"]),
            "its sources 1 read no topics, so they begin anew: .* may be written again",
            id="a source of files beside it",
        ),
    ],
)
def test_a_group_that_is_not_where_the_sink_ended(odd: StartFacts, says: str) -> None:
    with pytest.raises(StartsElsewhere, match=says):
        check_story(odd)
    assert (
        "continuing"
        in check_story(
            odd._replace(accepted={f"new-checkpoint:{odd.last_written}", "offsets-of:s2:other:7"})
        )[0]
    )


@pytest.mark.parametrize(
    "exact",
    [
        pytest.param(
            story(0, OLD, begins=4, left=ended(4), group=None), id="where the batch ended, by number"
        ),
        pytest.param(story(0, OLD, at=(9, None), begins=4, left=ended(4)), id="and somebody moved the group"),
        pytest.param(story(0, OLD, at=(9, ALIEN), begins=4, left=ended(4)), id="or another sink did"),
        pytest.param(story(0, OLD, at=(15, APART))._replace(begins=TWO), id="each source where it ended"),
        pytest.param(story(0, OLD, left=ended(20, 15))._replace(begins=TWO), id="the same without a group"),
        pytest.param(story(0, OLD, at=(9, LOOSE), begins=9, left=ended(4)), id="at_least_once has gone on"),
        pytest.param(story(0, at=(9, note(7, "old")), begins=9), id="the decision has expired"),
        pytest.param(story(0, OLD, left=ended(0), without_topics=["1"]), id="a source of files is added"),
        pytest.param(story(0, OLD, left=FILES), id="a source of files is left out"),
        pytest.param(
            story(0, at=(0, ALIEN), accepted={"offsets-of:s2:other:7"}, others={"s2": ended_at(7)}),
            id="hand-over",
        ),
    ],
)
def test_a_new_checkpoint_that_goes_on_where_the_sink_ended(exact: StartFacts) -> None:
    assert check_story(exact) == []
    if exact.decided is None:  # it has expired, and its places with it
        return
    gone = exact._replace(rows=RowsFound(batch=7, lacks=LACKS))
    with pytest.raises(RowsGone, match=r"batch 7 is decided, and.*start\.accepted=.*rows-gone:7"):
        check_story(gone)
    assert check_story(gone._replace(accepted=[*gone.accepted, "rows-gone:7"])) == []

    later = exact._replace(rows=RowsFound(batch=7, undecided=VISIBLE))
    hidden = later._replace(accepted=[*later.accepted, f"new-checkpoint:{later.last_written}"])
    for one in (later, hidden):  # a word for another difference does not accept these rows
        with pytest.raises(DecisionGone, match=r"Later rows of the sink are visible \(out-1 has 2") as raised:
            check_story(one)
    word = re.search(r"new-checkpoint:[\w:-]+:rows-\w+", str(raised.value))
    assert word and check_story(later._replace(accepted=[*later.accepted, word.group()])) == []


@pytest.mark.parametrize(
    "unsure",
    [
        pytest.param(
            story(0, OLD, left=ended(0), group=None)._replace(begins={}), id="only its end is known"
        ),
        pytest.param(
            story(0, OLD, at=(0, note(7, "old")))._replace(begins={}), id="the same at the group's offsets"
        ),
        pytest.param(
            story(0, OLD, at=(9, LOOSE), begins=4, left=ended(4)), id="at_least_once has gone on, unseen"
        ),
        pytest.param(
            story(0, OLD, left=ended(20, 15))._replace(begins={PLACE: {"0": 15, "1": 20}}),
            id="sources in another order",
        ),
    ],
)
def test_a_new_checkpoint_that_may_begin_elsewhere(unsure: StartFacts) -> None:
    with pytest.raises(StartsElsewhere):
        check_story(unsure)


SOURCES: Any = {PLACE: {"0": 15, "1": 16}}


@pytest.mark.parametrize(
    ("skips", "says"),
    [
        pytest.param(
            story(0, OLD, begins=5, left=ended(4), group=None),
            r"last decision is batch 7 of query old\): t-0 at 5, and 4 was reached\. Rows are left out.*"
            r'Or start it with another new checkpoint and startingOffsets=\{"t":\{"0":4\}\}, to go on where',
            id="latest, behind the last decision",
        ),
        pytest.param(
            story(0, OLD, at=(5, None), begins=5, left=ended(4)),
            r"t-0 at 5, and 4 was reached.*written\. Start it with another new checkpoint and starting",
            id="committed, and a stranger has reset the group",
        ),
        pytest.param(
            story(0, OLD, at=(5, ALIEN), begins=5, left=ended(4), accepted={"offsets-of:s2:other:7"}),
            "t-0 at 5, and 4 was reached",
            id="committed by another sink",
        ),
        pytest.param(
            story(0, at=(4, LOOSE), begins=5),
            "the group has notes of it.*t-0 at 5, and 4 was reached",
            id="latest, behind the group of an at_least_once query",
        ),
        pytest.param(
            story(0, OLD, at=(4, LOOSE), begins=5, left=ended(3)),
            "t-0 at 5, and 3 and 4 was reached",
            id="the same, after a decision",
        ),
        pytest.param(
            story(0, at=(4, ALIEN), begins=5)._replace(ends={PLACE: 6}),
            "t-0 at 5, and 4 was reached",
            id="another sink stands before",
        ),
        pytest.param(
            story(0, OLD, left=ended(20, 15), group=None)._replace(begins=SOURCES),
            "t-0 at 15 in source 0, 16 in source 1, and 20 in source 0, 15 in source 1 was",
            id="one of two sources",
        ),
        pytest.param(
            story(0, at=(15, APART))._replace(begins=SOURCES),
            "16 in source 1, and 20",
            id="by the note alone",
        ),
        pytest.param(
            story(0, OLD, begins=5), "at 5, and where that batch ended is not known", id="an older decision"
        ),
        pytest.param(
            story(0, OLD, left=ended(0), group=None)._replace(begins={}, ends={PLACE: 1}),
            "t-0 at 1, and 0 was",
            id="only its end is known",
        ),
    ],
)
def test_at_least_once_begins_nowhere_behind_what_is_written(skips: StartFacts, says: str) -> None:
    """It may repeat rows; those between would be written by nobody."""
    with pytest.raises(StartsElsewhere, match=says):
        check_plain_start(skips)
    accepted = {*skips.accepted, f"new-checkpoint:{skips.last_written}"}
    assert "continuing" in check_plain_start(skips._replace(accepted=accepted))[0]


@pytest.mark.parametrize(
    "legal",
    [
        pytest.param(story(0, begins=5), id="a name that never ran"),
        pytest.param(story(0, at=(4, None), begins=5), id="a consumer's group"),
        pytest.param(story(0, OLD, begins=4, left=ended(4)), id="where the decision ended"),
        pytest.param(story(0, OLD, begins=3, left=ended(4)), id="before: it repeats rows"),
        pytest.param(story(0, OLD, at=(9, LOOSE), begins=9, left=ended(4)), id="at_least_once has gone on"),
        pytest.param(
            story(0, OLD, at=(4, ALIEN), begins=9, left=ended(9))._replace(ends={PLACE: 9}),
            id="another sink shares the group",
        ),
        pytest.param(story(0, OLD, left=ended(20, 15))._replace(begins=TWO), id="each source where it ended"),
        pytest.param(story(0, at=(15, APART))._replace(begins=TWO), id="the same by the note alone"),
        pytest.param(story(0, OLD, begins=0), id="from the beginning, after an older decision"),
        pytest.param(story(0, OLD, begins=9, left=Planned(7, ('{"u":{"0":4}}',))), id="another topic"),
        pytest.param(story(3, completed=2, at=(4, LOOSE), begins=9), id="its checkpoint is not new"),
    ],
)
def test_at_least_once_begins_where_nothing_is_left_out(legal: StartFacts) -> None:
    assert check_plain_start(legal) == []


OTHER, MORE = ("u", 0), ("t", 1)


def line(offsets: str, **ids: str) -> Planned:
    """A batch of one source."""
    named: dict[str, Any] = {f"topic-id:{topic}:{number}": {} for topic, number in ids.items()}
    nested = {**json.loads(offsets), **named, "cluster-id:c": {}}
    began: dict[str, Any] = {
        f"began-at:{t}:{at}:{p}": {} for t, parts in json.loads(offsets).items() for p, at in parts.items()
    }
    return Planned(0, (json.dumps({**nested, **began}),))


@pytest.mark.parametrize(
    ("left", "noted", "now", "found"),
    [
        ('{"t":{"0":4}}', [], '{"t":{"0":4,"1":3}}', {MORE: 3}),
        ('{"t":{"0":4}}', [], '{"t":{"0":4,"1":0}}', {}),
        ('{"t":{"0":4}}', [], '{"t":{"0":4},"u":{"0":5}}', {OTHER: 5}),
        ('{"t":{"0":4}}', [MORE], '{"t":{"0":4,"1":3}}', {MORE: 3}),
        (None, [PLACE], '{"t":{"0":4,"1":3}}', {MORE: 3}),
        (None, [PLACE, MORE], '{"t":{"0":4,"1":3}}', {}),
        (None, [], '{"t":{"0":4,"1":3}}', {}),
        ('{"t":{"0":4}}', [], '{"u":{"0":5}}', {}),
    ],
    ids=[
        "a partition",
        "from its beginning",
        "a topic",
        "the decision counts",
        "by notes",
        "all noted",
        "a new name",
        "another query's topics",
    ],
)
def test_what_no_batch_has_read(left: str | None, noted: Any, now: str, found: Any) -> None:
    """A query that has begun reads what is new from its beginning."""
    assert unread(None if left is None else line(left), noted, line(now)) == found


def test_a_word_names_the_decision_that_it_is_for() -> None:
    odd = story(0, OLD, begins=9, left=line('{"t":{"0":4}}'), word="old:12")
    for check in (check_story, check_plain_start):
        for accepted in ("new-checkpoint", "new-checkpoint:old:11", "new-checkpoint:older:12"):
            with pytest.raises(StartsElsewhere, match=rf"start\.accepted={accepted},new-checkpoint:old:12,"):
                check(odd._replace(accepted={accepted}))
        assert check(odd._replace(accepted={"new-checkpoint:old:12"}))
    stateful = odd._replace(left_state=True, accepted={"without-state:old:11"})
    with pytest.raises(StartsElsewhere, match=r"without-state:old:11,without-state:old:12"):
        check_story(stateful)
    assert check_story(stateful._replace(accepted={"without-state:old:12", "new-checkpoint:old:12"}))


def test_a_topic_that_was_made_anew_was_not_read() -> None:
    left, now = (
        line('{"t":{"0":4},"u":{"0":1}}', t="old", u="u"),
        line('{"t":{"0":4},"u":{"0":1}}', t="new", u="u"),
    )
    assert unread(left, [], now) == {PLACE: 4} and set(remade(left, now)) == {"t"}


@pytest.mark.parametrize("check", [check_story, check_plain_start])
@pytest.mark.parametrize("begins", [0, 3])
def test_a_new_checkpoint_reads_what_is_new_from_its_beginning(check: Any, begins: int) -> None:
    """Also if everything else goes on where the last batch ended."""
    told = story(0, OLD, left=line('{"t":{"0":0}}'), begins=0, unread={MORE: 0} if begins else {})
    told = told._replace(ends={PLACE: 0, MORE: 3}, begins={PLACE: {"0": 0}, MORE: {"0": begins}})
    if not begins:
        assert check(told) == []
        return
    at_group = told._replace(committed={PLACE: NotedOffset(0, note(7, "old"))})
    for stopped in (told, at_group):
        with pytest.raises(StartsElsewhere, match=r"t-1 at 3, and its log begins at 0"):
            check(stopped)
    assert check(told._replace(accepted={"new-checkpoint:0"}))


def test_a_new_checkpoint_goes_on_where_the_log_was_cut() -> None:
    """What others have written there since has the offsets of what the last batch has read."""
    left = line('{"t":{"0":4}}')
    for begins, at in ((2, None), (2, (4, note(7, "old")))):
        assert check_story(story(0, OLD, left=left, begins=begins, cut={PLACE: 2}, at=at)) == []
    for at in (None, (4, note(7, "old"))):
        with pytest.raises(StartsElsewhere, match=r"the log was cut since \(t-0 at 2\)"):
            check_story(story(0, OLD, left=left, begins=4, cut={PLACE: 2}, at=at))
    alone = story(0, begins=4, cut={PLACE: 2}, at=(4, note(7, "old")))
    with pytest.raises(StartsElsewhere, match="t-0 at 4, behind what is new in its log"):
        check_story(alone)
    with pytest.raises(StartsElsewhere, match="t-0 at 4, and 2 was reached"):
        check_plain_start(alone._replace(begins={PLACE: {"0": 4}}))
    assert check_plain_start(alone._replace(begins={PLACE: {"0": 2}})) == []


@pytest.mark.parametrize("first", [0, None])
def test_a_new_checkpoint_reads_a_topic_that_was_made_anew_from_its_beginning(first: int | None) -> None:
    """The last batch's end is another topic's, even if the numbers are the same."""
    told = story(0, OLD, left=line('{"t":{"0":4}}'), begins=4, remade=["t"], unread={PLACE: first})
    with pytest.raises(
        StartsElsewhere, match=r"t-0 at 4, and (its log begins at 0|where its log begins is not)"
    ):
        check_story(told)
    (warned,) = check_story(story(0, OLD, left=line('{"t":{"0":4}}'), begins=0, remade=["t"]))
    assert "t was deleted and created again since" in warned


@pytest.mark.parametrize(
    ("left", "begins", "group", "line"),
    [
        pytest.param(
            '{"t":{"0":4},"u":{"0":7}}', {PLACE: {"0": 9}}, {}, {PLACE: 4}, id="a topic is left out"
        ),
        pytest.param(
            '{"t":{"0":4}}', {PLACE: {"0": 9}, OTHER: {"0": 5}}, {}, {PLACE: 4, OTHER: -2}, id="one is added"
        ),
        pytest.param(
            '{"t":{"0":4}}',
            {PLACE: {"0": 9}, OTHER: {"0": 5}},
            {OTHER: NotedOffset(3, None)},
            {PLACE: 4, OTHER: 3},
            id="one is added, and the group has it",
        ),
        pytest.param(
            '{"t":{"0":4}}', {PLACE: {"0": 9}, MORE: {"0": 5}}, {}, {PLACE: 4, MORE: -2}, id="a new partition"
        ),
        pytest.param('{"u":{"0":4}}', {PLACE: {"0": 9}}, {}, None, id="nothing of it is read"),
        pytest.param(
            '{"t":{"0":4}}',
            {PLACE: {"0": 9}, OTHER: {}},
            {},
            {PLACE: 4, OTHER: -2},
            id="its beginning is not known",
        ),
    ],
)
def test_the_line_that_goes_on_names_what_the_query_reads(
    left: str, begins: Any, group: Any, line: Any
) -> None:
    """startingOffsets and subscribe must name the same topics."""
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": ",".join({topic for topic, _ in begins})}
    ids: dict[str, Any] = {f"topic-id:{topic}:id-of-{topic}": {} for topic in json.loads(left)}
    nested = json.dumps({**json.loads(left), **ids, "cluster-id:c": {}})
    told = story(0, OLD, left=Planned(7, (nested,)), at=(8, note(7, "old")))
    begins_at = {tp: by for tp, by in begins.items() if by}
    committed = {**told.committed, **group}
    with pytest.raises(StartsElsewhere) as stopped:
        check_story(told._replace(ends=dict.fromkeys(begins, 9), begins=begins_at, committed=committed))
    found = re.search(r"startingOffsets=(\{.*\}), to go on where", str(stopped.value))
    if line is None:
        assert found is None and "to go on where" not in str(stopped.value)
        return
    assert found is not None
    said = position_from_json(json.loads(found.group(1)))
    assert said.offsets == line and said.cluster == "c" and said.ids == {"t": "id-of-t"}
    assert source_options({**given, "startingOffsets": found.group(1)}, stream=True).starting == line


def test_each_source_has_a_line_of_its_own_topics() -> None:
    left = Planned(7, ('{"t":{"0":4}}', '{"u":{"0":7}}'))
    told = story(0, OLD, left=left, at=(8, note(7, "old")))._replace(ends={PLACE: 9, OTHER: 9})
    says = r'Offsets=\{"t":\{"0":4\}\} for source 0, startingOffsets=\{"u":\{"0":7\}\} for source 1, to go on'
    with pytest.raises(StartsElsewhere, match=says):
        check_story(told._replace(begins={PLACE: {"0": 9}, OTHER: {"1": 5}}))


@pytest.mark.parametrize("accepted", [{"decisions-gone:7"}, {"new-checkpoint:0"}, ()])
def test_what_was_accepted_once_does_not_hide_the_next(accepted: Any) -> None:
    with pytest.raises(DecisionGone):
        check_story(story(9, of("q", 4), completed=8, since=0, accepted=accepted))


def test_a_batch_of_an_earlier_run_needs_a_sink_that_knows_its_checkpoint() -> None:
    """The checkpoint does not say whose it was; this sink, by its last decision of the query."""
    check_unnoted("s", of("q", 0), None, None, ())
    check_unnoted("s", of("q", 5), 4, of("q", 4), ())
    for decided in (None, of("q", 3)):
        with pytest.raises(
            SinkChanged, match=r"batch 5 of query q was planned by an earlier run.*unknown:5$"
        ):
            check_unnoted("s", of("q", 5), 4, decided, {"sink-unknown:4"})
    check_unnoted("s", of("q", 5), 4, None, {"sink-unknown:5"})


def test_a_changed_name_is_noticed_where_a_batch_was_decided_under_the_old_one() -> None:
    check_given("old", "new", None, of("q", 5), ())
    says = (
        "batch 5 of query q was decided by the sink old.*once with transactional.id=old.*sink-changed:old:5"
    )
    with pytest.raises(SinkChanged, match=says):
        check_given("old", "new", of("q", 5), of("q", 5), {"sink-changed:old:4"})
    check_given("old", "new", of("q", 5), of("q", 5), {"sink-changed:old:5"})


def test_a_sink_stays_on_its_cluster() -> None:
    assert not check_sink_cluster("one", "one", "s", ()) and not check_sink_cluster(None, "one", "s", ())
    with pytest.raises(WrongCluster, match=r"sink s: .* the cluster one.* the cluster two.*cluster:two"):
        check_sink_cluster("one", "two", "s", {"cluster:three"})
    assert check_sink_cluster("one", "two", "s", {"cluster:two"})


def test_notes() -> None:
    assert read_note(note(3).text()) == note(3)
    for text in (
        "",
        "{}",
        "[]",
        "7",
        "null",
        '{"eoslog":1}',
        "somebody's own",
        '{"eoslog":1,"sink":"s","query":1}',
        '{"eoslog":0,"sink":"s","query":"q","batch":3}',
    ):
        assert read_note(text) is None
    assert read_note(APART.text()) == APART and read_note(LOOSE.text()) == LOOSE
    assert note(1, sink="x" * 4000).text() == "", "the offset itself must fit"


def test_a_group_of_several_sinks_is_no_one_place() -> None:
    other = ("t", 1)
    assert check_notes("g", {PLACE: note(3), other: note(2)}) == []
    assert check_notes("g", {PLACE: None, other: None}) == [], (
        "a consumer's group, or one of an older version"
    )
    (said,) = check_notes("g", {PLACE: note(3), other: note(3, sink="s2")})
    assert "committed by several sinks, s, s2" in said and "kafka.group.id of its own" in said
    (said,) = check_notes("g", {PLACE: note(3), other: None})
    assert "those of the sink s, but not in t-1" in said


def test_a_cluster_is_known_by_its_id() -> None:
    assert not check_cluster("one", "one")
    assert not check_cluster(None, "one"), "offsets that Spark's own source stored"
    assert not check_cluster("one", None), "a broker that tells none"
    assert check_cluster("one", "two", "two"), "moved, as the user says"
    for moved_to in (None, "three"):
        with pytest.raises(
            WrongCluster, match=r"of the cluster one, .* to the cluster two.*cluster.moved.to=two"
        ):
            check_cluster("one", "two", moved_to)


def test_a_group_is_on_the_cluster_of_its_offsets() -> None:
    check_group_cluster(["one"], "one", "g")
    check_group_cluster(["one"], None, "g")
    with pytest.raises(
        WrongCluster, match=r"kafka.group.id=g.*offsets of the cluster two to .* the cluster one"
    ):
        check_group_cluster(["one", "two"], "one", "g")


def test_the_cluster_is_beside_the_offsets() -> None:
    told = to_json({PLACE: 5}, {"t": "id"}, "a:b")
    assert told == {"t": {"0": 5}, "topic-id:t:id": {}, "cluster-id:a:b": {}}
    assert cluster_from_json(told) == "a:b" and cluster_from_json({"t": {"0": 1}}) is None
    assert to_json(*position_from_json(told)) == told


def test_what_the_log_has_lost_before_it_was_read() -> None:
    start, latest = {("t", 0): 5, ("t", 1): 5}, {("t", 0): 50, ("t", 1): 50}
    found = losses(start, latest, earliest={("t", 0): 7, ("t", 1): 5})
    assert str(found).startswith("t-0 begins at 7 and ends at 50, and the query is at 5") and found
    assert found.early == {("t", 0): (5, 7, 50)}
    assert not losses(start, latest, earliest=start)
