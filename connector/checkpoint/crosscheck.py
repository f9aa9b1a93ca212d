"""What is compared when a query starts: its checkpoint, the sink's decision, the group.

Pure rules: they take what was read, and return warnings or raise an error that stops the query before a row
is written. What the log still holds is compared in plan.py (`losses`), since that is done for every
micro-batch. `docs/troubleshooting.md` says what to do about each error.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, NoReturn

from eoslog.connector.checkpoint.accepted import to_accept
from eoslog.connector.commit.faults import (
    CheckpointMismatch,
    CheckpointOlder,
    DecisionGone,
    SinkChanged,
    StartsElsewhere,
    TakenOver,
)
from eoslog.connector.commit.messages import Batch
from eoslog.connector.offsets.group_notes import NotedOffset
from eoslog.connector.offsets.offsets import Offsets, TakenFrom, TopicPartition


def check_given(old: str, new: str, decided: Batch | None, batch: Batch, accepted: Collection[str]) -> None:
    """transactional.id was changed from `old` to `new`: nothing may be decided that Spark does not know of.

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


def check_taken_over(
    sink: str,
    batch: Batch,
    group: str | None,
    committed: Mapping[TopicPartition, NotedOffset],
    stands: Offsets,
    accepted: Collection[str],
    *,
    is_left: bool = False,
) -> None:
    """A query that has handed its sink over to another one must not go on from its old checkpoint.

    `stands`: where the query stands; `committed` elsewhere by this sink, for another query, tells that it was
    taken over. `is_left`: the query has another sink now, and would not stop the other one; then that has
    taken over as soon as it has begun, where this one stands. Raises TakenOver unless that is accepted.
    """
    moved = {
        tp: (found.offset, found.note)
        for tp, found in committed.items()
        if found.note and found.note.sink == sink and found.note.query != batch.query_id
    }
    moved = {tp: found for tp, found in moved.items() if is_left or found[0] != stands.get(tp)}
    if not moved:
        return
    said = _listed((tp, f"{at}, this query stands at {stands.get(tp)}") for tp, (at, _) in moved.items())
    by = next(note.query for _, note in moved.values())
    if (word := f"taken-over:{by}") in accepted:
        return
    raise TakenOver(
        f"sink {sink}: query {by} has taken the place of query {batch.query_id}: group {group} stands where "
        f"that one has written to ({said}). {batch} would write rows again. Nothing was written. Stop this "
        "query for good; or, to go back from the other one to this, start it with a new checkpoint, "
        f"kafka.group.id={group} and transactional.id={sink} in source and sink, and "
        "startingOffsets=committed. If these are two queries, and this one is to write those rows as "
        "well, give each a transactional.id and a kafka.group.id of its own, and "
        f"set {to_accept(word, accepted)}"
    )


class Story(NamedTuple):
    """What checkpoint, decision and group tell when a run of the sink begins.

    `batch`: the one that is to be written, with its source offsets' `ends`. `completed`: the newest in
    Spark's commit log. `decided`: the sink's last decision, whosever it is. `ended`: the digest and end
    offsets that the checkpoint has for the decided batch, where it is this query's and still there.
    `committed` is of the partitions of `ends` and `ended` (empty without `group`). `taken`: whose offsets the
    source has begun with, of whichever group. `since`: the first batch
    that was given to this sink, None where the checkpoint does not tell; `rested`: whether its last batch is
    so old that the cluster may have forgotten the decision; `accepted`: words of start.accepted.
    """

    sink: str
    batch: Batch
    ends: Offsets
    completed: int | None
    decided: Batch | None
    ended: tuple[str, Offsets] | None
    group: str | None
    committed: Mapping[TopicPartition, NotedOffset]
    taken: Collection[TakenFrom] = ()
    since: int | None = None
    rested: bool = False
    accepted: Collection[str] = ()

    @property
    def ours(self) -> int | None:
        """The last batch of this query that the sink has decided."""
        known = self.decided is not None and self.decided.query_id == self.batch.query_id
        return self.decided.batch_id if known and self.decided else None

    @property
    def last(self) -> int:
        """The same as a number; -1: none."""
        return -1 if self.ours is None else self.ours

    @property
    def is_new(self) -> bool:
        """Whether the checkpoint is a new one: nothing is completed in it, and nothing of it decided."""
        return self.completed is None and self.batch.batch_id == 0 and self.ours is None


def check_story(story: Story) -> list[str]:
    """Warnings about what does not fit but may be meant.

    Raises DecisionGone, CheckpointOlder, CheckpointMismatch, StartsElsewhere, TakenOver.
    """
    _check_notes(story)
    _check_decided(story)
    if story.is_new:
        return _new_checkpoint(story)
    stands = story.ended[1] if story.ended else {}
    check_taken_over(story.sink, story.batch, story.group, story.committed, stands, story.accepted)
    ours = None if story.ours is None or story.decided is None else story.decided
    check_completed(story.sink, Completed(story.completed, story.since, story.rested), ours, story.accepted)
    return [*_missing_decisions(story), *_moved_group(story)]


