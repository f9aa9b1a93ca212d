"""Metadata (key 3): brokers, topics and the leaders of their partitions."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, STRING, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "MetadataRequest",
    "0-13",
    flexible=9,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic_id", UUID, "10+", ignorable=True),
                F("name", STRING, nullable="10+"),
            ),
            nullable="1+",
        ),
        F("allow_auto_topic_creation", BOOL, "4+", default=True),
        F("include_cluster_authorized_operations", BOOL, "8-10"),
        F("include_topic_authorized_operations", BOOL, "8+"),
    ),
)

RESPONSE = Schema(
    "MetadataResponse",
    "0-13",
    flexible=9,
    fields=(
        F("throttle_time_ms", INT32, "3+", ignorable=True),
        F(
            "brokers",
            ARRAY(
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, "1+", nullable=True, default=None, ignorable=True),
            ),
        ),
        F("cluster_id", STRING, "2+", nullable=True, default=None, ignorable=True),
        F("controller_id", INT32, "1+", default=-1, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("error_code", INT16),
                F("name", STRING, nullable="12+"),
                F("topic_id", UUID, "10+", ignorable=True),
                F("is_internal", BOOL, "1+", ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("error_code", INT16),
                        F("partition_index", INT32),
                        F("leader_id", INT32),
                        F("leader_epoch", INT32, "7+", default=-1, ignorable=True),
                        F("replica_nodes", ARRAY(INT32)),
                        F("isr_nodes", ARRAY(INT32)),
                        F("offline_replicas", ARRAY(INT32), "5+", ignorable=True),
                    ),
                ),
                F("topic_authorized_operations", INT32, "8+", default=-2147483648),
            ),
        ),
        F("cluster_authorized_operations", INT32, "8-10", default=-2147483648),
        F("error_code", INT16, "13+", ignorable=True),
    ),
)
