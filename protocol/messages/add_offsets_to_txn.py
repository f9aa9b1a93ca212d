"""AddOffsetsToTxn (key 25): enlist a group's offsets in a transaction."""

from eoslog.protocol.fields import INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AddOffsetsToTxnRequest",
    "0-4",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("group_id", STRING),
    ),
)

RESPONSE = Schema(
    "AddOffsetsToTxnResponse",
    "0-4",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
    ),
)
