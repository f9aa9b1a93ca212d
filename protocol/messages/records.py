"""The records of partitions: written, read, found by time or epoch, and forgotten."""

from eoslog.protocol.fields import ARRAY, INT8, INT16, INT32, INT64, RECORDS, STRING, STRUCT, UUID, F
from eoslog.protocol.schema import Schema

# Produce (key 0): append a record batch to each of some partitions; by topic id from version 13.

PRODUCE_REQUEST = Schema(
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

PRODUCE_RESPONSE = Schema(
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

# Fetch (key 1): read record batches; version 13 names topics by id (KIP-516).

FETCH_REQUEST = Schema(
    "FetchRequest",
    "4-18",
    flexible=12,
    fields=(
        F("cluster_id", STRING, "12+", nullable=True, default=None, tag=0, ignorable=True),
        F("replica_id", INT32, "4-14", default=-1),
        F(
            "replica_state",
            STRUCT(
                F("replica_id", INT32, default=-1),
                F("replica_epoch", INT64, default=-1),
            ),
            "15+",
            tag=1,
        ),
        F("max_wait_ms", INT32),
        F("min_bytes", INT32),
        F("max_bytes", INT32, default=0x7FFFFFFF),
        F("isolation_level", INT8),
        F("session_id", INT32, "7+", ignorable=True),
        F("session_epoch", INT32, "7+", default=-1, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic", STRING, "4-12", ignorable=True),
                F("topic_id", UUID, "13+", ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("partition", INT32),
                        F("current_leader_epoch", INT32, "9+", default=-1, ignorable=True),
                        F("fetch_offset", INT64),
                        F("last_fetched_epoch", INT32, "12+", default=-1),
                        F("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        F("partition_max_bytes", INT32),
                        F("replica_directory_id", UUID, "17+", tag=0, ignorable=True),
                        F("high_watermark", INT64, "18+", default=0x7FFFFFFFFFFFFFFF, tag=1, ignorable=True),
                    ),
                ),
            ),
        ),
        F(
            "forgotten_topics_data",
            ARRAY(
                F("topic", STRING, "7-12", ignorable=True),
                F("topic_id", UUID, "13+", ignorable=True),
                F("partitions", ARRAY(INT32)),
            ),
            "7+",
        ),
        F("rack_id", STRING, "11+", ignorable=True),
    ),
)

FETCH_RESPONSE = Schema(
    "FetchResponse",
    "4-18",
    flexible=12,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "7+", ignorable=True),
        F("session_id", INT32, "7+"),
        F(
            "responses",
            ARRAY(
                F("topic", STRING, "4-12", ignorable=True),
                F("topic_id", UUID, "13+", ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("high_watermark", INT64),
                        F("last_stable_offset", INT64, default=-1),
                        F("log_start_offset", INT64, "5+", default=-1, ignorable=True),
                        F(
                            "diverging_epoch",
                            STRUCT(
                                F("epoch", INT32, default=-1),
                                F("end_offset", INT64, default=-1),
                            ),
                            "12+",
                            tag=0,
                        ),
                        F(
                            "current_leader",
                            STRUCT(
                                F("leader_id", INT32, default=-1),
                                F("leader_epoch", INT32, default=-1),
                            ),
                            "12+",
                            tag=1,
                        ),
                        F(
                            "snapshot_id",
                            STRUCT(
                                F("end_offset", INT64, default=-1),
                                F("epoch", INT32, default=-1),
                            ),
                            "12+",
                            tag=2,
                        ),
                        F(
                            "aborted_transactions",
                            ARRAY(
                                F("producer_id", INT64),
                                F("first_offset", INT64),
                            ),
                            nullable=True,
                        ),
                        F("preferred_read_replica", INT32, "11+", default=-1),
                        F("records", RECORDS, nullable=True),
                    ),
                ),
            ),
        ),
        F(
            "node_endpoints",
            ARRAY(
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, nullable=True, default=None),
            ),
            "16+",
            tag=0,
        ),
    ),
)

# ListOffsets (key 2): the offset for a timestamp; -1 latest, -2 earliest, -3 the largest timestamp.

LIST_OFFSETS_REQUEST = Schema(
    "ListOffsetsRequest",
    "1-11",
    flexible=6,
    fields=(
        F("replica_id", INT32),
        F("isolation_level", INT8, "2+"),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("current_leader_epoch", INT32, "4+", default=-1, ignorable=True),
                        F("timestamp", INT64),
                    ),
                ),
            ),
        ),
        F("timeout_ms", INT32, "10+", ignorable=True),
    ),
)

LIST_OFFSETS_RESPONSE = Schema(
    "ListOffsetsResponse",
    "1-11",
    flexible=6,
    fields=(
        F("throttle_time_ms", INT32, "2+", ignorable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("timestamp", INT64, default=-1),
                        F("offset", INT64, default=-1),
                        F("leader_epoch", INT32, "4+", default=-1),
                    ),
                ),
            ),
        ),
    ),
)

# DeleteRecords (key 21): move partitions' log start offsets forward (KIP-107).

DELETE_RECORDS_REQUEST = Schema(
    "DeleteRecordsRequest",
    "0-2",
    flexible=2,
    fields=(
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("offset", INT64),
                    ),
                ),
            ),
        ),
        F("timeout_ms", INT32),
    ),
)

DELETE_RECORDS_RESPONSE = Schema(
    "DeleteRecordsResponse",
    "0-2",
    flexible=2,
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
                        F("low_watermark", INT64),
                        F("error_code", INT16),
                    ),
                ),
            ),
        ),
    ),
)

# OffsetForLeaderEpoch (key 23): where a leader epoch ends in the log (KIP-101, KIP-320).

OFFSET_FOR_LEADER_EPOCH_REQUEST = Schema(
    "OffsetForLeaderEpochRequest",
    "2-4",
    flexible=4,
    fields=(
        F("replica_id", INT32, "3+", default=-2, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition", INT32),
                        F("current_leader_epoch", INT32, default=-1, ignorable=True),
                        F("leader_epoch", INT32),
                    ),
                ),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH_RESPONSE = Schema(
    "OffsetForLeaderEpochResponse",
    "2-4",
    flexible=4,
    fields=(
        F("throttle_time_ms", INT32, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("error_code", INT16),
                        F("partition", INT32),
                        F("leader_epoch", INT32, default=-1, ignorable=True),
                        F("end_offset", INT64, default=-1),
                    ),
                ),
            ),
        ),
    ),
)
