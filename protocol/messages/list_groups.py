"""ListGroups (key 16): the groups this broker coordinates, by state (v4) and type (v5)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ListGroupsRequest",
    "0-5",
    flexible=3,
    fields=(
        F("states_filter", ARRAY(STRING), "4+"),
        F("types_filter", ARRAY(STRING), "5+"),
    ),
)

RESPONSE = Schema(
    "ListGroupsResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F(
            "groups",
            ARRAY(
                F("group_id", STRING),
                F("protocol_type", STRING),
                F("group_state", STRING, "4+", ignorable=True),
                F("group_type", STRING, "5+", ignorable=True),
            ),
        ),
    ),
)
