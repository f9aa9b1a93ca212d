"""OffsetCommit (key 8): store a group's offsets, outside transactions."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "OffsetCommitRequest",
    "2-10",
    flexible=8,
    fields=(
        F("group_id", STRING),
        F("generation_id_or_member_epoch", INT32, default=-1),
        F("member_id", STRING),
        F("group_instance_id", STRING, "7+", nullable=True, default=None),
        F("retention_time_ms", INT64, "2-4", default=-1, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING, "2-9", ignorable=True),
                F("topic_id", UUID, "10+", ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("committed_offset", INT64),
                        F("committed_leader_epoch", INT32, "6+", default=-1, ignorable=True),
                        F("committed_metadata", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "OffsetCommitResponse",
    "2-10",
    flexible=8,
    fields=(
        F("throttle_time_ms", INT32, "3+", ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING, "2-9", ignorable=True),
                F("topic_id", UUID, "10+", ignorable=True),
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
