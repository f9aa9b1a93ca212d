"""SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152)."""

from eoslog.protocol.fields import BYTES, INT16, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema("SaslAuthenticateRequest", "0-2", flexible=2, fields=(F("auth_bytes", BYTES),))

RESPONSE = Schema(
    "SaslAuthenticateResponse",
    "0-2",
    flexible=2,
    fields=(
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F("auth_bytes", BYTES),
        F("session_lifetime_ms", INT64, "1+", ignorable=True),
    ),
)
