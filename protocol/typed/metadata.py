"""The types of `messages/metadata.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class MetadataRequestTopic(TypedDict):
    topic_id: bytes
    name: str | None


class MetadataRequest(TypedDict):
    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataRequestTopicDraft(TypedDict, total=False):
    topic_id: bytes
    name: str | None


class MetadataRequestDraft(TypedDict, total=False):
    topics: Sequence[MetadataRequestTopicDraft] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataResponseBroker(TypedDict):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponsePartition(TypedDict):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]


class MetadataResponseTopic(TypedDict):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int


class MetadataResponse(TypedDict):
    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int


class MetadataResponseBrokerDraft(TypedDict, total=False):
    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponsePartitionDraft(TypedDict, total=False):
    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: Sequence[int]
    isr_nodes: Sequence[int]
    offline_replicas: Sequence[int]


class MetadataResponseTopicDraft(TypedDict, total=False):
    error_code: int
    name: str | None
    topic_id: bytes
    is_internal: bool
    partitions: Sequence[MetadataResponsePartitionDraft]
    topic_authorized_operations: int


class MetadataResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    brokers: Sequence[MetadataResponseBrokerDraft]
    cluster_id: str | None
    controller_id: int
    topics: Sequence[MetadataResponseTopicDraft]
    cluster_authorized_operations: int
    error_code: int
