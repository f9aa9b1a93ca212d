"""TxnOffsetCommit (key 28): commit a group's offsets as part of a transaction."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "TxnOffsetCommitRequest",
    "0-5",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("group_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("generation_id", INT32, "3+", default=-1),
        F("member_id", STRING, "3+"),
        F("group_instance_id", STRING, "3+", nullable=True, default=None),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("committed_offset", INT64),
                        F("committed_leader_epoch", INT32, "2+", default=-1, ignorable=True),
                        F("committed_metadata", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "TxnOffsetCommitResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
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
