"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the log (KIP-101, KIP-320)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "OffsetForLeaderEpochRequest",
    "2-4",
    flexible=4,
    fields=(
        F("replica_id", INT32, "3+", default=-2, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition", INT32),
                        F("current_leader_epoch", INT32, default=-1, ignorable=True),
                        F("leader_epoch", INT32),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "OffsetForLeaderEpochResponse",
    "2-4",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("error_code", INT16),
                        F("partition", INT32),
                        F("leader_epoch", INT32, default=-1, ignorable=True),
                        F("end_offset", INT64, default=-1),
                    ),
                ),
            ),
        ),
    ),
)
