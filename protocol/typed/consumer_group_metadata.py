"""The types of `messages/consumer_group_metadata.py`, made of it by `make typed`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from eoslog.protocol.primitives import Buffer


class ConsumerGroupMetadataKey(TypedDict):
    group_id: str


class ConsumerGroupMetadataKeyDraft(TypedDict, total=False):
    group_id: str


class ConsumerGroupMetadataValue(TypedDict):
    epoch: int
    metadata_hash: int


class ConsumerGroupMetadataValueDraft(TypedDict, total=False):
    epoch: int
    metadata_hash: int


class ConsumerGroupPartitionMetadataKey(TypedDict):
    group_id: str


class ConsumerGroupPartitionMetadataKeyDraft(TypedDict, total=False):
    group_id: str


class ConsumerGroupPartitionMetadataValuePartitionMetadata(TypedDict):
    partition: int
    racks: list[str]


class ConsumerGroupPartitionMetadataValueTopic(TypedDict):
    topic_id: bytes
    topic_name: str
    num_partitions: int
    partition_metadata: list[ConsumerGroupPartitionMetadataValuePartitionMetadata]


class ConsumerGroupPartitionMetadataValue(TypedDict):
    topics: list[ConsumerGroupPartitionMetadataValueTopic]


class ConsumerGroupPartitionMetadataValuePartitionMetadataDraft(TypedDict, total=False):
    partition: int
    racks: Sequence[str]


class ConsumerGroupPartitionMetadataValueTopicDraft(TypedDict, total=False):
    topic_id: bytes
    topic_name: str
    num_partitions: int
    partition_metadata: Sequence[ConsumerGroupPartitionMetadataValuePartitionMetadataDraft]


class ConsumerGroupPartitionMetadataValueDraft(TypedDict, total=False):
    topics: Sequence[ConsumerGroupPartitionMetadataValueTopicDraft]


class ConsumerGroupMemberMetadataKey(TypedDict):
    group_id: str
    member_id: str


class ConsumerGroupMemberMetadataKeyDraft(TypedDict, total=False):
    group_id: str
    member_id: str


class ConsumerGroupMemberMetadataValueSupportedProtocol(TypedDict):
    name: str
    metadata: bytes


class ConsumerGroupMemberMetadataValueClassicMemberMetadata(TypedDict):
    session_timeout_ms: int
    supported_protocols: list[ConsumerGroupMemberMetadataValueSupportedProtocol]


class ConsumerGroupMemberMetadataValue(TypedDict):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadata | None


class ConsumerGroupMemberMetadataValueSupportedProtocolDraft(TypedDict, total=False):
    name: str
    metadata: Buffer


class ConsumerGroupMemberMetadataValueClassicMemberMetadataDraft(TypedDict, total=False):
    session_timeout_ms: int
    supported_protocols: Sequence[ConsumerGroupMemberMetadataValueSupportedProtocolDraft]


class ConsumerGroupMemberMetadataValueDraft(TypedDict, total=False):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: Sequence[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValueClassicMemberMetadataDraft | None


class ConsumerGroupTargetAssignmentMetadataKey(TypedDict):
    group_id: str


class ConsumerGroupTargetAssignmentMetadataKeyDraft(TypedDict, total=False):
    group_id: str


class ConsumerGroupTargetAssignmentMetadataValue(TypedDict):
    assignment_epoch: int
    assignment_timestamp: int


class ConsumerGroupTargetAssignmentMetadataValueDraft(TypedDict, total=False):
    assignment_epoch: int
    assignment_timestamp: int


class ConsumerGroupTargetAssignmentMemberKey(TypedDict):
    group_id: str
    member_id: str


class ConsumerGroupTargetAssignmentMemberKeyDraft(TypedDict, total=False):
    group_id: str
    member_id: str


class ConsumerGroupTargetAssignmentMemberValueTopicPartition(TypedDict):
    topic_id: bytes
    partitions: list[int]


class ConsumerGroupTargetAssignmentMemberValue(TypedDict):
    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValueTopicPartition]


class ConsumerGroupTargetAssignmentMemberValueTopicPartitionDraft(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]


class ConsumerGroupTargetAssignmentMemberValueDraft(TypedDict, total=False):
    topic_partitions: Sequence[ConsumerGroupTargetAssignmentMemberValueTopicPartitionDraft]


class ConsumerGroupCurrentMemberAssignmentKey(TypedDict):
    group_id: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentKeyDraft(TypedDict, total=False):
    group_id: str
    member_id: str


class ConsumerGroupCurrentMemberAssignmentValueAssignedPartition(TypedDict):
    topic_id: bytes
    partitions: list[int]
    assignment_epochs: list[int] | None


class ConsumerGroupCurrentMemberAssignmentValuePartitionsPendingRevocation(TypedDict):
    topic_id: bytes
    partitions: list[int]
    assignment_epochs: list[int] | None


class ConsumerGroupCurrentMemberAssignmentValue(TypedDict):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValueAssignedPartition]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValuePartitionsPendingRevocation]


class ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDraft(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]
    assignment_epochs: Sequence[int] | None


class ConsumerGroupCurrentMemberAssignmentValuePartitionsPendingRevocationDraft(TypedDict, total=False):
    topic_id: bytes
    partitions: Sequence[int]
    assignment_epochs: Sequence[int] | None


class ConsumerGroupCurrentMemberAssignmentValueDraft(TypedDict, total=False):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: Sequence[ConsumerGroupCurrentMemberAssignmentValueAssignedPartitionDraft]
    partitions_pending_revocation: Sequence[
        ConsumerGroupCurrentMemberAssignmentValuePartitionsPendingRevocationDraft
    ]


class ConsumerGroupRegularExpressionKey(TypedDict):
    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionKeyDraft(TypedDict, total=False):
    group_id: str
    regular_expression: str


class ConsumerGroupRegularExpressionValue(TypedDict):
    topics: list[str]
    version: int
    timestamp: int


class ConsumerGroupRegularExpressionValueDraft(TypedDict, total=False):
    topics: Sequence[str]
    version: int
    timestamp: int
