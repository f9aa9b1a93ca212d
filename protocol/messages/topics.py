"""Topics, and the numbers of their partitions."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

# CreateTopics (key 19): make topics, or only check whether they could be made.

CREATE_TOPICS_REQUEST = Schema(
    "CreateTopicsRequest",
    "2-7",
    flexible=5,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("num_partitions", INT32),
                F("replication_factor", INT16),
                F(
                    "assignments",
                    ARRAY(
                        F("partition_index", INT32),
                        F("broker_ids", ARRAY(INT32)),
                    ),
                ),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("value", STRING, nullable=True),
                    ),
                ),
            ),
        ),
        F("timeout_ms", INT32, default=60000),
        F("validate_only", BOOL),
    ),
)

CREATE_TOPICS_RESPONSE = Schema(
    "CreateTopicsResponse",
    "2-7",
    flexible=5,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("topic_id", UUID, "7+", ignorable=True),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F("topic_config_error_code", INT16, "5+", tag=0, ignorable=True),
                F("num_partitions", INT32, "5+", default=-1, ignorable=True),
                F("replication_factor", INT16, "5+", default=-1, ignorable=True),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("value", STRING, nullable=True),
                        F("read_only", BOOL),
                        F("config_source", INT8, default=-1),
                        F("is_sensitive", BOOL),
                    ),
                    "5+",
                    nullable=True,
                    ignorable=True,
                ),
            ),
        ),
    ),
)

# DeleteTopics (key 20): delete topics by name or, from version 6, by id.

DELETE_TOPICS_REQUEST = Schema(
    "DeleteTopicsRequest",
    "1-6",
    flexible=4,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING, nullable=True, default=None),
                F("topic_id", UUID),
            ),
            "6+",
        ),
        F("topic_names", ARRAY(STRING), "1-5", ignorable=True),
        F("timeout_ms", INT32),
    ),
)

DELETE_TOPICS_RESPONSE = Schema(
    "DeleteTopicsResponse",
    "1-6",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "responses",
            ARRAY(
                F("name", STRING, nullable="6+"),
                F("topic_id", UUID, "6+", ignorable=True),
                F("error_code", INT16),
                F("error_message", STRING, "5+", nullable=True, default=None, ignorable=True),
            ),
        ),
    ),
)

# CreatePartitions (key 37): give topics more partitions (KIP-195).

CREATE_PARTITIONS_REQUEST = Schema(
    "CreatePartitionsRequest",
    "0-3",
    flexible=2,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("count", INT32),
                F(
                    "assignments",
                    ARRAY(
                        F("broker_ids", ARRAY(INT32)),
                    ),
                    nullable=True,
                ),
            ),
        ),
        F("timeout_ms", INT32),
        F("validate_only", BOOL),
    ),
)

CREATE_PARTITIONS_RESPONSE = Schema(
    "CreatePartitionsResponse",
    "0-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("name", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True, default=None),
            ),
        ),
    ),
)

# DescribeTopicPartitions (key 75): topics' partitions, page by page (KIP-966).

DESCRIBE_TOPIC_PARTITIONS_REQUEST = Schema(
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

DESCRIBE_TOPIC_PARTITIONS_RESPONSE = Schema(
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