def _check_notes(story: Story) -> None:
    """The group's offsets were committed with a decision: where they tell of this batch, it is decided."""
    notes = [found.note for found in story.committed.values() if found.note and found.note.decided]
    claims = [note for note in notes if note.query == story.batch.query_id]
    newest = max(claims, key=lambda note: note.batch, default=None)
    if newest is None or newest.batch < story.batch.batch_id or newest.batch <= story.last:
        return
    said = (
        f"group {story.group} holds the source offsets that the sink {newest.sink} committed with batch "
        f"{newest.batch} of query {newest.query}"
    )
    if newest.batch > story.batch.batch_id:
        raise CheckpointOlder(
            f"sink {story.sink}: {said}, and the checkpoint is at batch {story.batch.batch_id}. "
            f"{CheckpointOlder.advice}"
        )
    raise DecisionGone(
        f"sink {story.sink}: {said}, so its rows are written; but the sink {story.sink} knows no such "
        f"decision, and would write them again. {DecisionGone.advice}"
    )


def _check_decided(story: Story) -> None:
    """The batch that was decided last is the one that the checkpoint has under its number."""
    decided = story.decided
    if decided is None or story.ours is None or story.ended is None:
        return
    digest, _ = story.ended
    if decided.digest and digest != decided.digest:
        raise CheckpointMismatch(
            f"sink {story.sink}: the sink has decided {decided} with other source offsets than the "
            f"checkpoint has for it, and the checkpoint is at batch {story.batch.batch_id} by now. "
            f"{CheckpointMismatch.advice}"
        )


def _new_checkpoint(story: Story) -> list[str]:
    """A query that begins anew where another one has written. Where the group stands is exact if this sink
    has committed it: nobody else owns the sink by now, so nobody moves it any more (a hand-over)."""
    _check_taken(story)
    stands = {tp: found.offset for tp, found in story.committed.items()}
    if stands and all(story.ends.get(tp) == at for tp, at in stands.items()):
        return _from_the_group(story)
    if any(found.note for found in story.committed.values()):
        said = _listed(
            (tp, f"{at}, this query's first batch ends at {story.ends.get(tp)}") for tp, at in stands.items()
        )
        return _begins_elsewhere(
            story,
            f"group {story.group} holds source offsets of an earlier query ({said}): rows may be written "
            "again, or left out",
        )
    if story.decided is not None:
        return _begins_elsewhere(
            story, f"the sink has written {story.decided}: what that query has read may be written again"
        )
    return []


_WORD_NEW = "new-checkpoint"


def _begins_elsewhere(story: Story, what: str) -> list[str]:
    if _WORD_NEW in story.accepted:
        return [
            f"sink {story.sink}: the checkpoint is new, and {what}. start.accepted={_WORD_NEW}: going on. "
            "See troubleshooting.md#the-checkpoint-is-new"
        ]
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and {what}. Nothing was written. "
        f"{StartsElsewhere.advice} If this query is to begin elsewhere, and rows may be there twice, set "
        f"{to_accept(_WORD_NEW, story.accepted)}, or give it a transactional.id and kafka.group.id of its own"
    )


def check_plain_start(story: Story) -> None:
    """The same for a sink of at_least_once, which may repeat rows and leaves none out: what other sinks
    have committed is another query's place, where the group stands, or where it stood when the source read
    it and has moved on from. Raises StartsElsewhere."""
    if not story.is_new:
        return
    _check_taken(story)
    away = {tp: at - story.ends.get(tp, 0) for tp, (at, _) in story.committed.items()}
    if not any(away.values()) or max(away.values()) > 0:
        _from_the_group(story)


def _check_taken(story: Story) -> None:
    """The source has begun with this sink's offsets, or those that no sink has committed. The sink may have
    another group, or none: it is the source that asks for `committed`."""
    left = _of_others(story, {one.sink for one in story.taken})
    groups = ", ".join(sorted({one.group for one in story.taken if one.sink in left}))
    if left:
        _refuse_offsets(
            story,
            left,
            f"this query begins at offsets of group {groups} that the sink {', '.join(left)} has committed",
        )


def _from_the_group(story: Story) -> list[str]:
    """It begins where the group stands: with this sink's offsets, or those that no sink has committed."""
    left = _of_others(story, {found.note.sink for found in story.committed.values() if found.note})
    if left:
        _refuse_offsets(story, left, _moved_by(story, left))
    return []


