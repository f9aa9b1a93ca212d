"""DeleteAcls (key 31): remove the ACLs that match filters."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DeleteAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F(
            "filters",
            ARRAY(
                F("resource_type_filter", INT8),
                F("resource_name_filter", STRING, nullable=True),
                F("pattern_type_filter", INT8, default=3),
                F("principal_filter", STRING, nullable=True),
                F("host_filter", STRING, nullable=True),
                F("operation", INT8),
                F("permission_type", INT8),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "DeleteAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "filter_results",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
                F(
                    "matching_acls",
                    ARRAY(
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                        F("resource_type", INT8),
                        F("resource_name", STRING),
                        F("pattern_type", INT8, default=3),
                        F("principal", STRING),
                        F("host", STRING),
                        F("operation", INT8),
                        F("permission_type", INT8),
                    ),
                ),
            ),
        ),
    ),
)
