"""The first requests of a connection: versions and logins."""

from eoslog.protocol.fields import ARRAY, BOOL, BYTES, INT16, INT32, INT64, OWN_TAGS, STRING, F
from eoslog.protocol.schema import Schema

# SaslHandshake (key 17): choose a SASL mechanism (KIP-43).

SASL_HANDSHAKE_REQUEST = Schema("SaslHandshakeRequest", "0-1", fields=(F("mechanism", STRING),))

SASL_HANDSHAKE_RESPONSE = Schema(
    "SaslHandshakeResponse",
    "0-1",
    fields=(
        F("error_code", INT16),
        F("mechanisms", ARRAY(STRING)),
    ),
)

# ApiVersions (key 18): the versions the other side speaks, and finalized features (KIP-511, 584).
#
# `ends_together` is eoslog's own: EndTxn 5 takes further transactions in its field `together`.

API_VERSIONS_REQUEST = Schema(
    "ApiVersionsRequest",
    "0-4",
    flexible=3,
    fields=(
        F("client_software_name", STRING, "3+", ignorable=True),
        F("client_software_version", STRING, "3+", ignorable=True),
    ),
)

API_VERSIONS_RESPONSE = Schema(
    "ApiVersionsResponse",
    "0-4",
    flexible=3,
    fields=(
        F("error_code", INT16),
        F(
            "api_keys",
            ARRAY(
                F("api_key", INT16),
                F("min_version", INT16),
                F("max_version", INT16),
            ),
        ),
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F(
            "supported_features",
            ARRAY(
                F("name", STRING),
                F("min_version", INT16),
                F("max_version", INT16),
            ),
            "3+",
            tag=0,
            ignorable=True,
        ),
        F("finalized_features_epoch", INT64, "3+", default=-1, tag=1, ignorable=True),
        F(
            "finalized_features",
            ARRAY(
                F("name", STRING),
                F("max_version_level", INT16),
                F("min_version_level", INT16),
            ),
            "3+",
            tag=2,
            ignorable=True,
        ),
        F("zk_migration_ready", BOOL, "3+", tag=3, ignorable=True),
        F("ends_together", BOOL, "3+", tag=OWN_TAGS, ignorable=True),
    ),
)

# SaslAuthenticate (key 36): one step of a SASL exchange (KIP-152).

SASL_AUTHENTICATE_REQUEST = Schema(
    "SaslAuthenticateRequest", "0-2", flexible=2, fields=(F("auth_bytes", BYTES),)
)

SASL_AUTHENTICATE_RESPONSE = Schema(
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
