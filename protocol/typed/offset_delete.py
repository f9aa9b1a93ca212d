"""The types of `messages/offset_delete.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class OffsetDeleteRequestPartition(TypedDict):
    partition_index: int


class OffsetDeleteRequestTopic(TypedDict):
    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(TypedDict):
    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteRequestPartitionDraft(TypedDict, total=False):
    partition_index: int


class OffsetDeleteRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteRequestPartitionDraft]


class OffsetDeleteRequestDraft(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetDeleteRequestTopicDraft]


class OffsetDeleteResponsePartition(TypedDict):
    partition_index: int
    error_code: int


class OffsetDeleteResponseTopic(TypedDict):
    name: str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(TypedDict):
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int


class OffsetDeleteResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetDeleteResponsePartitionDraft]


class OffsetDeleteResponseDraft(TypedDict, total=False):
    error_code: int
    throttle_time_ms: int
    topics: Sequence[OffsetDeleteResponseTopicDraft]
