"""SaslHandshake (key 17): choose a SASL mechanism (KIP-43)."""

from eoslog.protocol.fields import ARRAY, INT16, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema("SaslHandshakeRequest", "0-1", fields=(F("mechanism", STRING),))

RESPONSE = Schema(
    "SaslHandshakeResponse",
    "0-1",
    fields=(
        F("error_code", INT16),
        F("mechanisms", ARRAY(STRING)),
    ),
)
