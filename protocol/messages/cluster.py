"""The cluster: its brokers, leaders, coordinators, quorum and features, and where partitions are."""

from eoslog.protocol.fields import ARRAY, BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, F
from eoslog.protocol.schema import Schema

# Metadata (key 3): brokers, topics and the leaders of their partitions.

METADATA_REQUEST = Schema(
    "MetadataRequest",
    "0-13",
    flexible=9,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic_id", UUID, "10+", ignorable=True),
                F("name", STRING, nullable="10+"),
            ),
            nullable="1+",
        ),
        F("allow_auto_topic_creation", BOOL, "4+", default=True),
        F("include_cluster_authorized_operations", BOOL, "8-10"),
        F("include_topic_authorized_operations", BOOL, "8+"),
    ),
)

METADATA_RESPONSE = Schema(
    "MetadataResponse",
    "0-13",
    flexible=9,
    fields=(
        F("throttle_time_ms", INT32, "3+", ignorable=True),
        F(
            "brokers",
            ARRAY(
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, "1+", nullable=True, default=None, ignorable=True),
            ),
        ),
        F("cluster_id", STRING, "2+", nullable=True, default=None, ignorable=True),
        F("controller_id", INT32, "1+", default=-1, ignorable=True),
        F(
            "topics",
            ARRAY(
                F("error_code", INT16),
                F("name", STRING, nullable="12+"),
                F("topic_id", UUID, "10+", ignorable=True),
                F("is_internal", BOOL, "1+", ignorable=True),
                F(
                    "partitions",
                    ARRAY(
                        F("error_code", INT16),
                        F("partition_index", INT32),
                        F("leader_id", INT32),
                        F("leader_epoch", INT32, "7+", default=-1, ignorable=True),
                        F("replica_nodes", ARRAY(INT32)),
                        F("isr_nodes", ARRAY(INT32)),
                        F("offline_replicas", ARRAY(INT32), "5+", ignorable=True),
                    ),
                ),
                F("topic_authorized_operations", INT32, "8+", default=-2147483648),
            ),
        ),
        F("cluster_authorized_operations", INT32, "8-10", default=-2147483648),
        F("error_code", INT16, "13+", ignorable=True),
    ),
)

# FindCoordinator (key 10): the coordinator of groups (type 0) or transactional ids (type 1).

FIND_COORDINATOR_REQUEST = Schema(
    "FindCoordinatorRequest",
    "0-6",
    flexible=3,
    fields=(
        F("key", STRING, "0-3"),
        F("key_type", INT8, "1+"),
        F("coordinator_keys", ARRAY(STRING), "4+"),
    ),
)

FIND_COORDINATOR_RESPONSE = Schema(
    "FindCoordinatorResponse",
    "0-6",
    flexible=3,
    fields=(
        F("throttle_time_ms", INT32, "1+", ignorable=True),
        F("error_code", INT16, "0-3"),
        F("error_message", STRING, "1-3", nullable=True, ignorable=True),
        F("node_id", INT32, "0-3"),
        F("host", STRING, "0-3"),
        F("port", INT32, "0-3"),
        F(
            "coordinators",
            ARRAY(
                F("key", STRING),
                F("node_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
            "4+",
        ),
    ),
)

# ElectLeaders (key 43): elect partition leaders (KIP-183, KIP-460).

ELECT_LEADERS_REQUEST = Schema(
    "ElectLeadersRequest",
    "0-2",
    flexible=2,
    fields=(
        F("election_type", INT8, "1+"),
        F(
            "topic_partitions",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            nullable=True,
        ),
        F("timeout_ms", INT32, default=60000),
    ),
)

ELECT_LEADERS_RESPONSE = Schema(
    "ElectLeadersResponse",
    "0-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "1+"),
        F(
            "replica_election_results",
            ARRAY(
                F("topic", STRING),
                F(
                    "partition_result",
                    ARRAY(
                        F("partition_id", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

# AlterReplicaLogDirs (key 34): move replicas to another log directory (KIP-113).

ALTER_REPLICA_LOG_DIRS_REQUEST = Schema(
    "AlterReplicaLogDirsRequest",
    "1-2",
    flexible=2,
    fields=(
        F(
            "dirs",
            ARRAY(
                F("path", STRING),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F("partitions", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)

ALTER_REPLICA_LOG_DIRS_RESPONSE = Schema(
    "AlterReplicaLogDirsResponse",
    "1-2",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F(
            "results",
            ARRAY(
                F("topic_name", STRING),
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
)

# DescribeLogDirs (key 35): sizes of the log directories and of what is in them (KIP-113).

DESCRIBE_LOG_DIRS_REQUEST = Schema(
    "DescribeLogDirsRequest",
    "1-5",
    flexible=2,
    fields=(
        F(
            "topics",
            ARRAY(
                F("topic", STRING),
                F("partitions", ARRAY(INT32)),
            ),
            nullable=True,
        ),
    ),
)

DESCRIBE_LOG_DIRS_RESPONSE = Schema(
    "DescribeLogDirsResponse",
    "1-5",
    flexible=2,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16, "3+", ignorable=True),
        F(
            "results",
            ARRAY(
                F("error_code", INT16),
                F("log_dir", STRING),
                F(
                    "topics",
                    ARRAY(
                        F("name", STRING),
                        F(
                            "partitions",
                            ARRAY(
                                F("partition_index", INT32),
                                F("partition_size", INT64),
                                F("offset_lag", INT64),
                                F("is_future_key", BOOL),
                            ),
                        ),
                    ),
                ),
                F("total_bytes", INT64, "4+", default=-1, ignorable=True),
                F("usable_bytes", INT64, "4+", default=-1, ignorable=True),
                F("is_cordoned", BOOL, "5+", ignorable=True),
            ),
        ),
    ),
)

# AlterPartitionReassignments (key 45): move partitions to other brokers (KIP-455).

ALTER_PARTITION_REASSIGNMENTS_REQUEST = Schema(
    "AlterPartitionReassignmentsRequest",
    "0-1",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F("allow_replication_factor_change", BOOL, "1+", default=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("replicas", ARRAY(INT32), nullable=True, default=None),
                    ),
                ),
            ),
        ),
    ),
)

ALTER_PARTITION_REASSIGNMENTS_RESPONSE = Schema(
    "AlterPartitionReassignmentsResponse",
    "0-1",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("allow_replication_factor_change", BOOL, "1+", default=True, ignorable=True),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "responses",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("error_code", INT16),
                        F("error_message", STRING, nullable=True),
                    ),
                ),
            ),
        ),
    ),
)

# ListPartitionReassignments (key 46): the moves of partitions under way (KIP-455).

LIST_PARTITION_REASSIGNMENTS_REQUEST = Schema(
    "ListPartitionReassignmentsRequest",
    "0",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F("partition_indexes", ARRAY(INT32)),
            ),
            nullable=True,
            default=None,
        ),
    ),
)

