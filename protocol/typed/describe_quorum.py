"""The types of `messages/describe_quorum.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class DescribeQuorumRequestPartition(TypedDict):
    partition_index: int


class DescribeQuorumRequestTopic(TypedDict):
    topic_name: str
    partitions: list[DescribeQuorumRequestPartition]


class DescribeQuorumRequest(TypedDict):
    topics: list[DescribeQuorumRequestTopic]


class DescribeQuorumRequestPartitionDraft(TypedDict, total=False):
    partition_index: int


class DescribeQuorumRequestTopicDraft(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumRequestPartitionDraft]


class DescribeQuorumRequestDraft(TypedDict, total=False):
    topics: Sequence[DescribeQuorumRequestTopicDraft]


class DescribeQuorumResponseCurrentVoter(TypedDict):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponseObserver(TypedDict):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponsePartition(TypedDict):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: list[DescribeQuorumResponseCurrentVoter]
    observers: list[DescribeQuorumResponseObserver]


class DescribeQuorumResponseTopic(TypedDict):
    topic_name: str
    partitions: list[DescribeQuorumResponsePartition]


class DescribeQuorumResponseListener(TypedDict):
    name: str
    host: str
    port: int


class DescribeQuorumResponseNode(TypedDict):
    node_id: int
    listeners: list[DescribeQuorumResponseListener]


class DescribeQuorumResponse(TypedDict):
    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumResponseTopic]
    nodes: list[DescribeQuorumResponseNode]


class DescribeQuorumResponseCurrentVoterDraft(TypedDict, total=False):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponseObserverDraft(TypedDict, total=False):
    replica_id: int
    replica_directory_id: bytes
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class DescribeQuorumResponsePartitionDraft(TypedDict, total=False):
    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: Sequence[DescribeQuorumResponseCurrentVoterDraft]
    observers: Sequence[DescribeQuorumResponseObserverDraft]


class DescribeQuorumResponseTopicDraft(TypedDict, total=False):
    topic_name: str
    partitions: Sequence[DescribeQuorumResponsePartitionDraft]


class DescribeQuorumResponseListenerDraft(TypedDict, total=False):
    name: str
    host: str
    port: int


class DescribeQuorumResponseNodeDraft(TypedDict, total=False):
    node_id: int
    listeners: Sequence[DescribeQuorumResponseListenerDraft]


class DescribeQuorumResponseDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    topics: Sequence[DescribeQuorumResponseTopicDraft]
    nodes: Sequence[DescribeQuorumResponseNodeDraft]
