"""AddPartitionsToTxn (key 24): enlist partitions in a transaction; from version 4 for brokers (KIP-890)."""

from eoslog.protocol.fields import ARRAY, BOOL, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "AddPartitionsToTxnRequest",
    "0-5",
    flexible=3,
    fields=(
        F(
            "transactions",
            ARRAY(
                F("transactional_id", STRING),
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F("verify_only", BOOL),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
            "4+",
        ),
        F("v3_and_below_transactional_id", STRING, "0-3"),
        F("v3_and_below_producer_id", INT64, "0-3"),
        F("v3_and_below_producer_epoch", INT16, "0-3"),
        F(
            "v3_and_below_topics",
            ARRAY(
                F("name", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            "0-3",
        ),
    ),
)

RESPONSE = Schema(
    "AddPartitionsToTxnResponse",
    "0-5",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "4+", ignorable=True),
        F(
            "results_by_transaction",
            ARRAY(
                F("transactional_id", STRING),
                F(
                    "topic_results",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "results_by_partition",
                            ARRAY(
                                F("partition_index", INT32),
                                F("partition_error_code", INT16),
                            ),
                        ),
                    ),
                ),
            ),
            "4+",
        ),
        F(
            "results_by_topic_v3_and_below",
            ARRAY(
                F("name", STRING),
                F(
                    "results_by_partition",
                    ARRAY(
                        F("partition_index", INT32),
                        F("partition_error_code", INT16),
                    ),
                ),
            ),
            "0-3",
        ),
    ),
)
