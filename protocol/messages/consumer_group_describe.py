"""ConsumerGroupDescribe (key 69): consumer groups of the KIP-848 protocol."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ConsumerGroupDescribeRequest",
    "0-1",
    flexible=0,
    fields=(
        F("group_ids", ARRAY(STRING)),
        F("include_authorized_operations", BOOL),
    ),
)

RESPONSE = Schema(
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
