"""The one table of the APIs we speak: key, name, versions, schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from importlib import import_module

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


@dataclass(frozen=True)
class Api:
    """One line of the table.

    Its messages stand in the module that has its name, which is imported when it is first spoken or served: a
    process of Spark's speaks a dozen of them.
    """

    key: ApiKey
    name: str
    min_version: int
    """The lowest version served."""
    max_version: int
    """The highest version served; the schemas may know more."""
    advertised_min: int
    """The lowest version ApiVersions names. For Produce it is lower than what is served: librdkafka drops
    features (compression, idempotence) where the range does not begin at 0."""

    @cached_property
    def request(self) -> Schema:
        """The schema of requests."""
        found: Schema = import_module(self._module).REQUEST
        return found

    @cached_property
    def response(self) -> Schema:
        """The schema of responses."""
        found: Schema = import_module(self._module).RESPONSE
        return found

    @cached_property
    def flexible_from(self) -> int:
        """The first version with compact lengths and tagged fields (KIP-482)."""
        return self.request.flexible_from

    @property
    def _module(self) -> str:
        return f"eoslog.protocol.messages.{self.key.name.lower()}"

    def serves(self, version: int) -> bool:
        """Whether requests of `version` are answered."""
        return self.min_version <= version <= self.max_version


_SERVED = (
    # key, name, lowest and highest version served, lowest version named to clients
    (ApiKey.PRODUCE, "Produce", 3, 13, 0),
    (ApiKey.FETCH, "Fetch", 4, 18, 4),
    (ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 1),
    (ApiKey.METADATA, "Metadata", 0, 13, 0),
    (ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 2),
    (ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 1),
    (ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 0),
    (ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 0),
    (ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 0),
    (ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 0),
    (ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 0),
    (ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 0),
    (ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 0),
    (ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, 0),
    (ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 0),
    (ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 2),
    (ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 1),
    (ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 0),
    (ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 0),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 2),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 0),
    (ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 0),
    (ApiKey.END_TXN, "EndTxn", 0, 5, 0),
    (ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1),
    (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 0),
    (ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 1),
    (ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 1),
    (ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 1),
    (ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 1),
    (ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 0),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 1),
    (ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 4, 1),
    (ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 0),
    (ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 0),
    (ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 0),
    (ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 0),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 0),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 0),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0),
    (ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, 0),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0),
    (ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 0),
    (ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 0),
    (ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0),
    (ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 0),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 0),
    (ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 0),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0),
)


APIS: dict[ApiKey, Api] = {line[0]: Api(*line) for line in _SERVED}
"""What is served and spoken. To serve a further version, raise its number above once its handler is ready."""
