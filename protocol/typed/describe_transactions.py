"""The types of `messages/describe_transactions.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeTransactionsRequest(TypedDict):
    transactional_ids: list[str]


class DescribeTransactionsRequestDraft(TypedDict, total=False):
    transactional_ids: Sequence[str]


class DescribeTransactionsResponseTopic(TypedDict):
    topic: str
    partitions: list[int]


class DescribeTransactionsResponseTransactionState(TypedDict):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: list[DescribeTransactionsResponseTopic]


class DescribeTransactionsResponse(TypedDict):
    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponseTransactionState]


class DescribeTransactionsResponseTopicDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[int]


class DescribeTransactionsResponseTransactionStateDraft(TypedDict, total=False):
    error_code: int
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[DescribeTransactionsResponseTopicDraft]


class DescribeTransactionsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    transaction_states: Sequence[DescribeTransactionsResponseTransactionStateDraft]
