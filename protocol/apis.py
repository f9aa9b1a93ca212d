"""The one table of the APIs we speak: key, name, versions, schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType

from eoslog.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from eoslog.protocol.schema import Schema


class ApiKey(IntEnum):
    """Kafka's numbers for the APIs we speak."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


@dataclass(frozen=True, slots=True)
class Api:
    """One line of the table."""

    key: ApiKey
    name: str
    min_version: int
    """The lowest version served."""
    max_version: int
    """The highest version served; the schemas may know more."""
    flexible_from: int
    """The first version with compact lengths and tagged fields (KIP-482)."""
    request: Schema
    response: Schema
    advertised_min: int
    """The lowest version ApiVersions names. For Produce it is lower than what is served: librdkafka drops
    features (compression, idempotence) where the range does not begin at 0."""

    def serves(self, version: int) -> bool:
        """Whether requests of `version` are answered."""
        return self.min_version <= version <= self.max_version


_SERVED = (
    # key, name, lowest and highest version served, lowest version named to clients, messages
    (ApiKey.PRODUCE, "Produce", 3, 13, 0, produce),
    (ApiKey.FETCH, "Fetch", 4, 18, 4, fetch),
    (ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 1, list_offsets),
    (ApiKey.METADATA, "Metadata", 0, 13, 0, metadata),
    (ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 2, offset_commit),
    (ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 1, offset_fetch),
    (ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 0, find_coordinator),
    (ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 0, join_group),
    (ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 0, heartbeat),
    (ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 0, leave_group),
    (ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 0, sync_group),
    (ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 0, describe_groups),
    (ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 0, list_groups),
    (ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, 0, sasl_handshake),
    (ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 0, api_versions),
    (ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 2, create_topics),
    (ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 1, delete_topics),
    (ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 0, delete_records),
    (ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 0, init_producer_id),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 2, offset_for_leader_epoch),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 0, add_partitions_to_txn),
    (ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 0, add_offsets_to_txn),
    (ApiKey.END_TXN, "EndTxn", 0, 5, 0, end_txn),
    (ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1, write_txn_markers),
    (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 0, txn_offset_commit),
    (ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 1, describe_acls),
    (ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 1, create_acls),
    (ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 1, delete_acls),
    (ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 1, describe_configs),
    (ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 0, alter_configs),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 1, alter_replica_log_dirs),
    (ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 1, describe_log_dirs),
    (ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 0, sasl_authenticate),
    (ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 0, create_partitions),
    (ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 0, delete_groups),
    (ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 0, elect_leaders),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 0, incremental_alter_configs),
    (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        "AlterPartitionReassignments",
        0,
        1,
        0,
        alter_partition_reassignments,
    ),
    (
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        "ListPartitionReassignments",
        0,
        0,
        0,
        list_partition_reassignments,
    ),
    (ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, 0, offset_delete),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 0, describe_client_quotas),
    (ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 0, alter_client_quotas),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        "DescribeUserScramCredentials",
        0,
        0,
        0,
        describe_user_scram_credentials,
    ),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0, alter_user_scram_credentials),
    (ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0, describe_quorum),
    (ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0, update_features),
    (ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0, describe_cluster),
    (ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, describe_producers),
    (ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, describe_transactions),
    (ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0, list_transactions),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0, consumer_group_heartbeat),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0, consumer_group_describe),
    (ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0, list_config_resources),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, describe_topic_partitions),
)


def _api(key: ApiKey, name: str, lowest: int, highest: int, advertised: int, messages: ModuleType) -> Api:
    request: Schema = messages.REQUEST
    return Api(key, name, lowest, highest, request.flexible_from, request, messages.RESPONSE, advertised)


APIS: dict[ApiKey, Api] = {line[0]: _api(*line) for line in _SERVED}
"""What is served and spoken. To serve a further version, raise its number above once its handler is ready."""
