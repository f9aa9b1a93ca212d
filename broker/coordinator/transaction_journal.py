"""The transaction coordinator's way to `__transaction_state`: which partition, append, wait, replay."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from eoslog.broker.coordinator import transaction_records
from eoslog.broker.rules.partition_of import partition_of
from eoslog.broker.rules.transaction_state import Metadata
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.plain_records import encode_records, iter_records
from eoslog.protocol.schema import ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock
    from eoslog.broker.topics import Topics

TOPIC = "__transaction_state"

_log = logging.getLogger(__name__)


class DamagedTransactionLog(Exception):
    """A record of `__transaction_state` cannot be understood; the text says which and why."""


class TransactionJournal:
    """Reads and writes `__transaction_state`, which is made at its first use."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def append(self, metadata: Metadata) -> tuple[Partition, int]:
        """Append the record that says `metadata`: the partition and the offset to wait for.

        Raises KafkaError COORDINATOR_NOT_AVAILABLE with nothing written.
        """
        key, value = transaction_records.encode(metadata)
        now_ms = self._clock.now_ms()
        try:
            partitions = self._topics.internal(TOPIC)
            partition = partitions[partition_of(metadata.transactional_id, len(partitions))]
            batch = encode_records([(key, value)], now_ms)
            return partition, partition.append(batch, now_ms=now_ms, coordinator=True).last_offset
        except KafkaError as error:
            what = f"{metadata.state.text} of {metadata.transactional_id} cannot be recorded"
            _log.error("%s: %s", what, error)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{what}: {error}") from error

    def replay(self) -> Iterator[tuple[str, Metadata | None]]:
        """Every record in order: a transactional id and what it became, None if it expired.

        Raises DamagedTransactionLog, and KafkaError where a partition cannot be read.
        """
        existing = [] if self._topics.get(TOPIC) is None else self._topics.internal(TOPIC)
        for partition in existing:
            for header, data in partition.scan():
                if header.is_control:
                    continue
                try:
                    for record in iter_records(data, 0, header):
                        decoded = transaction_records.decode(record)
                        if decoded is not None:
                            yield decoded
                        else:
                            text = "%s-%d offset %d: a record of a kind not known here is left alone"
                            _log.warning(text, TOPIC, partition.index, record.offset)
                except (ProtocolError, CorruptBatch) as error:
                    where = f"{TOPIC}-{partition.index}, batch of offset {header.base_offset}"
                    text = f"{where}: {error}; restore the partition from a copy"
                    raise DamagedTransactionLog(text) from error
