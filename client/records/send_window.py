"""What a producer remembers of its batches, and what an answer means for them. Pure.

A batch gets its sequence numbers once, when it is handed over, and keeps them in every retry: the broker
recognizes a repeated (producer id, epoch, sequence) as the batch that it has already (KIP-98). For that at
most five requests may be unanswered, a partition's batches must be sent in order, and its first one alone.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from eoslog.client.wire.retry import ErrorOutcome, outcome
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import Buffer
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.sequence import add
from eoslog.protocol.topic_partitions import TopicPartition

MAX_UNANSWERED = 5
"""Brokers remember only the last five batches of a producer on a partition."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A finished batch to be sent. `number` counts batches in the order in which they were handed over.
    `deadline` is on the monotonic clock, in seconds; `size` in bytes."""

    where: TopicPartition
    parts: list[Buffer]
    size: int
    count: int
    number: int
    deadline: float


class BatchVerdict(Enum):
    """What an answer means for a batch."""

    DONE = "it is in the log"
    AGAIN = "send it again, with the same sequence"
    FAILED = "it will never be accepted"


class Unanswered:
    """The unacknowledged batches of each partition, oldest first, and the next sequences."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[int]] = {}
        self._next: dict[TopicPartition, int] = {}
        self._begun: set[TopicPartition] = set()
        self._number = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def sequence(self, where: TopicPartition, count: int) -> int:
        """The base sequence of the partition's next batch, of `count` records."""
        base = self._next.get(where, 0)
        self._next[where] = add(base, count)
        return base

    def enter(self, where: TopicPartition) -> int:
        """Return the number of a batch that is handed over now."""
        self._number += 1
        self._waiting.setdefault(where, deque()).append(self._number)
        return self._number

    def oldest(self, batch: Outgoing) -> bool:
        """Whether no earlier batch of its partition is unacknowledged."""
        return self._waiting[batch.where][0] == batch.number

    def may_leave(self, batch: Outgoing) -> bool:
        """Whether a batch may be sent now. A partition's second batch waits until the first is acknowledged.
        A partition that does not know the producer accepts any sequence: if it refused the first batch, it
        would accept the second, and the first could never follow."""
        return batch.where in self._begun or self.oldest(batch)

    def judge(self, batch: Outgoing, code: int) -> BatchVerdict:
        """What an answer's error code means. An acknowledged batch is removed."""
        if code == ErrorCode.NONE or outcome(code, ApiKey.PRODUCE) is ErrorOutcome.ANSWER:
            self._waiting[batch.where].remove(batch.number)
            self._begun.add(batch.where)
            return BatchVerdict.DONE
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.oldest(batch):
            return BatchVerdict.AGAIN  # the batch before it was not accepted; both are sent again, in order
        return (
            BatchVerdict.AGAIN if outcome(code, ApiKey.PRODUCE) is ErrorOutcome.AGAIN else BatchVerdict.FAILED
        )


def pack(batches: Iterable[Outgoing], max_bytes: int) -> list[list[Outgoing]]:
    """Group batches into requests, in order: one batch of a partition in each, and at most `max_bytes`
    unless one batch is larger."""
    requests: list[list[Outgoing]] = []
    size, taken = 0, set[TopicPartition]()
    for batch in batches:
        if not requests or batch.where in taken or size + batch.size > max_bytes:
            requests.append([])
            size, taken = 0, set()
        requests[-1].append(batch)
        size += batch.size
        taken.add(batch.where)
    return requests
