"""EndTxn (key 26): commit or abort; version 5 returns the bumped epoch (KIP-890).

`together` is eoslog's own, for a broker whose ApiVersions says `ends_together`: further transactions that end
in the same way and become visible in the same moment. A broker that does not know it ends the first one only,
and answers without it.
"""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, INT64, OWN_TAGS, STRING, F
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
        F(
            "together",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
            ),
            "5+",
            tag=OWN_TAGS,
        ),
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
        F(
            "together",
            ARRAY(
                F("transactional_id", STRING),
                F("error_code", INT16),
                F("producer_id", INT64, default=-1),
                F("producer_epoch", INT16, default=-1),
            ),
            "5+",
            tag=OWN_TAGS,
        ),
    ),
)
