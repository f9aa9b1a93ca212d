"""The types of `messages/alter_partition_reassignments.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class AlterPartitionReassignmentsRequestPartition(TypedDict):
    partition_index: int
    replicas: list[int] | None


class AlterPartitionReassignmentsRequestTopic(TypedDict):
    name: str
    partitions: list[AlterPartitionReassignmentsRequestPartition]


class AlterPartitionReassignmentsRequest(TypedDict):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequestTopic]


class AlterPartitionReassignmentsRequestPartitionDraft(TypedDict, total=False):
    partition_index: int
    replicas: Sequence[int] | None


class AlterPartitionReassignmentsRequestTopicDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsRequestPartitionDraft]


class AlterPartitionReassignmentsRequestDraft(TypedDict, total=False):
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: Sequence[AlterPartitionReassignmentsRequestTopicDraft]


class AlterPartitionReassignmentsResponsePartition(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterPartitionReassignmentsResponseResponse(TypedDict):
    name: str
    partitions: list[AlterPartitionReassignmentsResponsePartition]


class AlterPartitionReassignmentsResponse(TypedDict):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponseResponse]


class AlterPartitionReassignmentsResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None


class AlterPartitionReassignmentsResponseResponseDraft(TypedDict, total=False):
    name: str
    partitions: Sequence[AlterPartitionReassignmentsResponsePartitionDraft]


class AlterPartitionReassignmentsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: Sequence[AlterPartitionReassignmentsResponseResponseDraft]
