"""DescribeQuorum (key 55): the state of the metadata quorum (KIP-595)."""

from eoslog.protocol.fields import ARRAY, INT16, INT32, INT64, STRING, UINT16, UUID, F
from eoslog.protocol.schema import Schema

REQUEST = Schema(
    "DescribeQuorumRequest",
    "0-2",
    flexible=0,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic_name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                    ),
                ),
            ),
        ),
    ),
)

RESPONSE = Schema(
    "DescribeQuorumResponse",
    "0-2",
    flexible=0,
    fields=(
        F("error_code", INT16),
        F("error_message", STRING, "2+", nullable=True, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic_name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, "2+", nullable=True, ignorable=True),
                        F("leader_id", INT32),
                        F("leader_epoch", INT32),
                        F("high_watermark", INT64),
                        F(
                            "current_voters",
                            ARRAY(
                                F("replica_id", INT32),
                                F("replica_directory_id", UUID, "2+"),
                                F("log_end_offset", INT64),
                                F("last_fetch_timestamp", INT64, "1+", default=-1, ignorable=True),
                                F("last_caught_up_timestamp", INT64, "1+", default=-1, ignorable=True),
                            ),
                        ),
                        F(
                            "observers",
                            ARRAY(
                                F("replica_id", INT32),
                                F("replica_directory_id", UUID, "2+"),
                                F("log_end_offset", INT64),
                                F("last_fetch_timestamp", INT64, "1+", default=-1, ignorable=True),
                                F("last_caught_up_timestamp", INT64, "1+", default=-1, ignorable=True),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        F(
            "nodes",
            ARRAY(
                F("node_id", INT32, "2+"),
                F(
                    "listeners",
                    ARRAY(
                        F("name", STRING, "2+"),
                        F("host", STRING, "2+"),
                        F("port", UINT16, "2+"),
                    ),
                    "2+",
                ),
            ),
            "2+",
        ),
    ),
)
