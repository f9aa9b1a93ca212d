"""AlterReplicaLogDirs (key 34): move replicas to another log directory (KIP-113)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AlterReplicaLogDirsRequest",
    "1-2",
    flexible=2,
    fields=(
        F(
            "dirs",
            ARRAY(
                F("path", STRING),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "AlterReplicaLogDirsResponse",
    "1-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("topic_name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                    ),
                ),
            ),
        ),
    ),
)
