"""The types of `messages/end_txn.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class EndTxnRequestTogether(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class EndTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    together: list[EndTxnRequestTogether]


class EndTxnRequestTogetherDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int


class EndTxnRequestDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    together: Sequence[EndTxnRequestTogetherDraft]


class EndTxnResponseTogether(TypedDict):
    transactional_id: str
    error_code: int
    producer_id: int
    producer_epoch: int


class EndTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    together: list[EndTxnResponseTogether]


class EndTxnResponseTogetherDraft(TypedDict, total=False):
    transactional_id: str
    error_code: int
    producer_id: int
    producer_epoch: int


class EndTxnResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    together: Sequence[EndTxnResponseTogetherDraft]
