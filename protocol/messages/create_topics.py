"""CreateTopics (key 19): make topics, or only check whether they could be made."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
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

RESPONSE = Schema(
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
