"""ConsumerGroupHeartbeat (key 68): a member's life in a consumer group (KIP-848)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
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

RESPONSE = Schema(
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
