"""Reads and writes `__transaction_state`: chooses the partition, appends, replays."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.transactions import transaction_records
from eoslog.broker.coordinator.transactions.transaction_state import TransactionMetadata
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.internal_topics.coordinator_records import partition_of
from eoslog.protocol.plain_records import Record, encode_records, iter_records
from eoslog.protocol.schema import ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports.ports import Clock
    from eoslog.broker.topics.topics import Topics

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
        return self._append(name, [transaction_records.encode(metadata)], what)

    def append_forgotten(self, transactional_ids: Sequence[str]) -> tuple[Partition, int]:
        """Append the records of expired ids, which are one group of `together`. Otherwise as `append`."""
        records = [transaction_records.encode_forgotten(name) for name in transactional_ids]
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
        self, transactional_id: str, records: Sequence[tuple[bytes, bytes | None]], what: str
    ) -> tuple[Partition, int]:
        now_ms = self._clock.now_ms()
        try:
            partitions = self._topics.internal(TOPIC)
            partition = partitions[partition_of(transactional_id, len(partitions))]
            batch = encode_records(records, now_ms)
            return partition, partition.append(batch, now_ms=now_ms, coordinator=True).last_offset
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
                decoded = transaction_records.decode(record)
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
