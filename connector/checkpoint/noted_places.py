"""Notes in the checkpoint where the rows of its last batches are in the sink's partitions.

A sink's decision expires after a week without use, and brokers that are put back to an older copy have not
got it either. What is in the checkpoint neither expires nor is put back with them. So before a batch is
decided, the places of its rows are written to `eoslog/places`, and a start holds them against the log. The
note also says which batches this sink got: others in Spark's commit log were run by another connector. Of
other partitions it keeps the last place: a topic that is made anew loses its rows, and so does a partition
whose leader comes back without its log's end. These stay when the batches' numbers mean others: after an
edit, under another transactional.id, and in a new checkpoint that goes on where another query has ended.
"""

import json
from collections.abc import Collection, Iterable
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_sink import abridged
from eoslog.connector.commit.places import (
    OpenRows,
    Place,
    Places,
    Seen,
    by_partition,
    from_json,
    made_anew,
    outlasting,
    to_json,
)
from eoslog.connector.commit.task_reports import Batch
from eoslog.protocol.topic_partitions import TopicPartition

NOTED_PLACES = "places"
"""The name of the note."""
KEPT_PARTITIONS = 1000
"""Of so many more partitions the note has a place, some 70 bytes each."""
_VERSION = 1


class Waiting(NamedTuple):
    """A query of which no batch has had rows yet. `topic`: the sink's; "": its rows name them. `since_ms`:
    when it started first; rows of its batches are younger."""

    topic: str
    since_ms: int


