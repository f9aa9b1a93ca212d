"""LeaveGroup (key 13): leave a classic group; from version 3 several members at once."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "LeaveGroupRequest",
    "0-5",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("member_id", STRING, "0-2"),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, nullable=True, default=None),
                F("reason", STRING, "5+", nullable=True, default=None, ignorable=True),
            ),
            "3+",
        ),
    ),
)

RESPONSE = Schema(
    "LeaveGroupResponse",
    "0-5",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, nullable=True),
                F("error_code", INT16),
            ),
            "3+",
        ),
    ),
)
