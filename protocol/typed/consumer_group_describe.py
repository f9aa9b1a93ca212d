"""The types of `messages/consumer_group_describe.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class ConsumerGroupDescribeRequest(TypedDict):
    group_ids: list[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeRequestDraft(TypedDict, total=False):
    group_ids: Sequence[str]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponseTopicPartition(TypedDict):
    topic_id: bytes
    topic_name: str
    partitions: list[int]


class ConsumerGroupDescribeResponseAssignment(TypedDict):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupDescribeResponseTargetAssignment(TypedDict):
    topic_partitions: list[ConsumerGroupDescribeResponseTopicPartition]


class ConsumerGroupDescribeResponseMember(TypedDict):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignment
    target_assignment: ConsumerGroupDescribeResponseTargetAssignment
    member_type: int


class ConsumerGroupDescribeResponseGroup(TypedDict):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[ConsumerGroupDescribeResponseMember]
    authorized_operations: int


class ConsumerGroupDescribeResponse(TypedDict):
    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponseGroup]


class ConsumerGroupDescribeResponseTopicPartitionDraft(TypedDict, total=False):
    topic_id: bytes
    topic_name: str
    partitions: Sequence[int]


class ConsumerGroupDescribeResponseAssignmentDraft(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartitionDraft]


class ConsumerGroupDescribeResponseTargetAssignmentDraft(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupDescribeResponseTopicPartitionDraft]


class ConsumerGroupDescribeResponseMemberDraft(TypedDict, total=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    assignment: ConsumerGroupDescribeResponseAssignmentDraft
    target_assignment: ConsumerGroupDescribeResponseTargetAssignmentDraft
    member_type: int


class ConsumerGroupDescribeResponseGroupDraft(TypedDict, total=False):
    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: Sequence[ConsumerGroupDescribeResponseMemberDraft]
    authorized_operations: int


class ConsumerGroupDescribeResponseDraft(TypedDict, total=False):
    throttle_time_ms: int
    groups: Sequence[ConsumerGroupDescribeResponseGroupDraft]
