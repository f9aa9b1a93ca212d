"""Records of `__transaction_state`, as Kafka writes them at transaction.version 2.

Key version 0, value version 1 with tagged fields (KIP-890). Transactions of TV1 clients are recorded in the
same version, with client transaction version 0. Values of version 0, from older brokers, are read as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.coordinator.transactions.transaction_state import (
    NEVER_PERSISTED,
    TransactionMetadata,
    TransactionState,
    remembered_epoch,
)
from eoslog.protocol.internal_topics import coordinator_records
from eoslog.protocol.messages.transactions import TRANSACTION_KEY, TRANSACTION_VALUE
from eoslog.protocol.plain_records import Record
from eoslog.protocol.schema import ProtocolError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        TransactionLogKeyDraft,
        TransactionLogValue,
        TransactionLogValueDraft,
        TransactionLogValueTransactionPartitionDraft,
    )


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
