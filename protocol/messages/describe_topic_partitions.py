"""DescribeTopicPartitions (key 75): topics' partitions, page by page (KIP-966)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeTopicPartitionsRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
            ),
        ),
        F("response_partition_limit", INT32, default=2000),
        F(
            "cursor",
            STRUCT(
                F("topic_name", STRING),
                F("partition_index", INT32),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

RESPONSE = Schema(
    "DescribeTopicPartitionsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("error_code", INT16),
                F("name", STRING, nullable=True),
                F("topic_id", UUID, ignorable=True),
                F("is_internal", BOOL, ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("error_code", INT16),
                        F("partition_index", INT32),
                        F("leader_id", INT32),
                        F("leader_epoch", INT32, default=-1, ignorable=True),
                        F("replica_nodes", ARRAY(INT32)),
                        F("isr_nodes", ARRAY(INT32)),
                        F("eligible_leader_replicas", ARRAY(INT32), nullable=True, default=None),
                        F("last_known_elr", ARRAY(INT32), nullable=True, default=None),
                        F("offline_replicas", ARRAY(INT32), ignorable=True),
                    ),
                ),
                F("topic_authorized_operations", INT32, default=-2147483648),
            ),
        ),
        F(
            "next_cursor",
            STRUCT(
                F("topic_name", STRING),
                F("partition_index", INT32),
            ),
            nullable=True,
            default=None,
        ),
    ),
)
