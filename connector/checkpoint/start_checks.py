"""Compares a query's checkpoint, the sink's decision and the group when the query starts.

Pure rules: they take what was read, and return warnings or raise an error that stops the query before a row
is written. plan.py (`losses`) compares offsets with the log, because that is done for every micro-batch.
`docs/errors/` says what to do about each error.
"""

from collections.abc import Collection, Mapping

from eoslog.connector.checkpoint.accepted_differences import to_accept
from eoslog.connector.checkpoint.completed_batches import check_completed
from eoslog.connector.checkpoint.new_checkpoint import check_new_checkpoint
from eoslog.connector.checkpoint.start_facts import StartFacts, listed
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CheckpointOlder,
    DecisionGone,
    SinkChanged,
    TakenOver,
)
from eoslog.connector.commit.task_reports import Batch
from eoslog.connector.commit.transactional_ids import Sink
from eoslog.connector.offsets.group_notes import NotedOffset
from eoslog.connector.offsets.offsets import Offsets
from eoslog.errors.pages import see
from eoslog.protocol.topic_partitions import TopicPartition


def check_given(old: str, new: str, decided: Batch | None, batch: Batch, accepted: Collection[str]) -> None:
    """Check a change of transactional.id from `old` to `new`: `old` must not have decided a batch that Spark
    has not noted as done.

    `decided`: the last batch of the query that `old` has decided. Raises SinkChanged unless that is accepted.
    """
    if decided is None or decided.batch_id < batch.batch_id:
        return
    if (word := f"sink-changed:{old}:{decided.batch_id}") in accepted:
        return
    raise SinkChanged(
        f"{decided} was decided by the sink {old}, Spark has not noted it as done and would write {batch} "
        f"again, and transactional.id is {new} now. Start the query once with transactional.id={old}: it "
        "finishes the batch; then change the name. If this is a copy of that query's checkpoint, and what "
        f"it has written is to be written here as well, set {to_accept(word, accepted)}"
    )


def check_unnoted(
    sink: str, batch: Batch, completed: int | None, decided: Batch | None, accepted: Collection[str]
) -> None:
    """Check a batch that an earlier run has planned, in a checkpoint that does not say which sink got its
    batches: `sink` must know them.

    A checkpoint of this sink has said so since its first batch: so it was copied without eoslog's notes, or
    another sink got the batches. `completed`: the newest batch in Spark's commit log; `decided`: the query's
    last batch that the sink has decided. Raises SinkChanged unless that is accepted.
    """
    if completed is None or (decided is not None and decided.batch_id >= completed):
        return
    if (word := f"sink-unknown:{batch.batch_id}") in accepted:
        return
    raise SinkChanged(
        f"sink {sink}: {batch} was planned by an earlier run, the checkpoint does not say which sink got its "
        "batches (it has no eoslog/sink), and this sink does not know them. Another sink may have decided "
        "it, and its rows would be written again. Nothing was written. If the checkpoint is a copy, copy it "
        "again with its folder eoslog; or start the query once as it was, with its former transactional.id "
        "or its former sink, which finishes the batch. If these rows may be there twice, set "
        f"{to_accept(word, accepted)}"
    )


def check_taken_over(
    sink: str,
    batch: Batch,
    group: str | None,
    committed: Mapping[TopicPartition, NotedOffset],
    stands: Offsets,
    accepted: Collection[str],
    *,
    is_left: bool = False,
    fresh: Collection[TopicPartition] = (),
) -> None:
    """Check that no other query has taken over this one's sink: this one must not continue then.

    `stands`: this query's offsets. `committed`: if the sink has committed other offsets for another query,
    that query has taken over. `is_left`: this query has another sink now, so it would not stop the other
    query; then the other query has taken over even if it has only begun, at this query's offsets. `fresh`:
    who has decided what it read of them came before this query, and check_grown tells it. Raises TakenOver
    unless that is accepted.
    """
    moved = {
        tp: (found.offset, found.note)
        for tp, found in committed.items()
        if found.note and found.note.sink == sink and found.note.query != batch.query_id
        if not (tp in fresh and found.note.decided)
    }
    moved = {tp: found for tp, found in moved.items() if is_left or found[0] != stands.get(tp)}
    if not moved:
        return
    said = listed((tp, f"{at}, this query stands at {stands.get(tp)}") for tp, (at, _) in moved.items())
    by = next(note.query for _, note in moved.values())
    why = f"group {group} is where that query has written to ({said})"
    _refuse_taken_over(sink, batch, group, by, why, accepted)


def check_followed(
    sink: str, batch: Batch, group: str | None, by: str | None, accepted: Collection[str]
) -> None:
    """Check that no other query has decided in this one's sink since this one did: it has taken over, also
    if it stands where this one stands, or if others have moved the group. `by`: its id, if there is one.
    Raises TakenOver unless that is accepted."""
    if by is not None and group is not None:  # without a group nobody has handed it over
        why = "that query has made the sink's last decision"
        _refuse_taken_over(sink, batch, group, by, why, accepted)


def _refuse_taken_over(
    sink: str, batch: Batch, group: str | None, by: str, why: str, accepted: Collection[str]
) -> None:
    """Raise TakenOver unless that is accepted. `why`: what shows that the query `by` has taken over. The word
    has the batch that is to be written all the same: it is no word for a later start."""
    if (word := f"taken-over:{by}:{batch.batch_id}") in accepted:
        return
    names = f"transactional.id={sink}"
    if group != Sink(sink).offsets_group:
        names = f"kafka.group.id={group} and {names}"
    raise TakenOver(
        f"sink {sink}: query {by} has taken the place of query {batch.query_id}: {why}. {batch} would write "
        "rows again. Nothing was written. Stop this query for good; or, to go back from the other one to "
        f"this, start this one with a new checkpoint, {names} in source and sink, and "
        "startingOffsets=committed. If these are two "
        "queries, and this one is to write those rows as well, give each a transactional.id and a "
        f"kafka.group.id of its own, and set {to_accept(word, accepted)}"
    )


