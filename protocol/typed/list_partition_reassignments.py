"""The types of `messages/list_partition_reassignments.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ListPartitionReassignmentsRequestTopic(TypedDict):
    name: str
    partition_indexes: list[int]


class ListPartitionReassignmentsRequest(TypedDict):
    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequestTopic] | None


class ListPartitionReassignmentsRequestTopicDraft(TypedDict, total=False):
    name: str
    partition_indexes: Sequence[int]


class ListPartitionReassignmentsRequestDraft(TypedDict, total=False):
    timeout_ms: int
    topics: Sequence[ListPartitionReassignmentsRequestTopicDraft] | None


class ListPartitionReassignmentsResponsePartition(TypedDict):
    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]


class ListPartitionReassignmentsResponseTopic(TypedDict):
    name: str
    partitions: list[ListPartitionReassignmentsResponsePartition]


class ListPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponseTopic]


class ListPartitionReassignmentsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int]
    adding_replicas: Sequence[int]
    removing_replicas: Sequence[int]


class ListPartitionReassignmentsResponseTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[ListPartitionReassignmentsResponsePartitionDraft]


class ListPartitionReassignmentsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: Sequence[ListPartitionReassignmentsResponseTopicDraft]
