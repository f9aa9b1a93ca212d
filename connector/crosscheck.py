"""What is compared when a query starts: its checkpoint, the sink's decision, the group, the cluster.

Pure rules: what was read goes in; out come warnings, or one of the errors that stop the query before a row
is written. What the log itself still holds is compared in plan.py (`losses`), since that is asked anew for
every micro-batch. `docs/troubleshooting.md` has the way out of each.
"""

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eoslog.connector.commit.faults import CheckpointMismatch, CheckpointOlder, DecisionGone
from eoslog.connector.commit.messages import Batch
from eoslog.connector.errors import WrongCluster
from eoslog.connector.offsets import Offsets, TopicPartition

_NOTE_LIMIT = 2048
"""Characters of a note: offset.metadata.max.bytes is 4096 by default, and a character may be two units."""


def check_cluster(then: str | None, now: str | None, moved_to: str | None = None) -> bool:
    """Whether the query has moved from cluster `then` to cluster `now`; ids that are not known are believed.

    Raises WrongCluster unless option cluster.moved.to (`moved_to`) names the new one.
    """
    if then is None or now is None or then == now:
        return False
    if moved_to == now:
        return True
    raise WrongCluster(
        f"the checkpoint's offsets are of the cluster {then}, and kafka.bootstrap.servers leads to the "
        f"cluster {now}: offsets of one mean nothing in the other. Correct kafka.bootstrap.servers; or begin "
        "with a new checkpoint and startingOffsets; or, if the topics were moved with their offsets as they "
        f"are, set cluster.moved.to={now}"
    )


def check_group_cluster(sources: Iterable[str], sink: str | None, group: str) -> None:
    """Source offsets go to a group of the sink's cluster: they must be of that one. Raises WrongCluster."""
    others = sorted(set(sources) - {sink}) if sink is not None else []
    if others:
        raise WrongCluster(
            f"kafka.group.id={group}: the sink would commit source offsets of the cluster "
            f"{', '.join(others)} to a group of the cluster {sink}, where they mean nothing. Leave "
            "kafka.group.id out of the sink's options where source and sink are on two clusters; or correct "
            "kafka.bootstrap.servers"
        )


class Note(NamedTuple):
    """What a sink writes beside each source offset that it commits to kafka.group.id: whose it is."""

    sink: str
    query: str
    batch: int

    def text(self) -> str:
        """As metadata of a committed offset; "" where it would be too long."""
        said = json.dumps({"eoslog": 1, **self._asdict()}, separators=(",", ":"))
        return said if len(said) <= _NOTE_LIMIT else ""


def read_note(metadata: str) -> Note | None:
    """The note in an offset's metadata; None where somebody else has committed it."""
    try:
        found = json.loads(metadata)
        return Note(str(found["sink"]), str(found["query"]), int(found["batch"])) if found["eoslog"] else None
    except (ValueError, KeyError, TypeError):  # other clients keep texts of their own there
        return None


def check_notes(group: str, notes: Mapping[TopicPartition, Note | None]) -> list[str]:
    """Warnings before a query begins where a group stands: offsets of several sinks are seldom one place."""
    sinks = sorted({note.sink for note in notes.values() if note})
    strange = sorted(tp for tp, note in notes.items() if note is None)
    if len(sinks) > 1:
        return [
            f"startingOffsets=committed: the offsets of group {group} were committed by several sinks, "
            f"{', '.join(sinks)}. Give each query a kafka.group.id of its own; here each partition is read "
            "from where the one that committed last has left it"
        ]
    if sinks and strange:
        said = ", ".join(f"{topic}-{partition}" for topic, partition in strange)
        return [
            f"startingOffsets=committed: the offsets of group {group} are those of the sink {sinks[0]}, but "
            f"not in {said}, where somebody else has committed (by hand, or a consumer)"
        ]
    return []


class Committed(NamedTuple):
    """What the group of kafka.group.id holds of a partition."""

    offset: int
    note: Note | None


class Story(NamedTuple):
    """What checkpoint, decision and group tell when a run of the sink begins.

    `batch`: the one that is to be written, with its source offsets' `ends`. `completed`: the newest in
    Spark's commit log. `decided`: the sink's last decision, whosever it is. `ended`: the digest and end
    offsets that the checkpoint has for the decided batch, where it is this query's and still there.
    `committed` is of the partitions of `ends` and `ended` (empty without `group`).
    """

    sink: str
    batch: Batch
    ends: Offsets
    completed: int | None
    decided: Batch | None
    ended: tuple[str, Offsets] | None
    group: str | None
    committed: Mapping[TopicPartition, Committed]

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

    Raises DecisionGone, CheckpointOlder, CheckpointMismatch.
    """
    _check_notes(story)
    _check_decided(story)
    if story.is_new:
        return _new_checkpoint(story)
    return [*_missing_decisions(story), *_moved_group(story)]


def _check_notes(story: Story) -> None:
    """The group's offsets were committed with a decision: where they tell of this batch, it is decided."""
    claims = [c.note for c in story.committed.values() if c.note and c.note.query == story.batch.query_id]
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
    """A query that begins anew where another one has written: legal, but seldom meant."""
    stands = {tp: found.offset for tp, found in story.committed.items()}
    if stands and all(story.ends.get(tp) == at for tp, at in stands.items()):
        return []  # it begins where the group stands
    out = (
        "If its checkpoint was lost, stop this query and start it with a new checkpoint and "
        "startingOffsets=committed, and with kafka.group.id given to source and sink"
    )
    if stands:
        said = _listed(
            (tp, f"{at}, this query's first batch ends at {story.ends.get(tp)}") for tp, at in stands.items()
        )
        return [
            f"sink {story.sink}: the checkpoint is new, and group {story.group} holds source offsets of an "
            f"earlier query ({said}): rows may be written again, or left out. {out}"
        ]
    if story.decided is None:
        return []
    return [
        f"sink {story.sink}: the checkpoint is new, and the sink has written {story.decided}: what that "
        f"query has read may be written again. {out}; if it is meant, give this query a transactional.id of "
        "its own"
    ]


def _missing_decisions(story: Story) -> list[str]:
    """Batches that the checkpoint calls complete, and no decision tells of."""
    if story.completed is None or (story.ours is not None and story.ours >= story.completed):
        return []
    last = "no batch of this query" if story.ours is None else f"batch {story.ours} last"
    other = f" (its last decision is {story.decided})" if story.decided and story.ours is None else ""
    return [
        f"sink {story.sink}: the checkpoint has completed batch {story.completed}, but the sink has decided "
        f"{last}{other}. That is right where another connector, transactional.id or processing.guarantee "
        "wrote the batches between. If not, the cluster has lost decisions, and rows with them, or the sink "
        f"writes to another cluster; and if the last run was killed right after it decided batch "
        f"{story.batch.batch_id}, its rows are written twice"
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
        "it with a new checkpoint and startingOffsets"
    ]


def _listed(places: Iterable[tuple[TopicPartition, str]]) -> str:
    return "; ".join(f"{topic}-{partition} at {text}" for (topic, partition), text in sorted(places))
