"""The journal of transactions: the records of `__transaction_state`, and what they say of each id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eoslog.broker.coordinator.transactions.transaction_state import (
    AT_REST,
    ENDED,
    NEVER_PERSISTED,
    PREPARED,
    TransactionMetadata,
    TransactionState,
    remembered_epoch,
)
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.messages.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from eoslog.protocol.plain_records import Record, encode_records, iter_records
from eoslog.protocol.producer_identity import ProducerIdentity
from eoslog.protocol.schema import ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics.topics import Topics
    from eoslog.protocol.typed import (
        TransactionLogKeyDraft,
        TransactionLogValue,
        TransactionLogValueDraft,
        TransactionLogValueTransactionPartitionDraft,
    )

# -- transaction records ---------------------------------------------------------------------------
# Records of `__transaction_state`, as Kafka writes them at transaction.version 2.
#
# Key version 0, value version 1 with tagged fields (KIP-890). Transactions of TV1 clients are recorded in the
# same version, with client transaction version 0. Values of version 0, from older brokers, are read as well.


KEY_VERSION = 0
VALUE_VERSION = 1


def encode(metadata: TransactionMetadata) -> tuple[bytes, bytes]:
    """Key and value of the record of `metadata`. Raises ValueError for a state that is never persisted."""
    if metadata.state in NEVER_PERSISTED:
        raise ValueError(f"{metadata.transactional_id}: {metadata.state.text} is never persisted")
    value: TransactionLogValueDraft = {
        "producer_id": metadata.producer_id,
        "previous_producer_id": metadata.previous_producer_id,
        "next_producer_id": metadata.next_producer_id,
        "next_producer_epoch": metadata.next_producer_epoch,
        "producer_epoch": metadata.producer_epoch,
        "transaction_timeout_ms": metadata.timeout_ms,
        "transaction_status": int(metadata.state),
        "transaction_partitions": None if metadata.state is TransactionState.EMPTY else _by_topic(metadata),
        "transaction_last_update_timestamp_ms": metadata.last_update_ms,
        "transaction_start_timestamp_ms": metadata.start_ms,
        "client_transaction_version": metadata.client_version,
        "together": [
            {"transactional_id": name, "producer_id": producer_id, "producer_epoch": epoch}
            for name, producer_id, epoch in metadata.together
        ],
    }
    encoded = coordinator_records.encode(TRANSACTION_VALUE, VALUE_VERSION, value)
    return _key(metadata.transactional_id), encoded


def encode_forgotten(transactional_id: str) -> tuple[bytes, None]:
    """Key and value of the record of an id that has expired."""
    return _key(transactional_id), None


def _key(transactional_id: str) -> bytes:
    key: TransactionLogKeyDraft = {"transactional_id": transactional_id}
    return coordinator_records.encode(TRANSACTION_KEY, KEY_VERSION, key)


def decode(record: Record) -> tuple[str, TransactionMetadata | None] | None:
    """The transactional id and its state, None if it has expired; None for another kind of record.

    Raises ProtocolError for a record that cannot be decoded.
    """
    if record.key is None:
        raise ProtocolError("a record without a key")
    if coordinator_records.key_version(record.key) != KEY_VERSION:
        return None
    _, key = coordinator_records.decode(TRANSACTION_KEY, record.key)
    transactional_id = key["transactional_id"]
    if record.value is None:
        return transactional_id, None
    _, value = coordinator_records.decode(TRANSACTION_VALUE, record.value)
    return transactional_id, _metadata(transactional_id, value)


def _metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = TransactionState(value["transaction_status"])
    except ValueError as error:
        raise ProtocolError(f"{transactional_id}: transaction status {error}") from error
    if state in NEVER_PERSISTED:
        raise ProtocolError(f"{transactional_id}: {state.text} is never written to the log")
    epoch, next_epoch = value["producer_epoch"], value["next_producer_epoch"]
    version = value["client_transaction_version"]
    return TransactionMetadata(
        transactional_id,
        value["producer_id"],
        value["transaction_timeout_ms"],
        value["transaction_last_update_timestamp_ms"],
        producer_epoch=epoch,
        last_epoch=remembered_epoch(state, epoch if next_epoch < 0 else next_epoch, version),
        previous_producer_id=value["previous_producer_id"],
        next_producer_id=value["next_producer_id"],
        next_producer_epoch=next_epoch,
        state=state,
        partitions=frozenset(
            (topic["topic"], index)
            for topic in value["transaction_partitions"] or ()
            for index in topic["partition_ids"]
        ),
        start_ms=value["transaction_start_timestamp_ms"],
        client_version=version,
        together=tuple(
            (one["transactional_id"], one["producer_id"], one["producer_epoch"]) for one in value["together"]
        ),
    )


def _by_topic(metadata: TransactionMetadata) -> list[TransactionLogValueTransactionPartitionDraft]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(index)
    return [{"topic": topic, "partition_ids": indexes} for topic, indexes in topics.items()]


# -- transaction entries ---------------------------------------------------------------------------
# The transactional ids of the broker in memory: durable states, running changes, unfinished transactions.
#
# Frequent look-ups (time-outs, the owner of a producer id) look only at the ids with an open or prepared
# transaction: there may be many thousands of ids at rest.


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


# -- transaction journal ---------------------------------------------------------------------------
# Reads and writes `__transaction_state`: chooses the partition, appends, replays.


TOPIC = "__transaction_state"

_BATCH_BYTES = 256 * 1024
_RECORD_OVERHEAD = 32

logger = logging.getLogger(__name__)


class DamagedTransactionLog(Exception):
    """A record of `__transaction_state` cannot be decoded; the text says which and why."""


class TransactionJournal:
    """Reads and writes `__transaction_state`, which is created at its first use."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def append(self, metadata: TransactionMetadata) -> tuple[Partition, int]:
        """Append the record of `metadata`. Returns the partition and the offset to wait for.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE; then nothing was written.
        """
        name, what = metadata.transactional_id, f"{metadata.state.text} of {metadata.transactional_id}"
        return self._append(name, [encode(metadata)], what, urgent=metadata.state in ENDED)

    def append_forgotten(self, transactional_ids: Sequence[str]) -> tuple[Partition, int]:
        """Append the records of expired ids, which are one group of `together`. Otherwise as `append`."""
        records = [encode_forgotten(name) for name in transactional_ids]
        return self._append(transactional_ids[0], records, f"the expiry of {len(records)} transactional ids")

    def together(self, transactional_ids: Iterable[str]) -> list[list[str]]:
        """Group the ids so that each group's expiry fits into one batch: same partition, not too many."""
        count = len(self._topics.internal(TOPIC))
        by_partition: dict[int, list[str]] = {}
        for name in transactional_ids:
            by_partition.setdefault(partition_of(name, count), []).append(name)
        groups: list[list[str]] = []
        for names in by_partition.values():
            room = 0
            for name in names:
                room -= len(name.encode()) + _RECORD_OVERHEAD
                if room < 0:
                    groups.append([])
                    room = _BATCH_BYTES
                groups[-1].append(name)
        return groups

    def _append(
        self,
        transactional_id: str,
        records: Sequence[tuple[bytes, bytes | None]],
        what: str,
        *,
        urgent: bool = False,
    ) -> tuple[Partition, int]:
        now_ms = self._clock.now_ms()
        try:
            partitions = self._topics.internal(TOPIC)
            partition = partitions[partition_of(transactional_id, len(partitions))]
            batch = encode_records(records, now_ms)
            appended = partition.append(batch, now_ms=now_ms, coordinator=True, urgent=urgent)
            return partition, appended.last_offset
        except KafkaError as error:
            logger.error("%s cannot be recorded: %s", what, error)
            text = f"{what} cannot be recorded: {error}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text) from error

    def replay(self) -> Iterator[tuple[str, TransactionMetadata | None]]:
        """Each transactional id and its latest state, None if it expired.

        Raises DamagedTransactionLog, and KafkaError if a partition cannot be read.
        """
        for partition in self._existing():
            yield from self.read(partition)

    def _existing(self) -> list[Partition]:
        return [] if self._topics.get(TOPIC) is None else self._topics.internal(TOPIC)

    def keeps(self, partition: Partition, transactional_id: str) -> bool:
        """Whether a transactional id's records are in this partition."""
        return partition_of(transactional_id, len(self._existing())) == partition.index

    def read(self, partition: Partition) -> Iterator[tuple[str, TransactionMetadata | None]]:
        """As `replay`, for one partition."""
        # Only the last record of each key is decoded: a busy id has many records.
        latest: dict[bytes | None, Record] = {}
        for header, data in partition.scan():
            if header.is_control:
                continue
            try:
                for record in iter_records(data, 0, header):
                    latest[record.key] = record
            except CorruptBatch as error:
                raise _damaged(partition, f"batch of offset {header.base_offset}", error) from error
        yield from self._decode(partition, latest.values())

    def _decode(
        self, partition: Partition, records: Iterable[Record]
    ) -> Iterator[tuple[str, TransactionMetadata | None]]:
        for record in records:
            try:
                decoded = decode(record)
            except ProtocolError as error:
                raise _damaged(partition, f"offset {record.offset}", error) from error
            if decoded is not None:
                yield decoded
            else:
                text = "%s-%d offset %d: a record of an unknown kind is ignored"
                logger.warning(text, TOPIC, partition.index, record.offset)


def _damaged(partition: Partition, where: str, error: Exception) -> DamagedTransactionLog:
    text = f"{TOPIC}-{partition.index}, {where}: {error}; restore the partition from a copy"
    return DamagedTransactionLog(text)
