"""The transactional ids of the broker in memory: durable states, running changes, unfinished transactions.

Frequent look-ups (time-outs, the owner of a producer id) look only at the ids with an open or prepared
transaction: there may be many thousands of ids at rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from eoslog.broker.coordinator.transactions.transaction_state import (
    AT_REST,
    PREPARED,
    TransactionMetadata,
    TransactionState,
)
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


class TransactionEntries:
    """The table of transactional ids. `active` are those whose transaction is open or prepared."""

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionEntry] = {}
        self._active: dict[str, TransactionEntry] = {}
        # Producer id of each active one's transaction; no two transactional ids ever share one.
        self._owners: dict[int, TransactionEntry] = {}
        self._holders: dict[int, TransactionEntry] = {}  # by producer id, all

    def __iter__(self) -> Iterator[TransactionEntry]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, transactional_id: str) -> TransactionEntry | None:
        """The entry of an id, None if there is none."""
        return self._by_id.get(transactional_id)

    def active(self) -> list[TransactionEntry]:
        """The ids with an open or prepared transaction: a copy, so that changes may start meanwhile."""
        return list(self._active.values())

    def add(self, entry: TransactionEntry) -> None:
        """Set the id's entry. Nothing of it needs to be durable yet."""
        self._by_id[entry.id] = entry

    def take_over(self, entry: TransactionEntry, metadata: TransactionMetadata) -> None:
        """Set the durable state of an id."""
        self._retire(entry)
        entry.take_over(metadata)
        self._by_id[entry.id] = entry
        self._holders[metadata.producer_id] = entry
        if metadata.state not in AT_REST:
            self._active[entry.id] = self._owners[metadata.producer_id] = entry

    def forget(self, entry: TransactionEntry) -> None:
        """Remove an id. A request that still waits for the entry finds it empty."""
        self._retire(entry)
        entry.metadata = None
        if self._by_id.get(entry.id) is entry:
            del self._by_id[entry.id]

    def _retire(self, entry: TransactionEntry) -> None:
        known = entry.metadata
        if known is None:
            return
        self._holders.pop(known.producer_id, None)
        if self._active.pop(entry.id, None) is not None:
            self._owners.pop(known.producer_id, None)

    def epoch_of(self, producer_id: int) -> int | None:
        """The newest epoch of a producer id; None if it belongs to no transactional id."""
        entry = self._holders.get(producer_id)
        return None if entry is None or entry.metadata is None else entry.metadata.producer_epoch

    def owner_of(self, producer_id: int, place: tuple[str, int]) -> str | None:
        """The id whose open or prepared transaction this producer has on the (topic, partition)."""
        entry = self._owners.get(producer_id)
        if entry is None or entry.metadata is None or place not in entry.metadata.partitions:
            return None
        return entry.id
