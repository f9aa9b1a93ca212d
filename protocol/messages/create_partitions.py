"""CreatePartitions (key 37): give topics more partitions (KIP-195)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
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

RESPONSE = Schema(
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
