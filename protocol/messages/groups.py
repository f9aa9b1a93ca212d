"""Groups and their members, by the classic protocol and by KIP-848's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.fields import ARRAY, BOOL, BYTES, INT8, INT16, INT32, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ConsumerProtocolAssignment,
        ConsumerProtocolAssignmentDraft,
        ConsumerProtocolSubscription,
        ConsumerProtocolSubscriptionDraft,
    )

# JoinGroup (key 11): enter a classic group; the answer makes one member its leader.

JOIN_GROUP_REQUEST = Schema(
    "JoinGroupRequest",
    "0-9",
    flexible=6,
    fields=(
        F("group_id", STRING),
        F("session_timeout_ms", INT32),
        F("rebalance_timeout_ms", INT32, "1+", default=-1, ignorable=True),
        F("member_id", STRING),
        F("group_instance_id", STRING, "5+", nullable=True, default=None),
        F("protocol_type", STRING),
        F(
            "protocols",
            ARRAY(
                F("name", STRING),
                F("metadata", BYTES),
            ),
        ),
        F("reason", STRING, "8+", nullable=True, default=None, ignorable=True),
    ),
)

JOIN_GROUP_RESPONSE = Schema(
    "JoinGroupResponse",
    "0-9",
    flexible=6,
    fields=(
        F("throttle_time_ms", INT32, "2+", ignorable=True),
        F("error_code", INT16),
        F("generation_id", INT32, default=-1),
        F("protocol_type", STRING, "7+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, nullable="7+"),
        F("leader", STRING),
        F("skip_assignment", BOOL, "9+"),
        F("member_id", STRING),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, "5+", nullable=True, default=None, ignorable=True),
                F("metadata", BYTES),
            ),
        ),
    ),
)

# Heartbeat (key 12): a member of a classic group is alive.

HEARTBEAT_REQUEST = Schema(
    "HeartbeatRequest",
    "0-4",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
    ),
)

HEARTBEAT_RESPONSE = Schema(
    "HeartbeatResponse",
    "0-4",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
    ),
)

# LeaveGroup (key 13): leave a classic group; from version 3 several members at once.

LEAVE_GROUP_REQUEST = Schema(
    "LeaveGroupRequest",
    "0-5",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("member_id", STRING, "0-2"),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, nullable=True, default=None),
                F("reason", STRING, "5+", nullable=True, default=None, ignorable=True),
            ),
            "3+",
        ),
    ),
)

LEAVE_GROUP_RESPONSE = Schema(
    "LeaveGroupResponse",
    "0-5",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, nullable=True),
                F("error_code", INT16),
            ),
            "3+",
        ),
    ),
)

# SyncGroup (key 14): the leader hands in the assignment, each member gets its part.

SYNC_GROUP_REQUEST = Schema(
    "SyncGroupRequest",
    "0-5",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
        F("protocol_type", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, "5+", nullable=True, default=None, ignorable=True),
        F(
            "assignments",
            ARRAY(
                F("member_id", STRING),
                F("assignment", BYTES),
            ),
        ),
    ),
)

SYNC_GROUP_RESPONSE = Schema(
    "SyncGroupResponse",
    "0-5",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F("protocol_type", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("assignment", BYTES),
    ),
)

# DescribeGroups (key 15): state and members of classic groups.

DESCRIBE_GROUPS_REQUEST = Schema(
    "DescribeGroupsRequest",
    "0-6",
    flexible=5,
    fields=(
        F("groups", ARRAY(STRING)),
        F("include_authorized_operations", BOOL, "3+"),
    ),
)

DESCRIBE_GROUPS_RESPONSE = Schema(
    "DescribeGroupsResponse",
    "0-6",
    flexible=5,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F(
            "groups",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, "6+", nullable=True, default=None),
                F("group_id", STRING),
                F("group_state", STRING),
                F("protocol_type", STRING),
                F("protocol_data", STRING),
                F(
                    "members",
                    ARRAY(
                        F("member_id", STRING),
                        F("group_instance_id", STRING, "4+", nullable=True, default=None, ignorable=True),
                        F("client_id", STRING),
                        F("client_host", STRING),
                        F("member_metadata", BYTES),
                        F("member_assignment", BYTES),
                    ),
                ),
                F("authorized_operations", INT32, "3+", default=-2147483648),
            ),
        ),
    ),
)

# ListGroups (key 16): the groups this broker coordinates, by state (v4) and type (v5).

LIST_GROUPS_REQUEST = Schema(
    "ListGroupsRequest",
    "0-5",
    flexible=3,
    fields=(
        F("states_filter", ARRAY(STRING), "4+"),
        F("types_filter", ARRAY(STRING), "5+"),
    ),
)

LIST_GROUPS_RESPONSE = Schema(
    "ListGroupsResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F(
            "groups",
            ARRAY(
                F("group_id", STRING),
                F("protocol_type", STRING),
                F("group_state", STRING, "4+", ignorable=True),
                F("group_type", STRING, "5+", ignorable=True),
            ),
        ),
    ),
)

# DeleteGroups (key 42): delete empty groups with their offsets (KIP-229).

DELETE_GROUPS_REQUEST = Schema(
    "DeleteGroupsRequest", "0-2", flexible=2, fields=(F("groups_names", ARRAY(STRING)),)
)

DELETE_GROUPS_RESPONSE = Schema(
    "DeleteGroupsResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("group_id", STRING),
                F("error_code", INT16),
            ),
        ),
    ),
)

# ConsumerGroupHeartbeat (key 68): a member's life in a consumer group (KIP-848).

CONSUMER_GROUP_HEARTBEAT_REQUEST = Schema(
    "ConsumerGroupHeartbeatRequest",
    "0-1",
    flexible=0,
    fields=(
        F("group_id", STRING),
        F("member_id", STRING),
        F("member_epoch", INT32),
        F("instance_id", STRING, nullable=True, default=None),
        F("rack_id", STRING, nullable=True, default=None),
        F("rebalance_timeout_ms", INT32, default=-1),
        F("subscribed_topic_names", ARRAY(STRING), nullable=True, default=None),
        F("subscribed_topic_regex", STRING, "1+", nullable=True, default=None),
        F("server_assignor", STRING, nullable=True, default=None),
        F(
            "topic_partitions",
            ARRAY(
                F("topic_id", UUID),
                F("partitions", ARRAY(INT32)),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

CONSUMER_GROUP_HEARTBEAT_RESPONSE = Schema(
    "ConsumerGroupHeartbeatResponse",
    "0-1",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True, default=None),
        F("member_id", STRING, nullable=True, default=None),
        F("member_epoch", INT32),
        F("heartbeat_interval_ms", INT32),
        F(
            "assignment",
            STRUCT(
                F(
                    "topic_partitions",
                    ARRAY(
                        F("topic_id", UUID),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

# ConsumerGroupDescribe (key 69): consumer groups of the KIP-848 protocol.

CONSUMER_GROUP_DESCRIBE_REQUEST = Schema(
    "ConsumerGroupDescribeRequest",
    "0-1",
    flexible=0,
    fields=(
        F("group_ids", ARRAY(STRING)),
        F("include_authorized_operations", BOOL),
    ),
)

CONSUMER_GROUP_DESCRIBE_RESPONSE = Schema(
    "ConsumerGroupDescribeResponse",
    "0-1",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "groups",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True, default=None),
                F("group_id", STRING),
                F("group_state", STRING),
                F("group_epoch", INT32),
                F("assignment_epoch", INT32),
                F("assignor_name", STRING),
                F(
                    "members",
                    ARRAY(
                        F("member_id", STRING),
                        F("instance_id", STRING, nullable=True, default=None),
                        F("rack_id", STRING, nullable=True, default=None),
                        F("member_epoch", INT32),
                        F("client_id", STRING),
                        F("client_host", STRING),
                        F("subscribed_topic_names", ARRAY(STRING)),
                        F("subscribed_topic_regex", STRING, nullable=True, default=None),
                        F(
                            "assignment",
                            STRUCT(
                                F(
                                    "topic_partitions",
                                    ARRAY(
                                        F("topic_id", UUID),
                                        F("topic_name", STRING),
                                        F("partitions", ARRAY(INT32)),
                                    ),
                                ),
                            ),
                        ),
                        F(
                            "target_assignment",
                            STRUCT(
                                F(
                                    "topic_partitions",
                                    ARRAY(
                                        F("topic_id", UUID),
                                        F("topic_name", STRING),
                                        F("partitions", ARRAY(INT32)),
                                    ),
                                ),
                            ),
                        ),
                        F("member_type", INT8, "1+", default=-1, ignorable=True),
                    ),
                ),
                F("authorized_operations", INT32, default=-2147483648),
            ),
        ),
    ),
)

# What members of a classic consumer group tell each other inside JoinGroup and SyncGroup (embedded bytes).
#
# An int16 version comes first (`coordinator_records.encode` and `decode`).

CONSUMER_PROTOCOL_SUBSCRIPTION: Schema[ConsumerProtocolSubscription, ConsumerProtocolSubscriptionDraft] = (
    Schema(
        "ConsumerProtocolSubscription",
        "0-3",
        fields=(
            F("topics", ARRAY(STRING)),
            F("user_data", BYTES, nullable=True, default=None),
            F(
                "owned_partitions",
                ARRAY(
                    F("topic", STRING),
                    F("partitions", ARRAY(INT32)),
                ),
                "1+",
                ignorable=True,
            ),
            F("generation_id", INT32, "2+", default=-1, ignorable=True),
            F("rack_id", STRING, "3+", nullable=True, default=None, ignorable=True),
        ),
    )
)

CONSUMER_PROTOCOL_ASSIGNMENT: Schema[ConsumerProtocolAssignment, ConsumerProtocolAssignmentDraft] = Schema(
    "ConsumerProtocolAssignment",
    "0-3",
    fields=(
        F(
            "assigned_partitions",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
        ),
        F("user_data", BYTES, nullable=True, default=None),
    ),
)
