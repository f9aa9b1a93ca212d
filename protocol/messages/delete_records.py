"""DeleteRecords (key 21): move partitions' log start offsets forward (KIP-107)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DeleteRecordsRequest",
    "0-2",
    flexible=2,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("offset", INT64),
                    ),
                ),
            ),
        ),
        F("timeout_ms", INT32),
    ),
)

RESPONSE = Schema(
    "DeleteRecordsResponse",
    "0-2",
    flexible=2,
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
                        F("low_watermark", INT64),
                        F("error_code", INT16),
                    ),
                ),
            ),
        ),
    ),
)
