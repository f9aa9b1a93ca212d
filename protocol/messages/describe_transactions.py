"""DescribeTransactions (key 65): state, timeout and partitions of transactional ids."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeTransactionsRequest", "0", flexible=0, fields=(F("transactional_ids", ARRAY(STRING)),)
)

RESPONSE = Schema(
    "DescribeTransactionsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "transaction_states",
            ARRAY(
                F("error_code", INT16),
                F("transactional_id", STRING),
                F("transaction_state", STRING),
                F("transaction_timeout_ms", INT32),
                F("transaction_start_time_ms", INT64),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F(
                    "topics",
                    ARRAY(
                        F("topic", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)
