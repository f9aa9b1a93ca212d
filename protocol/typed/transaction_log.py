"""The types of `messages/transaction_log.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class TransactionLogKey(TypedDict):
    transactional_id: str


class TransactionLogKeyDraft(TypedDict, total=False):
    transactional_id: str


class TransactionLogValueTransactionPartition(TypedDict):
    topic: str
    partition_ids: list[int]


class TransactionLogValueTogether(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionLogValue(TypedDict):
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValueTransactionPartition] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    together: list[TransactionLogValueTogether]


class TransactionLogValueTransactionPartitionDraft(TypedDict, total=False):
    topic: str
    partition_ids: Sequence[int]


class TransactionLogValueTogetherDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionLogValueDraft(TypedDict, total=False):
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: Sequence[TransactionLogValueTransactionPartitionDraft] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    together: Sequence[TransactionLogValueTogetherDraft]
