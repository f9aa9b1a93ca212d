"""Notes in the checkpoint where the rows of its last batches are in the sink's partitions.

A sink's decision expires after a week without use, and brokers that are put back to an older copy have not
got it either. What is in the checkpoint neither expires nor is put back with them. So before a batch is
decided, the places of its rows are written to `eoslog/places`, and a start holds them against the log. The
note also says which batches this sink got: others in Spark's commit log were run by another connector.
"""

import json
from typing import NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.places import Places, from_json, to_json

NOTED_PLACES = "places"
"""The name of the note."""
_VERSION = 1


class NotedPlaces(NamedTuple):
    """Batches that the sink was about to decide, the newest first, and where their rows are. The second one
    is the last before it that had rows."""

    batches: tuple[tuple[int, Places], ...] = ()

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
            return cls(tuple((int(batch), from_json(places)) for batch, places in found["batches"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_PLACES} is {text!r}: {error}", RESTORE
            ) from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note into the checkpoint. It is not synced, as Spark's notes are not: a power cut may
        take the newest one, and the batch writes it when it runs again. Raises CheckpointUnreadable."""
        batches = [[batch, to_json(places)] for batch, places in self.batches]
        checkpoint.note(NOTED_PLACES, json.dumps({"version": _VERSION, "batches": batches}), durable=False)

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
        return type(self)((newest,) if last is None else (newest, last))
