"""SyncGroup (key 14): the leader hands in the assignment, each member gets its part."""

from eoslog.protocol.fields import ARRAY, BYTES, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "SyncGroupRequest",
    "0-5",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
        F("protocol_type", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, "5+", nullable=True, default=None, ignorable=True),
        F(
            "assignments",
            ARRAY(
                F("member_id", STRING),
                F("assignment", BYTES),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "SyncGroupResponse",
    "0-5",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
        F("protocol_type", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("protocol_name", STRING, "5+", nullable=True, default=None, ignorable=True),
        F("assignment", BYTES),
    ),
)
