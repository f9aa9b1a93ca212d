"""Notes in the checkpoint which sink gets its batches.

Spark knows the sink's options only while the query runs. A batch that a sink has decided and Spark has not
recorded runs again, perhaps under another transactional.id: then nobody would find the decision. So the
sink's name is written into the checkpoint, in `eoslog/sink`, before the sink gets its first batch. That sink
gets the batches from `since` on. The note also has the group of the source offsets: a query that has replaced
this one is recognised by the names that both had then, even if they have changed.

A second note, `eoslog/starts`, has a random word for each start of the query (Start). Decisions have it, too:
so two copies of a checkpoint are told apart.
"""

import json
import time
import uuid
from typing import Any, NamedTuple, NoReturn, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.checkpoint.files import place_of
from eoslog.connector.commit.decision import ANCHOR
from eoslog.connector.commit.task_reports import Start

NOTED_SINK = "sink"
"""The name of the note."""
NOTED_STARTS = "starts"
"""The name of the note of the query's starts."""
_MOST_STARTS = 200
"""Starts of which none has decided anything; some 20 bytes each."""
_HISTORY = 6
"""How many of a checkpoint's last starts a decision names."""
_FORMER = 20
"""So many sinks that got batches before are noted."""
_PLACE = 80
"""How many characters of a checkpoint's place a decision has."""
_VERSION = 1


class NotedSink(NamedTuple):
    """The sink of a checkpoint's batches. `sink` None: a sink without decisions (at_least_once). `cluster`:
    the id of its cluster, None if brokers do not report one. `since`: the first batch that the sink got.
    `group`: kafka.group.id at the last start. `decisions`: the topic that keeps the sink's decisions.
    `former`: sinks that got batches before, the newest last: cluster, name, and the first batch that did not
    go there."""

    sink: str | None
    cluster: str | None
    since: int
    group: str | None = None
    decisions: str = ANCHOR
    former: tuple[tuple[str, str, int], ...] = ()

    def left_for(self, sink: str | None, cluster: str | None, since: int) -> tuple[tuple[str, str, int], ...]:
        """The `former` of the next note, when another sink gets the batches from `since` on."""
        if self.sink is None or self.cluster is None or (self.sink, self.cluster) == (sink, cluster):
            return self.former
        others = [one for one in self.former if one[:2] != (self.cluster, self.sink)]
        return (*others, (self.cluster, self.sink, since))[-_FORMER:]

    def gets_first(self, batch: int) -> bool:
        """Whether no batch before this one was the sink's: it may have written this one already."""
        return self.since >= batch

    def text(self) -> str:
        """The note's text in the checkpoint."""
        return json.dumps({"version": _VERSION, **self._asdict()})

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self | None:
        """The checkpoint's note, or None, as before the first batch. Raises CheckpointUnreadable."""
        text = checkpoint.noted(NOTED_SINK)
        if text is None:
            return None
        try:
            found: Any = json.loads(text)
            known = found["version"] == _VERSION
            if not known:
                _unknown(checkpoint, text)
            names = (found["sink"], found["cluster"], int(found["since"]), found.get("group"))
            former = tuple((str(of), str(name), int(at)) for of, name, at in found.get("former", ()))
            return cls(*names, found.get("decisions", ANCHOR), former)
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_SINK} is {text!r}: {error}", RESTORE
            ) from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note into the checkpoint. Raises CheckpointUnreadable."""
        checkpoint.note(NOTED_SINK, self.text())


class NotedStarts(NamedTuple):
    """The note of a query's starts: the word of each, and the first batch that was not decided before it. The
    newest is the last."""

    starts: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> list[str]:
        """The starts' words."""
        return [word for word, _ in self.starts]

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self:
        """The checkpoint's note; without starts if there is none. Raises CheckpointUnreadable."""
        text = checkpoint.noted(NOTED_STARTS)
        if text is None:
            return cls()
        try:
            found: Any = json.loads(text)
            if found["version"] != _VERSION:
                _unknown(checkpoint, text, NOTED_STARTS)
            return cls(tuple((str(word), int(since)) for word, since in found["starts"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_STARTS} is {text!r}: {error}", RESTORE
            ) from error

    def add(
        self, checkpoint: Checkpoint, decided: Start | None, since: int, topic: str | None = None
    ) -> Start:
        """Note a new start, before it decides anything. `topic`: as in Start. `decided`: the start of the
        sink's last decision; of those before it the last ones are kept. `since`: the first batch that was not
        decided before. Raises CheckpointUnreadable."""
        kept, words = self.starts, self.words
        if decided is not None and decided.word in words:
            kept = kept[max(0, words.index(decided.word) - _HISTORY) :]
        elif decided is not None:  # of a copy, or of a checkpoint that was put back: it was accepted
            kept = (*kept, *(decided.history or ((decided.word, since),)))
        kept = (*kept[-_MOST_STARTS:], (uuid.uuid4().hex[:16], since))
        NotedStarts(kept).write(checkpoint)
        return Start(kept[-1][0], abridged(checkpoint.location), int(time.time()), kept[-_HISTORY:], topic)

    def learn(self, checkpoint: Checkpoint, word: str, since: int) -> None:
        """Note a word that says who leaves a sink (Left), before the sink has it; or, in a checkpoint that
        comes back, the one that the sink has. Raises CheckpointUnreadable."""
        if word not in self.words:
            NotedStarts((*self.starts[1 - _MOST_STARTS :], (word, since))).write(checkpoint)

    def text(self) -> str:
        """The note's text in the checkpoint."""
        return json.dumps({"version": _VERSION, "starts": self.starts})

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note. Raises CheckpointUnreadable."""
        checkpoint.note(NOTED_STARTS, self.text())


def abridged(location: str) -> str:
    """A checkpoint's place as decisions have it: its end, if it is long."""
    place = place_of(location).rstrip("/")
    return place if len(place) <= _PLACE else f"...{place[3 - _PLACE :]}"


def _unknown(checkpoint: Checkpoint, text: str, name: str = NOTED_SINK) -> NoReturn:
    raise CheckpointUnreadable(
        checkpoint.location,
        f"eoslog/{name} is {text!r}, which a later version of eoslog has written; use that version",
    )
