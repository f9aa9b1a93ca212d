"""The types of `messages/consumer_group_heartbeat.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ConsumerGroupHeartbeatRequestTopicPartition(TypedDict):
    topic_id: bytes
    partitions: list[int]


class ConsumerGroupHeartbeatRequest(TypedDict):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartition] | None


class ConsumerGroupHeartbeatRequestTopicPartitionDraft(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]


class ConsumerGroupHeartbeatRequestDraft(TypedDict, total=False):
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: Sequence[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: Sequence[ConsumerGroupHeartbeatRequestTopicPartitionDraft] | None


class ConsumerGroupHeartbeatResponseTopicPartition(TypedDict):
    topic_id: bytes
    partitions: list[int]


class ConsumerGroupHeartbeatResponseAssignment(TypedDict):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartition]


class ConsumerGroupHeartbeatResponse(TypedDict):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignment | None


class ConsumerGroupHeartbeatResponseTopicPartitionDraft(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]


class ConsumerGroupHeartbeatResponseAssignmentDraft(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupHeartbeatResponseTopicPartitionDraft]


class ConsumerGroupHeartbeatResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponseAssignmentDraft | None
