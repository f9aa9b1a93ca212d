"""What a producer has to remember about its batches, and what an answer means for them. Pure.

A batch gets its sequence numbers once, when it is handed over, and keeps them over every retry: the
broker takes a repeated (producer id, epoch, sequence) for the batch it already has (KIP-98). For that
at most five requests may be unanswered, batches of a partition must go out in order, and its first one
alone.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from eoslog.connector.client.wire.error_outcomes import Outcome, outcome
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import Buffer
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.sequence import add

TopicPartition = tuple[str, int]

MAX_UNANSWERED = 5
"""Brokers remember the last five batches of a producer on a partition, not more."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A finished batch on its way. `number` counts batches in the order they were handed over;
    `deadline` is on the monotonic clock, in seconds; `size` in bytes."""

    where: TopicPartition
    parts: list[Buffer]
    size: int
    count: int
    number: int
    deadline: float


class Verdict(Enum):
    """What becomes of a batch after an answer."""

    DONE = "it is in the log"
    AGAIN = "send it again, with the same sequence"
    FAILED = "it will never be taken"


class Unanswered:
    """Batches handed over and not acknowledged, by partition, oldest first; and the next sequences."""

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
        """The number of a batch that is handed over now."""
        self._number += 1
        self._waiting.setdefault(where, deque()).append(self._number)
        return self._number

    def oldest(self, batch: Outgoing) -> bool:
        """Whether no earlier batch of its partition is unacknowledged."""
        return self._waiting[batch.where][0] == batch.number

    def may_leave(self, batch: Outgoing) -> bool:
        """Whether a batch may be sent now. The second one of a partition waits for the first to be
        acknowledged: a partition that does not know the producer takes any sequence, so it would take
        the second batch where it refused the first, and the first could never follow."""
        return batch.where in self._begun or self.oldest(batch)

    def judge(self, batch: Outgoing, code: int) -> Verdict:
        """What an answer's error code means; an acknowledged batch is taken off."""
        if code == ErrorCode.NONE or outcome(code, ApiKey.PRODUCE) is Outcome.ANSWER:
            self._waiting[batch.where].remove(batch.number)
            self._begun.add(batch.where)
            return Verdict.DONE
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.oldest(batch):
            return Verdict.AGAIN  # the batch before it was not taken; both go again, in order
        return Verdict.AGAIN if outcome(code, ApiKey.PRODUCE) is Outcome.AGAIN else Verdict.FAILED


def pack(batches: Iterable[Outgoing], max_bytes: int) -> list[list[Outgoing]]:
    """Batches as requests, in order: one batch a partition in each, `max_bytes` unless one is larger."""
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