LIST_PARTITION_REASSIGNMENTS_RESPONSE = Schema(
    "ListPartitionReassignmentsResponse",
    "0",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "topics",
            ARRAY(
                F("name", STRING),
                F(
                    "partitions",
                    ARRAY(
                        F("partition_index", INT32),
                        F("replicas", ARRAY(INT32)),
                        F("adding_replicas", ARRAY(INT32)),
                        F("removing_replicas", ARRAY(INT32)),
                    ),
                ),
            ),
        ),
    ),
)

# DescribeQuorum (key 55): the state of the metadata quorum (KIP-595).

DESCRIBE_QUORUM_REQUEST = Schema(
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

DESCRIBE_QUORUM_RESPONSE = Schema(
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

# UpdateFeatures (key 57): change finalized features (KIP-584).

UPDATE_FEATURES_REQUEST = Schema(
    "UpdateFeaturesRequest",
    "0-2",
    flexible=0,
    fields=(
        F("timeout_ms", INT32, default=60000),
        F(
            "feature_updates",
            ARRAY(
                F("feature", STRING),
                F("max_version_level", INT16),
                F("allow_downgrade", BOOL, "0"),
                F("upgrade_type", INT8, "1+", default=1),
            ),
        ),
        F("validate_only", BOOL, "1+"),
    ),
)

UPDATE_FEATURES_RESPONSE = Schema(
    "UpdateFeaturesResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True),
        F(
            "results",
            ARRAY(
                F("feature", STRING),
                F("error_code", INT16),
                F("error_message", STRING, nullable=True),
            ),
            "0-1",
            ignorable=True,
        ),
    ),
)

# DescribeCluster (key 60): the cluster's id, controller and brokers.

DESCRIBE_CLUSTER_REQUEST = Schema(
    "DescribeClusterRequest",
    "0-2",
    flexible=0,
    fields=(
        F("include_cluster_authorized_operations", BOOL),
        F("endpoint_type", INT8, "1+", default=1),
        F("include_fenced_brokers", BOOL, "2+"),
    ),
)

DESCRIBE_CLUSTER_RESPONSE = Schema(
    "DescribeClusterResponse",
    "0-2",
    flexible=0,
    fields=(
        F("throttle_time_ms", INT32),
        F("error_code", INT16),
        F("error_message", STRING, nullable=True, default=None),
        F("endpoint_type", INT8, "1+", default=1),
        F("cluster_id", STRING),
        F("controller_id", INT32, default=-1),
        F(
            "brokers",
            ARRAY(
                F("broker_id", INT32),
                F("host", STRING),
                F("port", INT32),
                F("rack", STRING, nullable=True, default=None),
                F("is_fenced", BOOL, "2+"),
            ),
        ),
        F("cluster_authorized_operations", INT32, default=-2147483648),
    ),
)
