"""The types of `messages/add_offsets_to_txn.py`, made of it by `make typed`."""

from __future__ import annotations

from typing import TypedDict


class AddOffsetsToTxnRequest(TypedDict):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnRequestDraft(TypedDict, total=False):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(TypedDict):
    throttle_time_ms: int
    error_code: int


class AddOffsetsToTxnResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
