"""DescribeLogDirs (key 35): sizes of the log directories and of what is in them (KIP-113)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeLogDirsRequest",
    "1-5",
    flexible=2,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            nullable=True,
        ),
    ),
)

RESPONSE = Schema(
    "DescribeLogDirsResponse",
    "1-5",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "3+", ignorable=True),
        F(
            "results",
            ARRAY(
                F("error_code", INT16),
                F("log_dir", STRING),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "partitions",
                            ARRAY(
                                F("partition_index", INT32),
                                F("partition_size", INT64),
                                F("offset_lag", INT64),
                                F("is_future_key", BOOL),
                            ),
                        ),
                    ),
                ),
                F("total_bytes", INT64, "4+", default=-1, ignorable=True),
                F("usable_bytes", INT64, "4+", default=-1, ignorable=True),
                F("is_cordoned", BOOL, "5+", ignorable=True),
            ),
        ),
    ),
)
