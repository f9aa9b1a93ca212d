"""The types of `messages/init_producer_id.py`, made of it by `make typed`."""

from __future__ import annotations

from typing import TypedDict


class InitProducerIdRequest(TypedDict):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool


class InitProducerIdRequestDraft(TypedDict, total=False):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool


class InitProducerIdResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int


class InitProducerIdResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
