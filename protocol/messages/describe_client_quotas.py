"""DescribeClientQuotas (key 48): the quotas of clients (KIP-546)."""

from eoslog.protocol.fields import ARRAY, BOOL, FLOAT64, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeClientQuotasRequest",
    "0-1",
    flexible=1,
    fields=(
        F(
            "components",
            ARRAY(
                F("entity_type", STRING),
                F("match_type", INT8),
                F("match", STRING, nullable=True),
            ),
        ),
        F("strict", BOOL),
    ),
)

RESPONSE = Schema(
    "DescribeClientQuotasResponse",
    "0-1",
    flexible=1,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
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
                    "values",
                    ARRAY(
                        F("key", STRING),
                        F("value", FLOAT64),
                    ),
                ),
            ),
            nullable=True,
        ),
    ),
)
