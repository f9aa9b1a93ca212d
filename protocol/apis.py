"""The one table of the APIs we speak: key, name, versions, schemas."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from types import ModuleType

from eoslog.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    api_versions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_groups,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    sync_group,
    txn_offset_commit,
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
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


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
    (ApiKey.API_VERSIONS, "ApiVersions", 0, 4, 0, api_versions),
    (ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 2, create_topics),
    (ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 1, delete_topics),
    (ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 5, 0, init_producer_id),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 0, add_partitions_to_txn),
    (ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 0, add_offsets_to_txn),
    (ApiKey.END_TXN, "EndTxn", 0, 5, 0, end_txn),
    (ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 1, write_txn_markers),
    (ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 0, txn_offset_commit),
    (ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 0, describe_cluster),
    (ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, describe_producers),
    (ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, describe_transactions),
    (ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 0, list_transactions),
)


def _api(key: ApiKey, name: str, lowest: int, highest: int, advertised: int, messages: ModuleType) -> Api:
    request: Schema = messages.REQUEST
    return Api(key, name, lowest, highest, request.flexible_from, request, messages.RESPONSE, advertised)


APIS: dict[ApiKey, Api] = {line[0]: _api(*line) for line in _SERVED}
"""What is served and spoken. To serve a further version, raise its number above once its handler is ready."""
