"""OffsetDelete (key 47): forget committed offsets of a group (KIP-496)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "OffsetDeleteRequest",
    "0",
    fields=(
        F("group_id", STRING),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "OffsetDeleteResponse",
    "0",
    fields=(
        F("error_code", INT16),
        F("throttle_time_ms", INT32, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                    ),
                ),
            ),
        ),
    ),
)
