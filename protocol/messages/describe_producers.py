"""DescribeProducers (key 61): the active producers of partitions (KIP-664)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeProducersRequest",
    "0",
    flexible=0,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("partition_indexes", ARRAY(INT32)),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "DescribeProducersResponse",
    "0",
    flexible=0,
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
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True, default=None),
                        F(
                            "active_producers",
                            ARRAY(
                                F("producer_id", INT64),
                                F("producer_epoch", INT32),
                                F("last_sequence", INT32, default=-1),
                                F("last_timestamp", INT64, default=-1),
                                F("coordinator_epoch", INT32),
                                F("current_txn_start_offset", INT64, default=-1),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
