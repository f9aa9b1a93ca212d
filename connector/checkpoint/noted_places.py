"""Notes in the checkpoint where the rows of its last batches are in the sink's partitions.

A sink's decision expires after a week without use, and brokers that are put back to an older copy have not
got it either. What is in the checkpoint neither expires nor is put back with them. So before a batch is
decided, the places of its rows are written to `eoslog/places`, and a start holds them against the log. The
note also says which batches this sink got: others in Spark's commit log were run by another connector. Of
other partitions it keeps the last place: a topic that is made anew loses its rows, and so does a partition
whose leader comes back without its log's end.
"""

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.places import Place, Places, from_json, made_anew, to_json
from eoslog.protocol.topic_partitions import TopicPartition

NOTED_PLACES = "places"
"""The name of the note."""
KEPT_PARTITIONS = 1000
"""Of so many more partitions the note has a place, some 70 bytes each."""
_VERSION = 1


class NotedPlaces(NamedTuple):
    """Batches that the sink was about to decide, the newest first, and where their rows are. The second one
    is the last before it that had rows. `older`: the last place in each partition to which only earlier ones
    wrote."""

    batches: tuple[tuple[int, Places], ...] = ()
    older: Places = ()

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """The checkpoint's note. Raises CheckpointUnreadable."""
        text = checkpoint.noted(NOTED_PLACES)
        if not text:  # a power cut may leave the name and take what it stands for
            return cls()
        try:
            found = json.loads(text)
            if found["version"] != _VERSION:
                raise ValueError("a later version of eoslog has written it; use that version")
            batches = tuple((int(batch), from_json(places)) for batch, places in found["batches"])
            return cls(batches, from_json(found.get("older", ())))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_PLACES} is {text!r}: {error}", RESTORE
            ) from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note into the checkpoint. It is not synced, as Spark's notes are not: a power cut may
        take the newest one, and the batch writes it when it runs again. Raises CheckpointUnreadable."""
        batches = [[batch, to_json(places)] for batch, places in self.batches]
        note = {"version": _VERSION, "batches": batches, "older": to_json(self.older)}
        checkpoint.note(NOTED_PLACES, json.dumps(note), durable=False)

    @property
    def newest(self) -> int:
        """The newest batch; -1: none is noted."""
        return self.batches[0][0] if self.batches else -1

    def after(self, batch: int, places: Places, *, more: bool = False) -> Self:
        """With the places of a batch. `more`: in addition to what it has; lost rows are written again."""
        before = [(number, known) for number, known in self.batches if number < batch]
        own = next((known for number, known in self.batches if number == batch), ()) if more else ()
        last = next((one for one in before if one[1]), before[0] if before else None)
        newest = (batch, tuple(dict.fromkeys((*own, *places))))
        kept = (newest,) if last is None else (newest, last)
        written = _by_partition(last[1] if last else ())
        topics = {place.topic: place.topic_id for place in written.values()}
        left = [*self.older, *(place for one in before if one != last for place in one[1])]
        older = {
            where: place
            for where, place in _by_partition(left).items()
            if where not in written and topics.get(place.topic, place.topic_id) == place.topic_id
        }
        return type(self)(kept, tuple(older.values())[-KEPT_PARTITIONS:])

    @property
    def in_batches(self) -> Places:
        """The places of both batches."""
        return tuple(place for _, found in self.batches for place in found)

    @property
    def everywhere(self) -> Places:
        """All places."""
        return tuple(dict.fromkeys((*self.in_batches, *self.older)))

    def remade(self, places: Places, batch: int) -> str:
        """Topics of these places that were made anew since batches before `batch` wrote there; "": none
        were."""
        ids = {place.topic: place.topic_id for place in self.up_to(batch)}
        now = {place.topic: place.topic_id for place in places}
        said = [made_anew(topic, ids.get(topic), number) for topic, number in sorted(now.items())]
        return "; ".join(text for text in said if text)

    def cut(self, firsts: Iterable[Place], batch: int) -> str:
        """Partitions whose log was cut since batches before `batch` wrote there: the rows of `firsts`, which
        are newer, have no higher offsets. "": none was."""
        known = _by_partition(self.up_to(batch))
        said = [
            f"it begins at {first}, and an earlier batch ended there at {then.offset}, so the log was cut"
            for first in firsts
            if (then := known.get(_partition(first))) is not None
            and first.offset <= then.offset
            and not made_anew(first.topic, then.topic_id, first.topic_id)
        ]
        return "; ".join(said[:3])

    def without(self, gone: Collection[Place]) -> Self:
        """Without places whose rows are gone, as is accepted."""
        batches = tuple((batch, _without(places, gone)) for batch, places in self.batches)
        return type(self)(batches, _without(self.older, gone))

    def up_to(self, batch: int) -> Places:
        """The last place in each partition to which batches before this one wrote."""
        before = [found for number, found in reversed(self.batches) if number < batch]
        places = [place for found in before for place in found]
        return tuple(_by_partition((*self.older, *places)).values())


def _partition(place: Place) -> TopicPartition:
    return place.topic, place.partition


def _by_partition(places: Iterable[Place]) -> dict[TopicPartition, Place]:
    """The last one of each partition, in the order in which they were written."""
    return {_partition(place): place for place in places}


def _without(places: Places, gone: Collection[Place]) -> Places:
    return tuple(place for place in places if place not in gone)
