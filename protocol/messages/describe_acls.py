"""DescribeAcls (key 29): the ACLs that match a filter."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeAclsRequest",
    "1-3",
    flexible=2,
    fields=(
        F("resource_type_filter", INT8),
        F("resource_name_filter", STRING, nullable=True),
        F("pattern_type_filter", INT8, default=3),
        F("principal_filter", STRING, nullable=True),
        F("host_filter", STRING, nullable=True),
        F("operation", INT8),
        F("permission_type", INT8),
    ),
)

RESPONSE = Schema(
    "DescribeAclsResponse",
    "1-3",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "resources",
            ARRAY(
                F("resource_type", INT8),
                F("resource_name", STRING),
                F("pattern_type", INT8, default=3),
                F(
                    "acls",
                    ARRAY(
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
