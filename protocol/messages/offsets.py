"""The offsets that groups have committed."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, INT64, STRING, UUID, F
from eoslog.protocol.schema import Schema

# OffsetCommit (key 8): store a group's offsets, outside transactions.

OFFSET_COMMIT_REQUEST = Schema(
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

OFFSET_COMMIT_RESPONSE = Schema(
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

# OffsetFetch (key 9): read a group's committed offsets; from version 8 of many groups.

OFFSET_FETCH_REQUEST = Schema(
    "OffsetFetchRequest",
    "1-10",
    flexible=6,
    fields=(
        F("group_id", STRING, "1-7"),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("partition_indexes", ARRAY(INT32)),
            ),
            "1-7",
            nullable="2-7",
        ),
        F(
            "groups",
            ARRAY(
                F("group_id", STRING),
                F("member_id", STRING, "9+", nullable=True, default=None, ignorable=True),
                F("member_epoch", INT32, "9+", default=-1, ignorable=True),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING, "8-9", ignorable=True),
                        F("topic_id", UUID, "10+", ignorable=True),
                        F("partition_indexes", ARRAY(INT32)),
                    ),
                    nullable=True,
                ),
            ),
            "8+",
        ),
        F("require_stable", BOOL, "7+"),
    ),
)

OFFSET_FETCH_RESPONSE = Schema(
    "OffsetFetchResponse",
    "1-10",
    flexible=6,
    fields=(
        F("throttle_time_ms", INT32, "3+", ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("committed_offset", INT64),
                        F("committed_leader_epoch", INT32, "5+", default=-1, ignorable=True),
                        F("metadata", STRING, nullable=True),
                        F("error_code", INT16),
                    ),
                ),
            ),
            "1-7",
        ),
        F("error_code", INT16, "2-7", ignorable=True),
        F(
            "groups",
            ARRAY(
                F("group_id", STRING),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING, "8-9", ignorable=True),
                        F("topic_id", UUID, "10+", ignorable=True),
                        F(
                            "partitions",
                            ARRAY(
                                F("partition_index", INT32),
                                F("committed_offset", INT64),
                                F("committed_leader_epoch", INT32, default=-1),
                                F("metadata", STRING, nullable=True),
                                F("error_code", INT16),
                            ),
                        ),
                    ),
                ),
                F("error_code", INT16),
            ),
            "8+",
        ),
    ),
)

# OffsetDelete (key 47): forget committed offsets of a group (KIP-496).

OFFSET_DELETE_REQUEST = Schema(
    "OffsetDeleteRequest",
    "0",
    fields=(
        F("group_id", STRING),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_DELETE_RESPONSE = Schema(
    "OffsetDeleteResponse",
    "0",
    fields=(
        F("error_code", INT16),
        F("throttle_time_ms", INT32, ignorable=True),
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
