"""AlterUserScramCredentials (key 51): set or remove users' SCRAM credentials (KIP-554)."""

from eoslog.protocol.fields import ARRAY, BYTES, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AlterUserScramCredentialsRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "deletions",
            ARRAY(
                F("name", STRING),
                F("mechanism", INT8),
            ),
        ),
        F(
            "upsertions",
            ARRAY(
                F("name", STRING),
                F("mechanism", INT8),
                F("iterations", INT32),
                F("salt", BYTES),
                F("salted_password", BYTES),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "AlterUserScramCredentialsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("user", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
        ),
    ),
)
