"""IncrementalAlterConfigs (key 44): set, delete, append to or subtract from single configs (KIP-339)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "IncrementalAlterConfigsRequest",
    "0-1",
    flexible=1,
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
                        F("config_operation", INT8),
                        F("value", STRING, nullable=True),
                    ),
                ),
            ),
        ),
        F("validate_only", BOOL),
    ),
)

RESPONSE = Schema(
    "IncrementalAlterConfigsResponse",
    "0-1",
    flexible=1,
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
