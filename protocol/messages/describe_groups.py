"""DescribeGroups (key 15): state and members of classic groups."""

from eoslog.protocol.fields import ARRAY, BOOL, BYTES, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeGroupsRequest",
    "0-6",
    flexible=5,
    fields=(
        F("groups", ARRAY(STRING)),
        F("include_authorized_operations", BOOL, "3+"),
    ),
)

RESPONSE = Schema(
    "DescribeGroupsResponse",
    "0-6",
    flexible=5,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F(
            "groups",
            ARRAY(
                F("error_code", INT16),
                F("error_message", STRING, "6+", nullable=True, default=None),
                F("group_id", STRING),
                F("group_state", STRING),
                F("protocol_type", STRING),
                F("protocol_data", STRING),
                F(
                    "members",
                    ARRAY(
                        F("member_id", STRING),
                        F("group_instance_id", STRING, "4+", nullable=True, default=None, ignorable=True),
                        F("client_id", STRING),
                        F("client_host", STRING),
                        F("member_metadata", BYTES),
                        F("member_assignment", BYTES),
                    ),
                ),
                F("authorized_operations", INT32, "3+", default=-2147483648),
            ),
        ),
    ),
)
