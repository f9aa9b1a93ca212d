"""AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AlterPartitionReassignmentsRequest",
    "0-1",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F("allow_replication_factor_change", BOOL, "1+", default=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("replicas", ARRAY(INT32), nullable=True, default=None),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "AlterPartitionReassignmentsResponse",
    "0-1",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("allow_replication_factor_change", BOOL, "1+", default=True, ignorable=True),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "responses",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)
