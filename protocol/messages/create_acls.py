"""CreateAcls (key 30): add ACLs."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "CreateAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F(
            "creations",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("resource_pattern_type", INT8, default=3),
                F("principal", STRING),
                F("host", STRING),
                F("operation", INT8),
                F("permission_type", INT8),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "CreateAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
        ),
    ),
)
