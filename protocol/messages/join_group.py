"""JoinGroup (key 11): enter a classic group; the answer makes one member its leader."""

from eoslog.protocol.fields import ARRAY, BOOL, BYTES, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "JoinGroupRequest",
    "0-9",
    flexible=6,
    fields=(
        F("group_id", STRING),
        F("session_timeout_ms", INT32),
        F("rebalance_timeout_ms", INT32, "1+", default=-1, ignorable=True),
        F("member_id", STRING),
        F("group_instance_id", STRING, "5+", nullable=True, default=None),
        F("protocol_type", STRING),
        F(
            "protocols",
            ARRAY(
                F("name", STRING),
                F("metadata", BYTES),
            ),
        ),
        F("reason", STRING, "8+", nullable=True, default=None, ignorable=True),
    ),
)

RESPONSE = Schema(
    "JoinGroupResponse",
    "0-9",
    flexible=6,
    fields=(
        F("throttle_time_ms", INT32, "2+", ignorable=True),
        F("error_code", INT16),
        F("generation_id", INT32, default=-1),
        F("protocol_type", STRING, "7+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, nullable="7+"),
        F("leader", STRING),
        F("skip_assignment", BOOL, "9+"),
        F("member_id", STRING),
        F(
            "members",
            ARRAY(
                F("member_id", STRING),
                F("group_instance_id", STRING, "5+", nullable=True, default=None, ignorable=True),
                F("metadata", BYTES),
            ),
        ),
    ),
)
