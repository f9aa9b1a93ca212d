"""Notes in the checkpoint where the query stood in partitions that its batches name no more.

A batch of eoslog's source names what it has left. Another connector's names only what it reads, and Spark
keeps the last batches alone. So the first batch that does not read a partition has `eoslog/left` say where
the one before stood in it. A new checkpoint that goes on where another query has ended begins with what that
one has read and this one does not.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.spark_logs import VOID, Planned, source_position
from eoslog.connector.offsets.offsets import Offsets, to_json
from eoslog.protocol.topic_partitions import TopicPartition

NOTED_LEFT = "left"
"""The name of the note."""
ANOTHERS = -1
"""The number of a batch that another query has run, in whose place this one is."""
_VERSION = 1


class NotedLeft(NamedTuple):
    """The batches that were the last to name partitions, the newest last, with nothing but these."""

    batches: tuple[Planned, ...] = ()

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """The checkpoint's note. Raises CheckpointUnreadable."""
        text = checkpoint.noted(NOTED_LEFT)
        if text is None:
            return cls()
        try:
            found = json.loads(text)
            if found["version"] != _VERSION:
                raise ValueError("a later version of eoslog has written it; use that version")
            return cls(tuple(Planned.parse(int(batch), ends) for batch, ends in found["left"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_LEFT} is {text!r}: {error}", RESTORE
            ) from error

    def text(self) -> str:
        """The note's text in the checkpoint."""
        return json.dumps({"version": _VERSION, "left": [[one.batch_id, one.ends] for one in self.batches]})

    def after(self, before: Planned, places: Collection[TopicPartition]) -> Self:
        """With partitions that `before` was the last to name."""
        older = [_only(one, one.each_left().keys() - {*places}) for one in self.batches]
        return type(self)(tuple(one for one in (*older, _only(before, places)) if one.each_left()))


def note_left(checkpoint: Checkpoint, before: Planned, now: Planned) -> None:
    """Note where `before` stood in what `now` is the first not to read, or not to name any more. Raises
    CheckpointUnreadable."""
    read, left = before.each_end().keys(), before.each_left().keys()
    reads = now.each_end().keys()
    places = (read - reads) | (left - reads - now.each_left().keys())
    if places:
        checkpoint.note(NOTED_LEFT, NotedLeft.read(checkpoint).after(before, places).text())


def stood_in(
    checkpoint: Checkpoint,
    places: Iterable[TopicPartition],
    until: int,
    ids: Mapping[str, str],
    plans: Collection[Planned] = (),
) -> Offsets:
    """Where partitions were read up to in the newest batch below `until` that names them: Spark has kept it,
    the checkpoint notes it, or it is one of `plans`. `ids`: of the topics now; what was read of others does
    not count. Raises CheckpointUnreadable."""
    wanted, found = {*places}, dict[TopicPartition, int]()
    for planned in _newest_first(checkpoint, until, plans) if wanted else ():
        ends, known = planned.each_left() | planned.each_end(), planned.left_ids() | planned.topic_ids()
        for place in wanted & ends.keys():
            was, now = known.get(place[0]), ids.get(place[0])
            if was is None or now in (None, was):
                found[place] = max(ends[place].values())
        wanted -= ends.keys()
        if not wanted:
            break
    return found


def _newest_first(checkpoint: Checkpoint, until: int, plans: Collection[Planned]) -> Iterator[Planned]:
    others = [*NotedLeft.read(checkpoint).batches, *plans]
    kept = {*checkpoint.batches("offsets")}
    for number in sorted(kept | {one.batch_id for one in others}, reverse=True):
        if number < until:
            planned = checkpoint.planned_if_kept(number) if number in kept else None
            yield from () if planned is None else (planned,)
            yield from (one for one in others if one.batch_id == number)


def _only(planned: Planned, places: Collection[TopicPartition]) -> Planned:
    """A batch as if all its sources had left these partitions, and had read nothing else."""
    lines = []
    for text in planned.sources:
        stands = source_position(text)
        left = stands.leaving(stands.offsets).only(places)
        line = json.dumps(to_json({}, cluster=stands.cluster, left=left), separators=(",", ":"))
        lines.append(line if left.offsets else VOID)
    return Planned(planned.batch_id, tuple(lines), planned.names)
