"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have (KIP-554)."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeUserScramCredentialsRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "users",
            ARRAY(
                F("name", STRING),
            ),
            nullable=True,
        ),
    ),
)

RESPONSE = Schema(
    "DescribeUserScramCredentialsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "results",
            ARRAY(
                F("user", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F(
                    "credential_infos",
                    ARRAY(
                        F("mechanism", INT8),
                        F("iterations", INT32),
                    ),
                ),
            ),
        ),
    ),
)