class NotedPlaces(NamedTuple):
    """Batches that the sink was about to decide, the newest first, and where their rows are. The second one
    is the last before it that had rows. `older`: the last place in each partition to which only earlier ones
    wrote, or other queries in whose place this one is. `waiting`: until there is a place. `digest`: of the
    newest one, as Batch has it; "": not noted. `folder`: where the checkpoint was then; "": not noted.
    `decided`: the newest one is decided, as who has written the checkpoint again knows."""

    batches: tuple[tuple[int, Places], ...] = ()
    older: Places = ()
    waiting: Waiting | None = None
    digest: str = ""
    folder: str = ""
    decided: bool = False

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
            waiting = found.get("waiting")
            known = None if waiting is None else Waiting(str(waiting[0]), int(waiting[1]))
            digest, folder = str(found.get("digest", "")), str(found.get("folder", ""))
            older, decided = from_json(found.get("older", ())), bool(found.get("decided"))
            return cls(batches, older, known, digest, folder, decided)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_PLACES} is {text!r}: {error}", RESTORE
            ) from error

    def write(self, checkpoint: Checkpoint, *, durable: bool = False) -> None:
        """Write the note into the checkpoint. It is not synced unless it is asked for, as Spark's notes are
        not: a power cut may take the newest one, and the batch writes it when it runs again. Raises
        CheckpointUnreadable."""
        now = self._replace(folder=abridged(checkpoint.location))
        checkpoint.note(NOTED_PLACES, now.text(), durable=durable)

    def text(self) -> str:
        """The note's text in the checkpoint."""
        batches = [[batch, to_json(places)] for batch, places in self.batches]
        note = {"version": _VERSION, "batches": batches, "older": to_json(self.older)}
        if self.waiting is not None:
            note["waiting"] = self.waiting
        note |= {"digest": self.digest} if self.digest else {}
        note |= {"folder": self.folder} if self.folder else {}
        note |= {"decided": True} if self.decided else {}
        return json.dumps(note)

    @property
    def newest(self) -> int:
        """The newest batch; -1: none is noted."""
        return self.batches[0][0] if self.batches else -1

    def after(self, batch: int, places: Places, *, more: bool = False, digest: str = "") -> Self:
        """With the places of a batch. `more`: in addition to what it has; lost rows are written again.
        `digest`: the batch's."""
        before = [(number, known) for number, known in self.batches if number < batch]
        own = next((known for number, known in self.batches if number == batch), ()) if more else ()
        last = next((one for one in before if one[1]), before[0] if before else None)
        newest = (batch, tuple(dict.fromkeys((*own, *places))))
        kept = (newest,) if last is None else (newest, last)
        left = [*self.older, *(place for one in before if one != last for place in one[1])]
        older = outlasting(left, last[1] if last else ())[-KEPT_PARTITIONS:]
        placed = older or any(found for _, found in kept)
        return type(self)(kept, older, None if placed else self.waiting, digest)

    @property
    def in_batches(self) -> Places:
        """The places of both batches."""
        return tuple(place for _, found in self.batches for place in found)

    @property
    def everywhere(self) -> Places:
        """All places."""
        return tuple(dict.fromkeys((*self.in_batches, *self.older)))

    def without_place(self, topics: Iterable[str]) -> dict[str, int]:
        """Topics where rows of later batches may be, though none of an earlier one is there: those to which
        the query wrote when it was noted, or writes now (`topics`). Each with a time in ms that such rows are
        younger than."""
        if self.waiting is not None:
            return dict.fromkeys({*topics, self.waiting.topic} - {""}, self.waiting.since_ms)
        newest = max((place.time_ms for place in self.everywhere), default=None)
        others = {*topics} - {place.topic for place in self.everywhere}
        return {} if newest is None else dict.fromkeys(others, newest)

    def elsewhere(self, topics: Iterable[str] = ()) -> dict[str, int]:
        """On another cluster, where none of these places are: topics where rows of later batches would be.
        `topics`, times: as in without_place()."""
        since = 0 if self.waiting is None else self.waiting.since_ms
        newest = max((since, *(place.time_ms for place in self.everywhere)))
        named = {*topics, *(place.topic for place in self.everywhere)}
        named |= set() if self.waiting is None else {self.waiting.topic}
        return dict.fromkeys(named - {""}, newest) if newest else {}

    def moved(self, topic: str) -> Self:
        """What is known on another cluster. `topic`: the sink's, "": not known."""
        there = self.elsewhere()
        known = topic or (next(iter(there)) if len(there) == 1 else "")
        return type(self)(waiting=Waiting(known, max(there.values()))) if there else type(self)()

    def names_no_topic(self, topics: Iterable[str]) -> bool:
        """Whether nothing says where rows of later batches would be. `topics`: as in without_place()."""
        return not (self.everywhere or self.without_place(topics))

    def remade(self, places: Places, batch: int) -> str:
        """Topics of these places that were made anew since batches before `batch` wrote there; "": none
        were."""
        ids = {place.topic: place.topic_id for place in self.up_to(batch)}
        now = {place.topic: place.topic_id for place in places}
        said = [made_anew(topic, ids.get(topic), number) for topic, number in sorted(now.items())]
        return "; ".join(text for text in said if text)

    def cut(self, firsts: Iterable[OpenRows], batch: int) -> str:
        """Partitions whose log was cut since batches before `batch` wrote there: the rows of `firsts`, which
        are newer, have no higher offsets. Topics that were made anew are told by remade(). "": none was."""
        known, begins = by_partition(self.up_to(batch)), dict[TopicPartition, int]()
        for first in firsts:
            begins[first.where] = min(first.offset, begins.get(first.where, first.offset))
        said = [
            f"it begins at offset {at} of {where[0]}-{where[1]}, and an earlier batch ended there at "
            f"{then.offset}, so the log was cut"
            for where, at in sorted(begins.items())
            if (then := known.get(where)) is not None and at <= then.offset
        ]
        return "; ".join(said[:3])

    def without(self, gone: Collection[Place]) -> Self:
        """Without places whose rows are gone, as is accepted."""
        batches = tuple((batch, _without(places, gone)) for batch, places in self.batches)
        return self._replace(batches=batches, older=_without(self.older, gone))

    def up_to(self, batch: int) -> Places:
        """The last place in each partition to which batches before this one wrote."""
        before = [found for number, found in reversed(self.batches) if number < batch]
        places = [place for found in before for place in found]
        return tuple(by_partition((*self.older, *places)).values())

    def unnumbered(self, batch: int) -> Self:
        """The last place in each partition to which batches before this one wrote, without the batches: their
        numbers mean others from now on."""
        return self._replace(batches=(), older=self.up_to(batch)[-KEPT_PARTITIONS:], digest="", decided=False)

    def says_decided(self, batch: Batch, seen: Collection[Seen]) -> bool:
        """Whether a batch is the newest one, and known to be decided, whatever the cluster still knows.
        `seen`: what the log shows of its rows; lost ones are written again."""
        known = self.decided and self.newest == batch.batch_id and self.as_noted(batch).repeats(batch)
        return known and {*seen} <= {Seen.COMMITTED, Seen.REMOVED}

    def is_copied_to(self, place: str) -> bool:
        """Whether it was noted in another folder than this one, abridged: a copy has it, or the folder was
        moved."""
        return self.folder not in ("", place)

    def as_noted(self, batch: Batch) -> Batch:
        """A batch with the digest that is noted of it; "": none is."""
        return batch._replace(digest=self.digest if batch.batch_id == self.newest else "")


def _without(places: Places, gone: Collection[Place]) -> Places:
    return tuple(place for place in places if place not in gone)
