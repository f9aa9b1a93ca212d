"""Notes by which a shadow stands still between two batches, so that it can take over while it runs.

Who wants it to take over, `eoslog shadow take-over --live`, asks for that in `eoslog/take-over`. When the
shadow has decided a batch, it answers in `eoslog/stands`, and begins no other one. Then it can be looked at
like a query that was stopped. It goes on when the first note is gone, or says so; or after STANDS_SECONDS.

Nothing depends on these notes but one thing: before a decision is made in the other query's sink, the first
note says what `eoslog/sink` is to say then (`becomes`). So whoever finds it there finds out, and writes it.
"""

import json
import time
import uuid
from typing import Any, NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.noted_sink import NotedSink

TAKE_OVER = "take-over"
"""The name of the note that asks for it."""
STANDS = "stands"
"""The name of the shadow's answer."""
STANDS_SECONDS = 30.0
"""How long a shadow stands still without an answer."""
_LOOK_SECONDS = 0.01
_VERSION = 1


class TakeOverWish(NamedTuple):
    """Somebody wants the shadow to take over. `word`: who. `until`: the shadow goes on after this batch.
    `becomes`: what is noted of the sink if the decision is made that is made now; None: none is made."""

    word: str
    until: int = -1
    becomes: NotedSink | None = None

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self | None:
        """The note. None: there is none. Raises CheckpointUnreadable."""
        found = _read(checkpoint, TAKE_OVER)
        if found is None:
            return None
        becomes = None if found["becomes"] is None else NotedSink(*found["becomes"])
        return cls(str(found["word"]), int(found["until"]), becomes)

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note; it outlives a power cut if something depends on it. Raises CheckpointUnreadable."""
        _write(checkpoint, TAKE_OVER, self, durable=self.until < 0 or self.becomes is not None)


class Standstill(NamedTuple):
    """The shadow has decided `batch`, its rows can be read, and it waits. `word`: of the wish. `look`:
    another one each time. `state`: where it saves its state, as its options say; None: nowhere."""

    word: str
    batch: int
    look: str
    state: str | None = None

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self | None:
        """The note. None: there is none. Raises CheckpointUnreadable."""
        found = _read(checkpoint, STANDS)
        return None if found is None else cls(found["word"], found["batch"], found["look"], found["state"])


def stand_still(checkpoint: Checkpoint, batch: int, state: str | None) -> bool:
    """Wait as long as somebody wants the shadow to stand still after this batch, which is decided. Returns
    whether the wish was answered; False: nobody did, so it is withdrawn, unless a decision may be under way.
    Raises CheckpointUnreadable."""
    wish = TakeOverWish.read(checkpoint)
    if wish is None or wish.until >= batch:
        return True
    _write(checkpoint, STANDS, Standstill(wish.word, batch, uuid.uuid4().hex, state), durable=False)
    ends, now = time.monotonic() + STANDS_SECONDS, TakeOverWish.read(checkpoint)
    while now is not None and now.word == wish.word and now.until < batch:
        if time.monotonic() > ends:
            if now.becomes is None:
                checkpoint.forget(TAKE_OVER)
            return False
        time.sleep(_LOOK_SECONDS)
        now = TakeOverWish.read(checkpoint)
    return True


def _write(checkpoint: Checkpoint, name: str, note: Any, *, durable: bool) -> None:
    checkpoint.note(name, json.dumps({"version": _VERSION, **note._asdict()}), durable=durable)


def _read(checkpoint: Checkpoint, name: str) -> Any:
    """The note. None: there is none, or it is removed at this moment."""
    try:
        text = checkpoint.noted(name)
    except CheckpointUnreadable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if text is None:
        return None
    try:
        found = json.loads(text)
        if found["version"] != _VERSION:
            raise ValueError("a later version of eoslog has written it; use that version")
        return found
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointUnreadable(
            checkpoint.location, f"eoslog/{name} is {text!r}: {error}", f"remove eoslog/{name}"
        ) from error
