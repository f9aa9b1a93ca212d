"""AlterConfigs (key 33): replace all configs of a resource (KIP-133)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AlterConfigsRequest",
    "0-2",
    flexible=2,
    fields=(
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F(
                    "configs",
                    ARRAY(
                        F("name", STRING),
                        F("value", STRING, nullable=True),
                    ),
                ),
            ),
        ),
        F("validate_only", BOOL),
    ),
)

RESPONSE = Schema(
    "AlterConfigsResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "responses",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F("resource_type", INT8),
                F("resource_name", STRING),
            ),
        ),
    ),
)
