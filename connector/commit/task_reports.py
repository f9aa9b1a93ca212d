"""The messages between the driver and its tasks: picklable values without behaviour.

Spark builds a new writer for every batch and commits in another process, so everything that commit needs,
above all the identity that begin got, comes back in the tasks' reports.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from eoslog.connector.commit.transactional_ids import Participant
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.topic_partitions import TopicPartition

DIGESTS = "+"
"""Stands between the parts of a batch's digest."""


class Batch(NamedTuple):
    """A micro-batch: the query's id, Spark's batch id, and a digest of its source offsets.

    The digest ("" if unknown) distinguishes a replay, which reads the same, from another batch with the same
    id, which comes from a checkpoint restored from a backup. It has a part of the sources' ends and, where
    these do not name what is read, a part of that (Planned.digest); older versions knew the first part alone.
    """

    query_id: str
    batch_id: int
    digest: str = ""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"

    def repeats(self, other: "Batch") -> bool:
        """Whether this is the same batch, with the same plan as far as both digests say it."""
        known = self.digest and other.digest
        pairs = zip(self.digest.split(DIGESTS), other.digest.split(DIGESTS), strict=False)
        return self[:2] == other[:2] and not (known and any(one != two for one, two in pairs))


class Start(NamedTuple):
    """A start of a query. Its checkpoint knows its `word`, and so does each decision of its batches: a copy
    of the checkpoint does not. `place`: where the checkpoint is, abridged; `at`: in seconds since 1970.
    `history`: the words of the checkpoint's last starts, this one included, each with the first batch that
    was not decided before it. `topic`: what the option topic named, "": each row names its own; None: not
    recorded."""

    word: str
    place: str
    at: int
    history: tuple[tuple[str, int], ...] = ()
    topic: str | None = None

    @classmethod
    def read(cls, found: Sequence[Any]) -> Self:
        """The start that JSON has. Raises ValueError, TypeError."""
        word, place, at, history, *more = found
        known = tuple((str(one), int(since)) for one, since in history)
        topic = None if not more or more[0] is None else str(more[0])
        return cls(str(word), str(place), int(at), known, topic)

    def parted_at(self, words: Collection[str]) -> int | None:
        """The first batch that starts have decided which a checkpoint with these words does not know. None:
        it knows none of them, or this one."""
        known = [at for at, (word, _) in enumerate(self.history) if word in words]
        return self.history[known[-1] + 1][1] if known and known[-1] + 1 < len(self.history) else None


class Left(NamedTuple):
    """Says that a sink's rows go elsewhere now. `word`: the checkpoint that leaves the sink knows it; `sink`:
    the one that gets the rows from `batch_id` of the query `query_id` on, "": at_least_once, which has none;
    the sink's own name: that of another cluster, to which the query has moved;
    `at`: in seconds since 1970."""

    word: str
    sink: str
    query_id: str
    batch_id: int
    at: int

    @property
    def time(self) -> str:
        """When the sink was left, as messages say it."""
        return datetime.fromtimestamp(self.at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


@dataclass(frozen=True)
class Run:
    """What a driver process remembers from one batch to the next.

    `incarnation` is the identity at acquisition and goes into names; `identity` is the current one:
    EndTxn version 5 raises the epoch with every decision (KIP-890). `batch` is the last one begun. `start`:
    the query's. `options`: a digest of the sink's. `streams`: the threads, number and start time, that ran
    the driver's streaming queries at that start; empty: the system does not show them.
    """

    incarnation: ProducerIdentity
    identity: ProducerIdentity
    batch: Batch
    start: Start | None = None
    options: str = ""
    streams: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Begun:
    """The result of begin, for the tasks.

    `batch`: the batch that was begun. `decided`: the last decided batch of its query, or of the sink if none
    is known of the query. `sequence`: the number of the sink's last decision (0: none). `anchors`: the number
    of partitions that can hold a decision. `dropped`: at_most_once has attempted this batch before. `lost`:
    Spark partitions of the decided batch whose rows the broker has aborted; they are written again.
    `acquired_now`: the sink was acquired for this batch, not kept from the last one. (The identity does not
    show that: brokers that were restored from an older copy assign the same one again.) `left_state`: the
    sink's last decision has saved the state of its query. `followed_by`: which query has decided in this sink
    since the query of `batch` did. `passes`: a restored checkpoint runs this batch again, which was decided
    before the last one. `sums`: nothing but the rows says whether a replay reads the same, or the batch is
    compared with what it was, so tasks add up their checksum. `start`: the query's, None: it is not noted.
    `last_start`: of the sink's last decision, if it is of this query.
    """

    sink_id: str
    incarnation: ProducerIdentity
    identity: ProducerIdentity
    sequence: int
    anchors: int
    batch: Batch
    decided: Batch | None
    dropped: bool = False
    lost: tuple[int, ...] = ()
    acquired_now: bool = True
    left_state: bool = False
    followed_by: str | None = None
    passes: bool = False
    sums: bool = False
    start: Start | None = None
    last_start: Start | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the batch, or a later one of its query, is decided."""
        done = self.decided
        return done is not None and done.query_id == self.batch.query_id and done[1] >= self.batch.batch_id

    @property
    def ours(self) -> Batch | None:
        """The last decided batch of the query whose batch was begun."""
        known = self.decided is not None and self.decided.query_id == self.batch.query_id
        return self.decided if known else None


@dataclass(frozen=True)
class Stamp:
    """What begin gave to a task. It is the same in all reports of a batch. `lost`, `start`: as in Begun.
    `within`: the micro-batch whose foreachBatch makes this batch write: only its tasks are told. `run`: a
    word for that query's run."""

    sink_id: str
    incarnation: ProducerIdentity
    identity: ProducerIdentity
    sequence: int
    anchors: int
    batch: Batch
    lost: tuple[int, ...] = ()
    within: Batch | None = None
    start: Start | None = None
    run: str = ""


@dataclass(frozen=True)
class Prepared:
    """A task has written its rows in a transaction that is still open. Brokers have acknowledged every row.

    `checksum`: of the rows that Spark gave the task, in any order; None: not asked for. `topic_ids`: the
    names and ids of the topics, as far as the brokers report ids. `bytes`: as sent, compressed.
    `last_rows`: the offset of the last row in each of `written`, -1: not reported, and the largest timestamp
    of its record batch; empty: none is known. `first_rows`: the offset of the first row there, likewise.
    `last_sequences`: the sequence number of the last row there. `dead`: how many of the rows went to the dead
    letter topic.
    """

    stamp: Stamp
    partition: int
    participant: Participant
    rows: int
    written: tuple[TopicPartition, ...]
    checksum: int | None = None
    topic_ids: tuple[tuple[str, str], ...] = ()
    bytes: int = 0
    last_rows: tuple[tuple[int, int], ...] = ()
    first_rows: tuple[int, ...] = ()
    last_sequences: tuple[int, ...] = ()
    dead: int = 0


@dataclass(frozen=True)
class Empty:
    """A task had no rows to write and opened nothing."""

    stamp: Stamp
    partition: int


@dataclass(frozen=True)
class Decided:
    """A task found its batch decided in an earlier run: it only counted its rows and added up a checksum.
    `topics`: that its rows name, if no option does."""

    stamp: Stamp
    partition: int
    rows: int = 0
    checksum: int | None = None
    topics: tuple[str, ...] = ()


Report = Prepared | Empty | Decided
