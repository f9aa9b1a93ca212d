"""One transactional id in memory: its durable state and the change that is running."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from eoslog.broker.rules.transactions.transaction_state import PREPARED, TransactionMetadata, TransactionState
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """A transactional id as clients see it. `partitions`: those that have no marker yet."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: list[tuple[str, int]]


@dataclass(slots=True, eq=False)
class PendingPartitions:
    """Partitions that wait to be added for one producer by writing to them."""

    producer: ProducerIdentity
    partitions: set[tuple[str, int]] = field(default_factory=set)
    task: asyncio.Task[None] = field(init=False)


class TransactionEntry:
    """A transactional id. `metadata` is its durable state, None as long as there is none."""

    __slots__ = ("_going_to", "_lost", "_running", "id", "joining", "metadata", "unmarked")

    def __init__(self, transactional_id: str, metadata: TransactionMetadata | None = None) -> None:
        self.id = transactional_id
        self.metadata = metadata
        self.unmarked: set[tuple[str, int]] = set()
        """Partitions of a prepared transaction that have no durable marker yet."""
        self.joining: PendingPartitions | None = None
        self._running: asyncio.Task[Any] | None = None
        self._going_to: TransactionState | None = None
        self._lost: str | None = None
        if metadata is not None:
            self.take_over(metadata)

    @property
    def free(self) -> bool:
        """Whether a change may start."""
        return self._running is None and self._lost is None

    @property
    def busy(self) -> bool:
        """Whether a change is running whose record is not known to have failed."""
        return self._running is not None and self._lost is None

    @property
    def ending(self) -> bool:
        """Whether the transaction is ending: nothing more may be written in it."""
        return self._going_to in PREPARED

    @property
    def running(self) -> asyncio.Task[Any]:
        """The running change. Call only if there is one."""
        assert self._running is not None
        return self._running

    def begin(self, task: asyncio.Task[Any], going_to: TransactionState) -> None:
        """Note that a change has started."""
        self._running, self._going_to = task, going_to

    def end(self) -> None:
        """Note that the change has ended, successfully or not."""
        self._running = self._going_to = None

    def take_over(self, metadata: TransactionMetadata) -> None:
        """Set the durable state."""
        self.metadata, self._lost = metadata, None
        self.unmarked = set(metadata.partitions) if metadata.state in PREPARED else set()

    def lose(self, why: str) -> None:
        """Note that log and memory may differ: the id may not be changed or described any more."""
        self._lost = why

    def check_certain(self) -> None:
        """Raises KafkaError COORDINATOR_NOT_AVAILABLE if memory and log may differ."""
        if self._lost is not None:
            text = f"{self.id}: {self._lost}; it will be when the broker's disk works again"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text)

    def check_free(self) -> None:
        """Raises KafkaError unless a change may start."""
        self.check_certain()
        if self._running is not None:
            raise self.busy_error()

    def busy_error(self) -> KafkaError:
        """CONCURRENT_TRANSACTIONS, with the change that is running."""
        doing = self._going_to.text if self._going_to is not None else "a change"
        return KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{self.id}: {doing} is on its way")

    def certain(self) -> TransactionMetadata | None:
        """The durable state. Raises KafkaError COORDINATOR_NOT_AVAILABLE if it is not known."""
        self.check_certain()
        return self.metadata

    def describe(self) -> DescribedTransaction | None:
        """The durable state as clients see it. Raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        known = self.certain()
        if known is None:
            return None
        partitions = self.unmarked if known.state in PREPARED else known.partitions
        return DescribedTransaction(
            self.id, known.state, known.producer_id, known.producer_epoch, known.timeout_ms, known.start_ms,
            sorted(partitions),
        )  # fmt: skip