def check_story(story: StartFacts) -> list[str]:
    """Compare everything. Returns warnings about differences that may be intended.

    Raises DecisionGone, CheckpointOlder, CheckpointMismatch, StartsElsewhere, TakenOver.
    """
    _check_notes(story)
    _check_decided(story)
    if story.is_new:
        return check_new_checkpoint(story)
    stands = story.ended[1] if story.ended else {}
    told = story.sink, story.batch, story.group, story.committed, stands, story.accepted
    check_taken_over(*told, fresh=story.fresh)
    check_followed(story.sink, story.batch, story.group, story.followed_by, story.accepted)
    ours = None if story.ours is None or story.decided is None else story.decided
    check_completed(story.sink, story.done, ours, story.accepted, story.last_written)
    return [*_missing_decisions(story), *_moved_group(story)]


def _check_notes(story: StartFacts) -> None:
    """Compare with the notes at the group's offsets: a batch that is noted there is written, and decided but
    for one of at_least_once."""
    notes = [found.note for found in story.committed.values() if found.note]
    claims = [note for note in notes if note.query == story.batch.query_id]
    newest = max(claims, key=lambda note: note.batch, default=None)
    if newest is None or newest.batch < story.batch.batch_id or newest.batch <= story.last:
        return
    here = {tp: found.offset for tp, found in story.committed.items() if found.note == newest}
    if not newest.decided and all(story.ends.get(tp) == at for tp, at in here.items()):
        return  # killed before Spark's note: this batch of at_least_once is written twice
    said = (
        f"group {story.group} holds the source offsets that the sink {newest.sink} committed with batch "
        f"{newest.batch} of query {newest.query}"
    )
    if not newest.decided:
        raise CheckpointOlder(
            f"sink {story.sink}: {said}, under at_least_once, and the checkpoint's batch "
            f"{story.batch.batch_id} ends elsewhere: it was set back, and rows would be written again. "
            "Nothing was written. Bring the right checkpoint back. If rows may be there twice, run the query "
            "with at_least_once until it has read what it had read"
        )
    if newest.batch > story.batch.batch_id:
        raise CheckpointOlder(
            f"sink {story.sink}: {said}, and the checkpoint is at batch {story.batch.batch_id}. "
            f"{CheckpointOlder.advice}"
        )
    advice = DecisionGone.advice
    if newest.sink != story.sink:
        copied = "Is that sink another query's, on a copy of this checkpoint?"
        advice = f"{copied} Give this one a kafka.group.id of its own. {advice}"
    raise DecisionGone(
        f"sink {story.sink}: {said}, so its rows are written; but the sink {story.sink} knows no such "
        f"decision, and would write them again. {advice}"
    )


def _check_decided(story: StartFacts) -> None:
    """Check that the last decided batch has the same source offsets in the checkpoint."""
    decided = story.decided
    if decided is None or story.ours is None or story.ended is None:
        return
    digest, _ = story.ended
    if not decided._replace(digest=digest).repeats(decided):
        raise CheckpointMismatch(
            f"sink {story.sink}: the sink has decided {decided} with other source offsets than the "
            f"checkpoint has for it, and the checkpoint is now at batch {story.batch.batch_id}. "
            f"{CheckpointMismatch.advice}"
        )


def _missing_decisions(story: StartFacts) -> list[str]:
    """Warn of batches that are completed in the checkpoint but that the sink has not decided, if the
    checkpoint does not say which sink got them."""
    if story.since is not None or story.completed is None or story.last >= story.completed:
        return []
    last = "no batch of this query" if story.ours is None else f"batch {story.ours} last"
    other = f" (its last decision is {story.decided})" if story.decided and story.ours is None else ""
    return [
        f"sink {story.sink}: the checkpoint has completed batch {story.completed}, but the sink has decided "
        f"{last}{other}. That is right where another connector, transactional.id or processing.guarantee "
        "wrote the batches between. If not, the cluster has lost decisions, and rows with them, or the sink "
        f"writes to another cluster; and if the last run was killed right after it decided batch "
        f"{story.batch.batch_id}, its rows are written twice. "
        f"{see('the-sink-has-decided-no-batch-of-this-query')}"
    ]


def _moved_group(story: StartFacts) -> list[str]:
    """Warn if the group's offsets are not those at which the last decided batch ended."""
    if story.ended is None:
        return []
    _, ended = story.ended
    moved = {tp: (at, story.committed[tp]) for tp, at in ended.items() if tp in story.committed}
    moved = {tp: (at, found) for tp, (at, found) in moved.items() if found.offset != at}
    if not moved:
        return []
    who = {found.note.sink for _, found in moved.values() if found.note} - {story.sink}
    by = f"the sink {', '.join(sorted(who))}" if who else "somebody else (by hand, or a consumer)"
    said = listed((tp, f"{found.offset}, not at {at}") for tp, (at, found) in moved.items())
    return [
        f"sink {story.sink}: the offsets of group {story.group} were changed by {by}: {said}, where batch "
        f"{story.ours} ended. The checkpoint takes precedence: the query continues where it was, and its "
        "next batch commits its own offsets again. Give each query a kafka.group.id of its own; to move a "
        "query, start it with a new checkpoint and startingOffsets. "
        f"{see('the-offsets-of-the-group-were-changed')}"
    ]
