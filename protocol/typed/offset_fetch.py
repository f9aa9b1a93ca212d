"""The types of `messages/offset_fetch.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class OffsetFetchRequestTopic(TypedDict):
    name: str
    partition_indexes: list[int]


class OffsetFetchRequestGroupTopic(TypedDict):
    name: str
    topic_id: bytes
    partition_indexes: list[int]


class OffsetFetchRequestGroup(TypedDict):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestGroupTopic] | None


class OffsetFetchRequest(TypedDict):
    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool


class OffsetFetchRequestTopicDraft(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class OffsetFetchRequestGroupTopicDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partition_indexes: Sequence[int]


class OffsetFetchRequestGroupDraft(TypedDict, total=False):
    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[OffsetFetchRequestGroupTopicDraft] | None


class OffsetFetchRequestDraft(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchRequestTopicDraft] | None
    groups: Sequence[OffsetFetchRequestGroupDraft]
    require_stable: bool


class OffsetFetchResponseTopicPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseTopic(TypedDict):
    name: str
    partitions: list[OffsetFetchResponseTopicPartition]


class OffsetFetchResponseGroupTopicPartition(TypedDict):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseGroupTopic(TypedDict):
    name: str
    topic_id: bytes
    partitions: list[OffsetFetchResponseGroupTopicPartition]


class OffsetFetchResponseGroup(TypedDict):
    group_id: str
    topics: list[OffsetFetchResponseGroupTopic]
    error_code: int


class OffsetFetchResponse(TypedDict):
    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]


class OffsetFetchResponseTopicPartitionDraft(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[OffsetFetchResponseTopicPartitionDraft]


class OffsetFetchResponseGroupTopicPartitionDraft(TypedDict, total=False):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseGroupTopicDraft(TypedDict, total=False):
    name: str
    topic_id: bytes
    partitions: Sequence[OffsetFetchResponseGroupTopicPartitionDraft]


class OffsetFetchResponseGroupDraft(TypedDict, total=False):
    group_id: str
    topics: Sequence[OffsetFetchResponseGroupTopicDraft]
    error_code: int


class OffsetFetchResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[OffsetFetchResponseTopicDraft]
    error_code: int
    groups: Sequence[OffsetFetchResponseGroupDraft]
