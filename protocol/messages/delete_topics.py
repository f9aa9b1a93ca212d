"""DeleteTopics (key 20): delete topics by name or, from version 6, by id."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DeleteTopicsRequest",
    "1-6",
    flexible=4,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING, nullable=True, default=None),
                F("topic_id", UUID),
            ),
            "6+",
        ),
        F("topic_names", ARRAY(STRING), "1-5", ignorable=True),
        F("timeout_ms", INT32),
    ),
)

RESPONSE = Schema(
    "DeleteTopicsResponse",
    "1-6",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "responses",
            ARRAY(
                F("name", STRING, nullable="6+"),
                F("topic_id", UUID, "6+", ignorable=True),
                F("error_code", INT16),
                F("error_message", STRING, "5+", nullable=True, default=None, ignorable=True),
            ),
        ),
    ),
)
