"""What travels between the driver and its tasks; picklable values without behaviour.

Spark builds a new writer for every batch and commits in another process, so all that commit
needs, above all the identity that begin got, comes back in the tasks' reports.
"""

from dataclasses import dataclass
from typing import NamedTuple

from eoslog.connector.commit.names import Participant
from eoslog.protocol.producer_identity import ProducerIdentity

TopicPartition = tuple[str, int]


class Batch(NamedTuple):
    """A micro-batch: the query's id, Spark's batch id, and a digest of its source offsets.

    The digest ("" when unknown) tells a replay, which repeats the same offsets, from another batch
    under the same number, as a checkpoint restored from a backup makes it.
    """

    query_id: str
    batch_id: int
    digest: str = ""

    def __str__(self) -> str:
        return f"batch {self.batch_id} of query {self.query_id}"


@dataclass(frozen=True)
class Run:
    """What a driver process remembers from one batch to the next.

    `incarnation` is the identity at acquisition and goes into names; `identity` is the current one:
    EndTxn version 5 raises the epoch with every decision (KIP-890). `batch` is the last one begun.
    """

    incarnation: ProducerIdentity
    identity: ProducerIdentity
    batch: Batch


@dataclass(frozen=True)
class Begun:
    """What begin found out and tasks need.

    `batch` is the batch begun; `decided` is the last decided batch of its query, or that of the sink where
    none is known; `sequence` the number of the sink's last decision (0: none); `anchors` the number of
    partitions that can hold a decision; `dropped`: at_most_once has attempted this batch before. `lost`:
    Spark partitions of the decided batch whose rows the broker has aborted, to be written again. `anew`: the
    sink was acquired for this batch, not gone on with. (The identity does not tell: brokers that were
    restored from an older copy give the same one again.)
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
    anew: bool = True


@dataclass(frozen=True)
class Stamp:
    """Under what a task worked; the same in all reports of a batch. `lost`: as in Begun."""

    sink_id: str
    incarnation: ProducerIdentity
    identity: ProducerIdentity
    sequence: int
    anchors: int
    batch: Batch
    lost: tuple[int, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A task wrote its rows in a transaction, open still: every one of them is acknowledged.

    `checksum`: of the rows that Spark gave it, whatever their order; None: not asked for. `topic_ids`: which
    topics they are that go by these names, as far as the brokers tell. `bytes`: as sent, compressed.
    """

    stamp: Stamp
    partition: int
    participant: Participant
    rows: int
    written: tuple[TopicPartition, ...]
    checksum: int | None = None
    topic_ids: tuple[tuple[str, str], ...] = ()
    bytes: int = 0


@dataclass(frozen=True)
class Empty:
    """A task had no rows to write and opened nothing."""

    stamp: Stamp
    partition: int


@dataclass(frozen=True)
class Decided:
    """A task found its batch decided in an earlier run and let its rows pass: so many, with this checksum."""

    stamp: Stamp
    partition: int
    rows: int = 0
    checksum: int | None = None


Report = Prepared | Empty | Decided
