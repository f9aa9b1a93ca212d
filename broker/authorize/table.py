"""The access that each API needs, in one table: API key -> check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize import groups, record_access, topics, transactions
from eoslog.broker.authorize.access_request import AccessRequest, Check, RequestRefused
from eoslog.broker.authorize.filtering import everybody, needs
from eoslog.broker.rules.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponseDraft,
        DescribeLogDirsRequest,
        DescribeLogDirsResponseDraft,
    )


_O, _CLUSTER = AclOperation, ResourceType.CLUSTER


def _credentials_refused(
    asked: AccessRequest[AlterUserScramCredentialsRequest], code: ErrorCode
) -> RequestRefused[AlterUserScramCredentialsResponseDraft]:
    """A user appears once in the answer, however many changes were requested."""
    changes = [*asked.request["deletions"], *asked.request["upsertions"]]
    names = dict.fromkeys(change["name"] for change in changes)
    return RequestRefused({"results": [{"user": name, "error_code": code} for name in names]})


def _log_dirs_hidden(
    asked: AccessRequest[DescribeLogDirsRequest], code: ErrorCode
) -> RequestRefused[DescribeLogDirsResponseDraft]:
    """The answer lists directories, which no request names; before version 3 it is empty."""
    return RequestRefused({"error_code": code})


TABLE: dict[int, Check] = {
    ApiKey.PRODUCE: record_access.produce,
    ApiKey.FETCH: record_access.fetch,
    ApiKey.LIST_OFFSETS: record_access.list_offsets,
    ApiKey.METADATA: topics.metadata,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.FIND_COORDINATOR: transactions.find_coordinator,
    ApiKey.JOIN_GROUP: groups.member,
    ApiKey.HEARTBEAT: groups.member,
    ApiKey.LEAVE_GROUP: groups.member,
    ApiKey.SYNC_GROUP: groups.member,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.SASL_HANDSHAKE: everybody,
    ApiKey.API_VERSIONS: everybody,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: record_access.delete_records,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: record_access.offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: needs(_O.DESCRIBE, _CLUSTER),
    ApiKey.CREATE_ACLS: needs(_O.ALTER, _CLUSTER),
    ApiKey.DELETE_ACLS: needs(_O.ALTER, _CLUSTER),
    ApiKey.DESCRIBE_CONFIGS: topics.configs(_O.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: topics.configs(_O.ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: topics.configs(_O.ALTER_CONFIGS),
    ApiKey.ALTER_REPLICA_LOG_DIRS: needs(_O.ALTER, _CLUSTER),
    ApiKey.DESCRIBE_LOG_DIRS: needs(_O.DESCRIBE, _CLUSTER, refuse=_log_dirs_hidden),
    ApiKey.SASL_AUTHENTICATE: everybody,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.ELECT_LEADERS: needs(_O.ALTER, _CLUSTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: needs(_O.ALTER, _CLUSTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: needs(_O.DESCRIBE, _CLUSTER),
    ApiKey.OFFSET_DELETE: groups.offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: needs(_O.DESCRIBE_CONFIGS, _CLUSTER),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: needs(_O.DESCRIBE, _CLUSTER),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: needs(_O.ALTER, _CLUSTER, refuse=_credentials_refused),
    ApiKey.DESCRIBE_QUORUM: needs(_O.DESCRIBE, _CLUSTER),
    ApiKey.UPDATE_FEATURES: needs(_O.ALTER, _CLUSTER),
    ApiKey.DESCRIBE_CLUSTER: topics.describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: record_access.describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.describe_consumer_groups,
    ApiKey.LIST_CONFIG_RESOURCES: needs(_O.DESCRIBE_CONFIGS, _CLUSTER),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
}
"""Kafka's access rules. A new API needs a line here; without one nobody may use it."""
