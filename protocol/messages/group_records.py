"""The records of `__consumer_offsets`: committed offsets, and groups of both protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, BYTES, INT8, INT32, INT64, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentKeyDraft,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupCurrentMemberAssignmentValueDraft,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMemberMetadataKeyDraft,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupMemberMetadataValueDraft,
        ConsumerGroupMetadataKey,
        ConsumerGroupMetadataKeyDraft,
        ConsumerGroupMetadataValue,
        ConsumerGroupMetadataValueDraft,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataKeyDraft,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupPartitionMetadataValueDraft,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionKeyDraft,
        ConsumerGroupRegularExpressionValue,
        ConsumerGroupRegularExpressionValueDraft,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberKeyDraft,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupTargetAssignmentMemberValueDraft,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataKeyDraft,
        ConsumerGroupTargetAssignmentMetadataValue,
        ConsumerGroupTargetAssignmentMetadataValueDraft,
        GroupMetadataKey,
        GroupMetadataKeyDraft,
        GroupMetadataValue,
        GroupMetadataValueDraft,
        OffsetCommitKey,
        OffsetCommitKeyDraft,
        OffsetCommitValue,
        OffsetCommitValueDraft,
    )

# Records of `__consumer_offsets`: committed offsets and the state of groups.
#
# The int16 before a key says its kind: 0 or 1 an offset, 2 a group. Before a value it is the value's version.

OFFSET_COMMIT_KEY: Schema[OffsetCommitKey, OffsetCommitKeyDraft] = Schema(
    "OffsetCommitKey",
    "0-1",
    fields=(
        F("group", STRING),
        F("topic", STRING),
        F("partition", INT32),
    ),
)

OFFSET_COMMIT_VALUE: Schema[OffsetCommitValue, OffsetCommitValueDraft] = Schema(
    "OffsetCommitValue",
    "0-4",
    flexible=4,
    fields=(
        F("offset", INT64),
        F("leader_epoch", INT32, "3+", default=-1, ignorable=True),
        F("metadata", STRING),
        F("commit_timestamp", INT64),
        F("expire_timestamp", INT64, "1", default=-1, ignorable=True),
        F("topic_id", UUID, "4+", tag=0, ignorable=True),
    ),
)

GROUP_METADATA_KEY: Schema[GroupMetadataKey, GroupMetadataKeyDraft] = Schema(
    "GroupMetadataKey", "2", fields=(F("group", STRING),)
)

GROUP_METADATA_VALUE: Schema[GroupMetadataValue, GroupMetadataValueDraft] = Schema(
    "GroupMetadataValue",
    "0-4",
    flexible=4,
    fields=(
        F("protocol_type", STRING),
        F("generation", INT32),
        F("protocol", STRING, nullable=True),
        F("leader", STRING, nullable=True),
        F("current_state_timestamp", INT64, "2+", default=-1, ignorable=True),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, "3+", nullable=True, default=None, ignorable=True),
                F("client_id", STRING),
                F("client_host", STRING),
                F("rebalance_timeout", INT32, "1+", default=-1, ignorable=True),
                F("session_timeout", INT32),
                F("subscription", BYTES),
                F("assignment", BYTES),
            ),
        ),
    ),
)

# Records of `__consumer_offsets` that keep consumer groups (KIP-848).
#
# The int16 before a key says its kind: 3 to 8 and 16 here. Before a value it is the value's version.

CONSUMER_GROUP_METADATA_KEY: Schema[ConsumerGroupMetadataKey, ConsumerGroupMetadataKeyDraft] = Schema(
    "ConsumerGroupMetadataKey", "3", fields=(F("group_id", STRING),)
)

CONSUMER_GROUP_METADATA_VALUE: Schema[ConsumerGroupMetadataValue, ConsumerGroupMetadataValueDraft] = Schema(
    "ConsumerGroupMetadataValue",
    "0",
    flexible=0,
    fields=(
        F("epoch", INT32),
        F("metadata_hash", INT64, tag=0),
    ),
)

CONSUMER_GROUP_PARTITION_METADATA_KEY: Schema[
    ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataKeyDraft
] = Schema("ConsumerGroupPartitionMetadataKey", "4", fields=(F("group_id", STRING),))

CONSUMER_GROUP_PARTITION_METADATA_VALUE: Schema[
    ConsumerGroupPartitionMetadataValue, ConsumerGroupPartitionMetadataValueDraft
] = Schema(
    "ConsumerGroupPartitionMetadataValue",
    "0",
    flexible=0,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic_id", UUID),
                F("topic_name", STRING),
                F("num_partitions", INT32),
                F(
                    "partition_metadata",
                    ARRAY(
                        F("partition", INT32),
                        F("racks", ARRAY(STRING)),
                    ),
                ),
            ),
        ),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_KEY: Schema[
    ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataKeyDraft
] = Schema(
    "ConsumerGroupMemberMetadataKey",
    "5",
    fields=(
        F("group_id", STRING),
        F("member_id", STRING),
    ),
)

CONSUMER_GROUP_MEMBER_METADATA_VALUE: Schema[
    ConsumerGroupMemberMetadataValue, ConsumerGroupMemberMetadataValueDraft
] = Schema(
    "ConsumerGroupMemberMetadataValue",
    "0",
    flexible=0,
    fields=(
        F("instance_id", STRING, nullable=True),
        F("rack_id", STRING, nullable=True),
        F("client_id", STRING),
        F("client_host", STRING),
        F("subscribed_topic_names", ARRAY(STRING)),
        F("subscribed_topic_regex", STRING, nullable=True),
        F("rebalance_timeout_ms", INT32, default=-1),
        F("server_assignor", STRING, nullable=True),
        F(
            "classic_member_metadata",
            STRUCT(
                F("session_timeout_ms", INT32),
                F(
                    "supported_protocols",
                    ARRAY(
                        F("name", STRING),
                        F("metadata", BYTES),
                    ),
                ),
            ),
            nullable=True,
            default=None,
            tag=0,
        ),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_KEY: Schema[
    ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataKeyDraft
] = Schema("ConsumerGroupTargetAssignmentMetadataKey", "6", fields=(F("group_id", STRING),))

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA_VALUE: Schema[
    ConsumerGroupTargetAssignmentMetadataValue, ConsumerGroupTargetAssignmentMetadataValueDraft
] = Schema(
    "ConsumerGroupTargetAssignmentMetadataValue",
    "0",
    flexible=0,
    fields=(
        F("assignment_epoch", INT32),
        F("assignment_timestamp", INT64, tag=0, ignorable=True),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_KEY: Schema[
    ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberKeyDraft
] = Schema(
    "ConsumerGroupTargetAssignmentMemberKey",
    "7",
    fields=(
        F("group_id", STRING),
        F("member_id", STRING),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER_VALUE: Schema[
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMemberValueDraft
] = Schema(
    "ConsumerGroupTargetAssignmentMemberValue",
    "0",
    flexible=0,
    fields=(
        F(
            "topic_partitions",
            ARRAY(
                F("topic_id", UUID),
                F("partitions", ARRAY(INT32)),
            ),
        ),
    ),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_KEY: Schema[
    ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentKeyDraft
] = Schema(
    "ConsumerGroupCurrentMemberAssignmentKey",
    "8",
    fields=(
        F("group_id", STRING),
        F("member_id", STRING),
    ),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT_VALUE: Schema[
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupCurrentMemberAssignmentValueDraft
] = Schema(
    "ConsumerGroupCurrentMemberAssignmentValue",
    "0",
    flexible=0,
    fields=(
        F("member_epoch", INT32),
        F("previous_member_epoch", INT32),
        F("state", INT8),
        F(
            "assigned_partitions",
            ARRAY(
                F("topic_id", UUID),
                F("partitions", ARRAY(INT32)),
                F("assignment_epochs", ARRAY(INT32), nullable=True, default=None, tag=0),
            ),
        ),
        F(
            "partitions_pending_revocation",
            ARRAY(
                F("topic_id", UUID),
                F("partitions", ARRAY(INT32)),
                F("assignment_epochs", ARRAY(INT32), nullable=True, default=None, tag=0),
            ),
        ),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Schema[
    ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionKeyDraft
] = Schema(
    "ConsumerGroupRegularExpressionKey",
    "16",
    fields=(
        F("group_id", STRING),
        F("regular_expression", STRING),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Schema[
    ConsumerGroupRegularExpressionValue, ConsumerGroupRegularExpressionValueDraft
] = Schema(
    "ConsumerGroupRegularExpressionValue",
    "0",
    flexible=0,
    fields=(
        F("topics", ARRAY(STRING)),
        F("version", INT64),
        F("timestamp", INT64),
    ),
)
