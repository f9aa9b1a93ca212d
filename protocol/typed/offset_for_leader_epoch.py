"""The types of `messages/offset_for_leader_epoch.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class OffsetForLeaderEpochRequestPartition(TypedDict):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochRequestTopic(TypedDict):
    topic: str
    partitions: list[OffsetForLeaderEpochRequestPartition]


class OffsetForLeaderEpochRequest(TypedDict):
    replica_id: int
    topics: list[OffsetForLeaderEpochRequestTopic]


class OffsetForLeaderEpochRequestPartitionDraft(TypedDict, total=False):
    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochRequestTopicDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochRequestPartitionDraft]


class OffsetForLeaderEpochRequestDraft(TypedDict, total=False):
    replica_id: int
    topics: Sequence[OffsetForLeaderEpochRequestTopicDraft]


class OffsetForLeaderEpochResponsePartition(TypedDict):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


class OffsetForLeaderEpochResponseTopic(TypedDict):
    topic: str
    partitions: list[OffsetForLeaderEpochResponsePartition]


class OffsetForLeaderEpochResponse(TypedDict):
    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponseTopic]


class OffsetForLeaderEpochResponsePartitionDraft(TypedDict, total=False):
    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int


class OffsetForLeaderEpochResponseTopicDraft(TypedDict, total=False):
    topic: str
    partitions: Sequence[OffsetForLeaderEpochResponsePartitionDraft]


class OffsetForLeaderEpochResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetForLeaderEpochResponseTopicDraft]
