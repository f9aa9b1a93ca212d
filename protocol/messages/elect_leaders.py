"""ElectLeaders (key 43): elect partition leaders (KIP-183, KIP-460)."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ElectLeadersRequest",
    "0-2",
    flexible=2,
    fields=(
        F("election_type", INT8, "1+"),
        F(
            "topic_partitions",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            nullable=True,
        ),
        F("timeout_ms", INT32, default=60000),
    ),
)

RESPONSE = Schema(
    "ElectLeadersResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "1+"),
        F(
            "replica_election_results",
            ARRAY(
                F("topic", STRING),
                F(
                    "partition_result",
                    ARRAY(
                        F("partition_id", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)
