"""Produce (key 0): append a record batch to each of some partitions; by topic id from version 13."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "ProduceRequest",
    "3-13",
    flexible=9,
    fields=(
        F("transactional_id", STRING, nullable=True, default=None),
        F("acks", INT16),
        F("timeout_ms", INT32),
        F(
            "topic_data",
            ARRAY(
                F("name", STRING, "3-12", ignorable=True),
                F("topic_id", UUID, "13+", ignorable=True),
                F(
                    "partition_data",
                    ARRAY(
                        F("index", INT32),
                        F("records", RECORDS, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "ProduceResponse",
    "3-13",
    flexible=9,
    fields=(
        F(
            "responses",
            ARRAY(
                F("name", STRING, "3-12", ignorable=True),
                F("topic_id", UUID, "13+", ignorable=True),
                F(
                    "partition_responses",
                    ARRAY(
                        F("index", INT32),
                        F("error_code", INT16),
                        F("base_offset", INT64),
                        F("log_append_time_ms", INT64, default=-1),
                        F("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        F(
                            "record_errors",
                            ARRAY(
                                F("batch_index", INT32),
                                F("batch_index_error_message", STRING, nullable=True, default=None),
                            ),
                            "8+",
                            ignorable=True,
                        ),
                        F("error_message", STRING, "8+", nullable=True, default=None, ignorable=True),
                        F(
                            "current_leader",
                            STRUCT(
                                F("leader_id", INT32, default=-1),
                                F("leader_epoch", INT32, default=-1),
                            ),
                            "10+",
                            tag=0,
                        ),
                    ),
                ),
            ),
        ),
        F("throttle_time_ms", INT32),
        F(
            "node_endpoints",
            ARRAY(
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, nullable=True, default=None),
            ),
            "10+",
            tag=0,
        ),
    ),
)
