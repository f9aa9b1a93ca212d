"""ListOffsets (key 2): the offset for a timestamp; -1 latest, -2 earliest, -3 the largest timestamp."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ListOffsetsRequest",
    "1-11",
    flexible=6,
    fields=(
        F("replica_id", INT32),
        F("isolation_level", INT8, "2+"),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("current_leader_epoch", INT32, "4+", default=-1, ignorable=True),
                        F("timestamp", INT64),
                    ),
                ),
            ),
        ),
        F("timeout_ms", INT32, "10+", ignorable=True),
    ),
)

RESPONSE = Schema(
    "ListOffsetsResponse",
    "1-11",
    flexible=6,
    fields=(
        F("throttle_time_ms", INT32, "2+", ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("timestamp", INT64, default=-1),
                        F("offset", INT64, default=-1),
                        F("leader_epoch", INT32, "4+", default=-1),
                    ),
                ),
            ),
        ),
    ),
)
