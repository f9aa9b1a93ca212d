"""Notes in the checkpoint which sink its batches are given to.

Spark knows the sink's options only while the query runs. A batch that one sink has decided, and that Spark
has not recorded, runs again, perhaps under another transactional.id: then nobody would find the decision. So
the sink's name is written into the checkpoint, in `eoslog/sink`, before the sink gets its first batch.
Batches from `since` on are given to that sink. The note also has the group of the source offsets: a query
that has taken this one's place is recognised by the names that both had then, even if they have changed.
"""

import json
from typing import Any, NamedTuple, Self

from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable

_FILE = "sink"
_VERSION = 1


class GivenTo(NamedTuple):
    """The sink of a checkpoint's batches. `sink` None: one without decisions (at_least_once); `cluster`: the
    id of its cluster, None where brokers tell none; `group`: kafka.group.id at the last start."""

    sink: str | None
    cluster: str | None
    since: int
    group: str | None = None

    def text(self) -> str:
        """As it stands in the checkpoint."""
        return json.dumps({"version": _VERSION, **self._asdict()})

    @classmethod
    def read(cls, checkpoint: Checkpoint) -> Self | None:
        """What the checkpoint tells; None: nothing, as before its first batch. Raises
        CheckpointUnreadable."""
        text = checkpoint.noted(_FILE)
        if text is None:
            return None
        try:
            found: Any = json.loads(text)
            known = found["version"] == _VERSION
            return (
                cls(found["sink"], found["cluster"], int(found["since"]), found.get("group"))
                if known
                else _unknown(checkpoint, text)
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointUnreadable(checkpoint.location, f"eoslog/{_FILE} is {text!r}: {error}") from error

    def write(self, checkpoint: Checkpoint) -> None:
        """Note it. Raises CheckpointUnreadable."""
        checkpoint.note(_FILE, self.text())


def _unknown(checkpoint: Checkpoint, text: str) -> Any:
    raise CheckpointUnreadable(
        checkpoint.location,
        f"eoslog/{_FILE} is {text!r}, which a later version of eoslog has written; go on with that",
    )