def _of_others(story: Story, sinks: Collection[str]) -> list[str]:
    return sorted(s for s in {*sinks} - {story.sink} if f"offsets-of:{s}" not in story.accepted)


def _refuse_offsets(story: Story, left: list[str], what: str) -> NoReturn:
    raise StartsElsewhere(
        f"sink {story.sink}: the checkpoint is new, and {what}. What another query has "
        "read would be left out here. Nothing was written. If this query takes that one's place, give it "
        f"transactional.id={left[0]}, in source and sink: it then stops the old one first. Else begin with "
        "another new checkpoint at startingOffsets of its own, and with a kafka.group.id of its own. If the "
        f"other one has ended and the name is to change, set "
        f"{to_accept(f'offsets-of:{left[0]}', story.accepted)}"
    )


def _moved_by(story: Story, sinks: Collection[str]) -> str:
    """Who has committed the group's offsets, and where they are if not where the query's first batch ends."""
    group, named = story.group, ", ".join(sinks)
    away = {tp: f.offset for tp, f in story.committed.items() if f.offset != story.ends.get(tp)}
    if not away:
        return f"this query begins at offsets of group {group} that the sink {named} has committed"
    said = _listed((tp, f"{at}, not at {story.ends.get(tp)}") for tp, at in away.items())
    return f"the sink {named} has committed to its group {group} since it was planned ({said})"


class Completed(NamedTuple):
    """What the checkpoint tells of the batches that were given to a sink: the newest that is completed, the
    first one `since` which they are this sink's (None: it does not tell), and whether the newest `rested` for
    so long that the cluster may have forgotten its decision."""

    newest: int | None
    since: int | None
    rested: bool


def check_completed(
    sink: str, completed: Completed, decided: Batch | None, accepted: Collection[str]
) -> None:
    """Batches that were given to this sink and are complete were decided by it. `decided`: its last of the
    query.

    Raises DecisionGone unless that is accepted.
    """
    newest, since, rested = completed
    if newest is None or since is None or since > newest:
        return
    known, expired = decided is not None and decided.batch_id >= newest, decided is None and rested
    if known or expired:
        return
    if (word := f"decisions-gone:{newest}") in accepted:
        return
    found, begins = "none of this query", "what it was at first"
    if decided is not None:
        found = f"batch {decided.batch_id} as its last one"
        begins = f"the last line of offsets/{decided.batch_id} in this checkpoint"
    raise DecisionGone(
        f"sink {sink}: the checkpoint has completed batch {newest}, and the sink knows "
        f"{found}: the cluster has lost decisions, and the rows of these batches with them. Were the brokers "
        "restored from an older copy? Nothing was written. Restore the checkpoint that belongs to that "
        "copy; or start with a new one where the copy stands: startingOffsets=committed (with kafka.group.id "
        "and transactional.id in source and sink), if kafka.group.id was given to these batches, else "
        f"startingOffsets={begins} and {to_accept(_WORD_NEW, accepted)}. If nothing is missing, as another "
        "connector wrote these batches or the group was idle for longer than offsets.retention.minutes, set "
        f"{to_accept(word, accepted)}"
    )


def _missing_decisions(story: Story) -> list[str]:
    """Batches that the checkpoint calls complete, and no decision tells of; it does not tell whose they
    were."""
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
        "See troubleshooting.md#the-sink-has-decided-no-batch-of-this-query"
    ]


def _moved_group(story: Story) -> list[str]:
    """The group stands where the last decided batch ended, unless somebody else commits to it."""
    if story.ended is None:
        return []
    _, ended = story.ended
    moved = {tp: (at, story.committed[tp]) for tp, at in ended.items() if tp in story.committed}
    moved = {tp: (at, found) for tp, (at, found) in moved.items() if found.offset != at}
    if not moved:
        return []
    who = {found.note.sink for _, found in moved.values() if found.note} - {story.sink}
    by = f"the sink {', '.join(sorted(who))}" if who else "somebody else (by hand, or a consumer)"
    said = _listed((tp, f"{found.offset}, not at {at}") for tp, (at, found) in moved.items())
    return [
        f"sink {story.sink}: the offsets of group {story.group} were changed by {by}: {said}, where batch "
        f"{story.ours} ended. The checkpoint rules: the query goes on where it stood, and its next batch "
        "commits its own offsets again. Give each query a kafka.group.id of its own; to move a query, start "
        "it with a new checkpoint and startingOffsets. "
        "See troubleshooting.md#the-offsets-of-the-group-were-changed"
    ]


def _listed(places: Iterable[tuple[TopicPartition, str]]) -> str:
    return "; ".join(f"{topic}-{partition} at {text}" for (topic, partition), text in sorted(places))
