"""ListPartitionReassignments (key 46): the moves of partitions under way (KIP-455)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ListPartitionReassignmentsRequest",
    "0",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("partition_indexes", ARRAY(INT32)),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

RESPONSE = Schema(
    "ListPartitionReassignmentsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("replicas", ARRAY(INT32)),
                        F("adding_replicas", ARRAY(INT32)),
                        F("removing_replicas", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)
