"""Heartbeat (key 12): a member of a classic group is alive."""

from eoslog.protocol.fields import INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "HeartbeatRequest",
    "0-4",
    flexible=4,
    fields=(
        F("group_id", STRING),
        F("generation_id", INT32),
        F("member_id", STRING),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
    ),
)

RESPONSE = Schema(
    "HeartbeatResponse",
    "0-4",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16),
    ),
)
