"""ListTransactions (key 66): transactional ids by state, producer id, age (v1) and pattern (v2)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ListTransactionsRequest",
    "0-2",
    flexible=0,
    fields=(
        F("state_filters", ARRAY(STRING)),
        F("producer_id_filters", ARRAY(INT64)),
        F("duration_filter", INT64, "1+", default=-1),
        F("transactional_id_pattern", STRING, "2+", nullable=True, default=None),
    ),
)

RESPONSE = Schema(
    "ListTransactionsResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("unknown_state_filters", ARRAY(STRING)),
        F(
            "transaction_states",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("transaction_state", STRING),
            ),
        ),
    ),
)
