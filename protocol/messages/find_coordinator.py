"""FindCoordinator (key 10): the coordinator of groups (type 0) or transactional ids (type 1)."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "FindCoordinatorRequest",
    "0-6",
    flexible=3,
    fields=(
        F("key", STRING, "0-3"),
        F("key_type", INT8, "1+"),
        F("coordinator_keys", ARRAY(STRING), "4+"),
    ),
)

RESPONSE = Schema(
    "FindCoordinatorResponse",
    "0-6",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16, "0-3"),
        F("error_message", STRING, "1-3", nullable=True, ignorable=True),
        F("node_id", INT32, "0-3"),
        F("host", STRING, "0-3"),
        F("port", INT32, "0-3"),
        F(
            "coordinators",
            ARRAY(
                F("key", STRING),
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
            "4+",
        ),
    ),
)
