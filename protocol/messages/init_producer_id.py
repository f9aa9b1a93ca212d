"""InitProducerId (key 22): a producer id and epoch; fences older users of a transactional id."""

from eoslog.protocol.fields import BOOL, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "InitProducerIdRequest",
    "0-6",
    flexible=2,
    fields=(
        F("transactional_id", STRING, nullable=True),
        F("transaction_timeout_ms", INT32),
        F("producer_id", INT64, "3+", default=-1),
        F("producer_epoch", INT16, "3+", default=-1),
        F("enable2_pc", BOOL, "6+"),
        F("keep_prepared_txn", BOOL, "6+"),
    ),
)

RESPONSE = Schema(
    "InitProducerIdResponse",
    "0-6",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("producer_id", INT64, default=-1),
        F("producer_epoch", INT16),
        F("ongoing_txn_producer_id", INT64, "6+", default=-1),
        F("ongoing_txn_producer_epoch", INT16, "6+", default=-1),
    ),
)
