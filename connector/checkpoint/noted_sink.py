"""Notes in the checkpoint which sink gets its batches.

Spark knows the sink's options only while the query runs. A batch that a sink has decided and Spark has not
recorded runs again, perhaps under another transactional.id: then nobody would find the decision. So the
sink's name is written into the checkpoint, in `eoslog/sink`, before the sink gets its first batch. That sink
gets the batches from `since` on. The note also has the group of the source offsets: a query that has replaced
this one is recognised by the names that both had then, even if they have changed.
"""

import json
from typing import Any, NamedTuple, NoReturn, Self

from eoslog.connector.checkpoint.checkpoint import RESTORE, Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.decision import ANCHOR

NOTED_SINK = "sink"
"""The name of the note."""
_VERSION = 1


class NotedSink(NamedTuple):
    """The sink of a checkpoint's batches. `sink` None: a sink without decisions (at_least_once). `cluster`:
    the id of its cluster, None if brokers do not report one. `since`: the first batch that the sink got.
    `group`: kafka.group.id at the last start. `decisions`: the topic that keeps the sink's decisions."""

    sink: str | None
    cluster: str | None
    since: int
    group: str | None = None
    decisions: str = ANCHOR

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
            return cls(*names, found.get("decisions", ANCHOR))
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(
                checkpoint.location, f"eoslog/{NOTED_SINK} is {text!r}: {error}", RESTORE
            ) from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the note into the checkpoint. Raises CheckpointUnreadable."""
        checkpoint.note(NOTED_SINK, self.text())


def _unknown(checkpoint: Checkpoint, text: str) -> NoReturn:
    raise CheckpointUnreadable(
        checkpoint.location,
        f"eoslog/{NOTED_SINK} is {text!r}, which a later version of eoslog has written; use that version",
    )
