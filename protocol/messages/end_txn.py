"""EndTxn (key 26): commit or abort; version 5 returns the bumped epoch (KIP-890)."""

from eoslog.protocol.fields import BOOL, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "EndTxnRequest",
    "0-5",
    flexible=3,
    fields=(
        F("transactional_id", STRING),
        F("producer_id", INT64),
        F("producer_epoch", INT16),
        F("committed", BOOL),
    ),
)

RESPONSE = Schema(
    "EndTxnResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, "5+", default=-1, ignorable=True),
        F("producer_epoch", INT16, "5+", default=-1, ignorable=True),
    ),
)
