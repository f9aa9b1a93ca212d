"""The types of `messages/offset_commit.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class OffsetCommitRequestPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetCommitRequestTopic(TypedDict):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(TypedDict):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRequestPartitionDraft(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetCommitRequestTopicDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partitions: Sequence[OffsetCommitRequestPartitionDraft]


class OffsetCommitRequestDraft(TypedDict, total=False):
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[OffsetCommitRequestTopicDraft]


class OffsetCommitResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class OffsetCommitResponseTopic(TypedDict):
    name: str
    topic_id: bytes
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(TypedDict):
    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetCommitResponseTopicDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partitions: Sequence[OffsetCommitResponsePartitionDraft]


class OffsetCommitResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetCommitResponseTopicDraft]
