"""WriteTxnMarkers (key 27): a transaction coordinator tells partition leaders to write markers."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, INT64, STRING, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "WriteTxnMarkersRequest",
    "1-2",
    flexible=1,
    fields=(
        F(
            "markers",
            ARRAY(
                F("producer_id", INT64),
                F("producer_epoch", INT16),
                F("transaction_result", BOOL),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partition_indexes", ARRAY(INT32)),
                    ),
                ),
                F("coordinator_epoch", INT32),
                F("transaction_version", INT8, "2+", ignorable=True),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "WriteTxnMarkersResponse",
    "1-2",
    flexible=1,
    fields=(
        F(
            "markers",
            ARRAY(
                F("producer_id", INT64),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "partitions",
                            ARRAY(
                                F("partition_index", INT32),
                                F("error_code", INT16),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    ),
)
