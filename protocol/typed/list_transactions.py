"""The types of `messages/list_transactions.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ListTransactionsRequest(TypedDict):
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None


class ListTransactionsRequestDraft(TypedDict, total=False):
    state_filters: Sequence[str]
    producer_id_filters: Sequence[int]
    duration_filter: int
    transactional_id_pattern: str | None


class ListTransactionsResponseTransactionState(TypedDict):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponseTransactionState]


class ListTransactionsResponseTransactionStateDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListTransactionsResponseTransactionStateDraft]
