"""AlterClientQuotas (key 49): change the quotas of clients (KIP-546)."""

from eoslog.protocol.fields import ARRAY, BOOL, FLOAT64, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AlterClientQuotasRequest",
    "0-1",
    flexible=1,
    fields=(
        F(
            "entries",
            ARRAY(
                F(
                    "entity",
                    ARRAY(
                        F("entity_type", STRING),
                        F("entity_name", STRING, nullable=True),
                    ),
                ),
                F(
                    "ops",
                    ARRAY(
                        F("key", STRING),
                        F("value", FLOAT64),
                        F("remove", BOOL),
                    ),
                ),
            ),
        ),
        F("validate_only", BOOL),
    ),
)

RESPONSE = Schema(
    "AlterClientQuotasResponse",
    "0-1",
    flexible=1,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "entries",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F(
                    "entity",
                    ARRAY(
                        F("entity_type", STRING),
                        F("entity_name", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)
