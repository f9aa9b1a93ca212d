"""The types of `messages/list_offsets.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ListOffsetsRequestPartition(TypedDict):
    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsRequestTopic(TypedDict):
    name: str
    partitions: list[ListOffsetsRequestPartition]


class ListOffsetsRequest(TypedDict):
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequestTopic]
    timeout_ms: int


class ListOffsetsRequestPartitionDraft(TypedDict, total=False):
    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsRequestPartitionDraft]


class ListOffsetsRequestDraft(TypedDict, total=False):
    replica_id: int
    isolation_level: int
    topics: Sequence[ListOffsetsRequestTopicDraft]
    timeout_ms: int


class ListOffsetsResponsePartition(TypedDict):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsResponseTopic(TypedDict):
    name: str
    partitions: list[ListOffsetsResponsePartition]


class ListOffsetsResponse(TypedDict):
    throttle_time_ms: int
    topics: list[ListOffsetsResponseTopic]


class ListOffsetsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int


class ListOffsetsResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[ListOffsetsResponsePartitionDraft]


class ListOffsetsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[ListOffsetsResponseTopicDraft]
