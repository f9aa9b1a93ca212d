"""Where a query's saved state is, as a decision says it. Its records are written in the sink's own
transaction, so they become visible with the decision, or never. So are rows of a shadow that takes over."""

from typing import NamedTuple, Protocol

from eoslog.connector.commit.places import OpenRows, Places
from eoslog.connector.commit.transactional_ids import Participant


class Saved(NamedTuple):
    """The newest save: a manifest in the topic of state.topic.

    `batch`: what was saved is what Spark needs to run this batch. `size`, `digest`: of the manifest, in
    bytes and by SHA-256. `stateful`: whether the query keeps any state. `log`: which log has its records:
    the topic's id, and where the partition began then ("": not known). If that is another now, records may be
    gone.
    """

    topic: str
    partition: int
    batch: int
    size: int
    digest: str
    stateful: bool
    log: str = ""


def log_of(topic_id: str | None, begins: int) -> str:
    """What Saved says of a log. Any end of it that is cut moves its beginning."""
    return f"{topic_id}@{begins}"


TaskContents = tuple[tuple[int, ...], tuple[int, ...]]
"""Rows and checksums of a batch's tasks, as in Decision."""


class Written(NamedTuple):
    """What was written in the transaction of a decision. `saved`: what the decision has to say of the query's
    state. `rows`: the records. `places`: where those stand that are the query's rows."""

    saved: Saved | None
    rows: tuple[OpenRows, ...] = ()
    places: Places = ()


class Saving(Protocol):
    """What writes records in the transaction of a decision."""

    @property
    def topic(self) -> str:
        """The topic to which it writes."""

    def write(self, own: Participant, last: Saved | None, contents: TaskContents) -> Written:
        """Write what the batch adds to `last`, the query's last save, in the sink's own transaction. Raises
        CheckpointUnreadable, ProduceFailed, KafkaError."""
