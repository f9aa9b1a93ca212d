"""What is known of transactional ids when the broker starts, or a partition is back: what the log says."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eoslog.broker.coordinator.transactions.transaction_entries import TransactionEntries, TransactionEntry
from eoslog.broker.coordinator.transactions.transaction_journal import TOPIC, TransactionJournal

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.topics.topics import Topics

logger = logging.getLogger(__name__)


def load(entries: TransactionEntries, journal: TransactionJournal, topics: Topics) -> int:
    """Fill `entries` from `__transaction_state`; answers the highest producer id in use, -1 if there is none.

    A producer's transaction that is open on a partition, but that no transactional id knows of,
    is reported: nobody would ever end it. Raises DamagedTransactionLog, KafkaError.
    """
    used = -1
    for transactional_id, metadata in journal.replay():
        if metadata is not None:
            entries.take_over(TransactionEntry(transactional_id), metadata)
            used = max(used, metadata.producer_id, metadata.next_producer_id)
    for partition in topics.all_partitions():
        used = max([used, *(producer.producer_id for producer in partition.producers())])
        _report_orphans(entries, partition)
    return used


def read_again(entries: TransactionEntries, journal: TransactionJournal, partition: Partition) -> None:
    """A partition was offline: its transactional ids, if it keeps any, are what it says now.

    A change on its way has found its own part of the log durable, and knows better. Raises
    DamagedTransactionLog, KafkaError.
    """
    if partition.topic != TOPIC:
        return
    said = dict(journal.read(partition))
    for entry in [entry for entry in entries if journal.keeps(partition, entry.id)]:
        if not entry.busy and said.get(entry.id) is None:
            entries.forget(entry)
    for transactional_id, metadata in said.items():
        entry = entries.get(transactional_id) or TransactionEntry(transactional_id)
        if metadata is not None and not entry.busy:
            entries.take_over(entry, metadata)


def _report_orphans(entries: TransactionEntries, partition: Partition) -> None:
    for producer_id, first in partition.open_transactions():
        if entries.owner_of(producer_id, (partition.topic, partition.index)) is None:
            logger.error(
                "%s-%d: the transaction of producer id %d, open since offset %d, belongs to no "
                "transactional id: readers of committed data stop there. Look at it with "
                "DescribeProducers and end it with WriteTxnMarkers",
                partition.topic, partition.index, producer_id, first,
            )  # fmt: skip
