"""The types of `messages/txn_offset_commit.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class TxnOffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TxnOffsetCommitRequestTopic(TypedDict):
    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequest(TypedDict):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestPartitionDraft(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TxnOffsetCommitRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitRequestPartitionDraft]


class TxnOffsetCommitRequestDraft(TypedDict, total=False):
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: Sequence[TxnOffsetCommitRequestTopicDraft]


class TxnOffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class TxnOffsetCommitResponseTopic(TypedDict):
    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponse(TypedDict):
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int


class TxnOffsetCommitResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[TxnOffsetCommitResponsePartitionDraft]


class TxnOffsetCommitResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[TxnOffsetCommitResponseTopicDraft]
