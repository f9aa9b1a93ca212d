"""The types of `messages/describe_topic_partitions.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeTopicPartitionsRequestTopic(TypedDict):
    name: str


class DescribeTopicPartitionsRequestCursor(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequest(TypedDict):
    topics: list[DescribeTopicPartitionsRequestTopic]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursor | None


class DescribeTopicPartitionsRequestTopicDraft(TypedDict, total=False):
    name: str


class DescribeTopicPartitionsRequestCursorDraft(TypedDict, total=False):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsRequestDraft(TypedDict, total=False):
    topics: Sequence[DescribeTopicPartitionsRequestTopicDraft]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequestCursorDraft | None


class DescribeTopicPartitionsResponsePartition(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    offline_replicas: list[int]


class DescribeTopicPartitionsResponseTopic(TypedDict):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponseNextCursor(TypedDict):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(TypedDict):
    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponseNextCursor | None


class DescribeTopicPartitionsResponsePartitionDraft(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    eligible_leader_replicas: Sequence[int] | None
    last_known_elr: Sequence[int] | None
    offline_replicas: Sequence[int]


class DescribeTopicPartitionsResponseTopicDraft(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[DescribeTopicPartitionsResponsePartitionDraft]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponseNextCursorDraft(TypedDict, total=False):
    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    topics: Sequence[DescribeTopicPartitionsResponseTopicDraft]
    next_cursor: DescribeTopicPartitionsResponseNextCursorDraft | None
