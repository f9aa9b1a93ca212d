"""Every API with the types of its messages, made of the schemas by `make typed`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.protocol.apis import APIS, Api, ApiKey

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        add_offsets_to_txn,
        add_partitions_to_txn,
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

PRODUCE: Api[
    produce.ProduceRequest, produce.ProduceRequestDraft, produce.ProduceResponse, produce.ProduceResponseDraft
] = APIS[ApiKey.PRODUCE]
FETCH: Api[fetch.FetchRequest, fetch.FetchRequestDraft, fetch.FetchResponse, fetch.FetchResponseDraft] = APIS[
    ApiKey.FETCH
]
LIST_OFFSETS: Api[
    list_offsets.ListOffsetsRequest,
    list_offsets.ListOffsetsRequestDraft,
    list_offsets.ListOffsetsResponse,
    list_offsets.ListOffsetsResponseDraft,
] = APIS[ApiKey.LIST_OFFSETS]
METADATA: Api[
    metadata.MetadataRequest,
    metadata.MetadataRequestDraft,
    metadata.MetadataResponse,
    metadata.MetadataResponseDraft,
] = APIS[ApiKey.METADATA]
OFFSET_COMMIT: Api[
    offset_commit.OffsetCommitRequest,
    offset_commit.OffsetCommitRequestDraft,
    offset_commit.OffsetCommitResponse,
    offset_commit.OffsetCommitResponseDraft,
] = APIS[ApiKey.OFFSET_COMMIT]
OFFSET_FETCH: Api[
    offset_fetch.OffsetFetchRequest,
    offset_fetch.OffsetFetchRequestDraft,
    offset_fetch.OffsetFetchResponse,
    offset_fetch.OffsetFetchResponseDraft,
] = APIS[ApiKey.OFFSET_FETCH]
FIND_COORDINATOR: Api[
    find_coordinator.FindCoordinatorRequest,
    find_coordinator.FindCoordinatorRequestDraft,
    find_coordinator.FindCoordinatorResponse,
    find_coordinator.FindCoordinatorResponseDraft,
] = APIS[ApiKey.FIND_COORDINATOR]
JOIN_GROUP: Api[
    join_group.JoinGroupRequest,
    join_group.JoinGroupRequestDraft,
    join_group.JoinGroupResponse,
    join_group.JoinGroupResponseDraft,
] = APIS[ApiKey.JOIN_GROUP]
HEARTBEAT: Api[
    heartbeat.HeartbeatRequest,
    heartbeat.HeartbeatRequestDraft,
    heartbeat.HeartbeatResponse,
    heartbeat.HeartbeatResponseDraft,
] = APIS[ApiKey.HEARTBEAT]
LEAVE_GROUP: Api[
    leave_group.LeaveGroupRequest,
    leave_group.LeaveGroupRequestDraft,
    leave_group.LeaveGroupResponse,
    leave_group.LeaveGroupResponseDraft,
] = APIS[ApiKey.LEAVE_GROUP]
SYNC_GROUP: Api[
    sync_group.SyncGroupRequest,
    sync_group.SyncGroupRequestDraft,
    sync_group.SyncGroupResponse,
    sync_group.SyncGroupResponseDraft,
] = APIS[ApiKey.SYNC_GROUP]
DESCRIBE_GROUPS: Api[
    describe_groups.DescribeGroupsRequest,
    describe_groups.DescribeGroupsRequestDraft,
    describe_groups.DescribeGroupsResponse,
    describe_groups.DescribeGroupsResponseDraft,
] = APIS[ApiKey.DESCRIBE_GROUPS]
LIST_GROUPS: Api[
    list_groups.ListGroupsRequest,
    list_groups.ListGroupsRequestDraft,
    list_groups.ListGroupsResponse,
    list_groups.ListGroupsResponseDraft,
] = APIS[ApiKey.LIST_GROUPS]
SASL_HANDSHAKE: Api[
    sasl_handshake.SaslHandshakeRequest,
    sasl_handshake.SaslHandshakeRequestDraft,
    sasl_handshake.SaslHandshakeResponse,
    sasl_handshake.SaslHandshakeResponseDraft,
] = APIS[ApiKey.SASL_HANDSHAKE]
API_VERSIONS: Api[
    api_versions.ApiVersionsRequest,
    api_versions.ApiVersionsRequestDraft,
    api_versions.ApiVersionsResponse,
    api_versions.ApiVersionsResponseDraft,
] = APIS[ApiKey.API_VERSIONS]
CREATE_TOPICS: Api[
    create_topics.CreateTopicsRequest,
    create_topics.CreateTopicsRequestDraft,
    create_topics.CreateTopicsResponse,
    create_topics.CreateTopicsResponseDraft,
] = APIS[ApiKey.CREATE_TOPICS]
DELETE_TOPICS: Api[
    delete_topics.DeleteTopicsRequest,
    delete_topics.DeleteTopicsRequestDraft,
    delete_topics.DeleteTopicsResponse,
    delete_topics.DeleteTopicsResponseDraft,
] = APIS[ApiKey.DELETE_TOPICS]
DELETE_RECORDS: Api[
    delete_records.DeleteRecordsRequest,
    delete_records.DeleteRecordsRequestDraft,
    delete_records.DeleteRecordsResponse,
    delete_records.DeleteRecordsResponseDraft,
] = APIS[ApiKey.DELETE_RECORDS]
INIT_PRODUCER_ID: Api[
    init_producer_id.InitProducerIdRequest,
    init_producer_id.InitProducerIdRequestDraft,
    init_producer_id.InitProducerIdResponse,
    init_producer_id.InitProducerIdResponseDraft,
] = APIS[ApiKey.INIT_PRODUCER_ID]
OFFSET_FOR_LEADER_EPOCH: Api[
    offset_for_leader_epoch.OffsetForLeaderEpochRequest,
    offset_for_leader_epoch.OffsetForLeaderEpochRequestDraft,
    offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    offset_for_leader_epoch.OffsetForLeaderEpochResponseDraft,
] = APIS[ApiKey.OFFSET_FOR_LEADER_EPOCH]
ADD_PARTITIONS_TO_TXN: Api[
    add_partitions_to_txn.AddPartitionsToTxnRequest,
    add_partitions_to_txn.AddPartitionsToTxnRequestDraft,
    add_partitions_to_txn.AddPartitionsToTxnResponse,
    add_partitions_to_txn.AddPartitionsToTxnResponseDraft,
] = APIS[ApiKey.ADD_PARTITIONS_TO_TXN]
ADD_OFFSETS_TO_TXN: Api[
    add_offsets_to_txn.AddOffsetsToTxnRequest,
    add_offsets_to_txn.AddOffsetsToTxnRequestDraft,
    add_offsets_to_txn.AddOffsetsToTxnResponse,
    add_offsets_to_txn.AddOffsetsToTxnResponseDraft,
] = APIS[ApiKey.ADD_OFFSETS_TO_TXN]
END_TXN: Api[
    end_txn.EndTxnRequest, end_txn.EndTxnRequestDraft, end_txn.EndTxnResponse, end_txn.EndTxnResponseDraft
] = APIS[ApiKey.END_TXN]
WRITE_TXN_MARKERS: Api[
    write_txn_markers.WriteTxnMarkersRequest,
    write_txn_markers.WriteTxnMarkersRequestDraft,
    write_txn_markers.WriteTxnMarkersResponse,
    write_txn_markers.WriteTxnMarkersResponseDraft,
] = APIS[ApiKey.WRITE_TXN_MARKERS]
TXN_OFFSET_COMMIT: Api[
    txn_offset_commit.TxnOffsetCommitRequest,
    txn_offset_commit.TxnOffsetCommitRequestDraft,
    txn_offset_commit.TxnOffsetCommitResponse,
    txn_offset_commit.TxnOffsetCommitResponseDraft,
] = APIS[ApiKey.TXN_OFFSET_COMMIT]
DESCRIBE_ACLS: Api[
    describe_acls.DescribeAclsRequest,
    describe_acls.DescribeAclsRequestDraft,
    describe_acls.DescribeAclsResponse,
    describe_acls.DescribeAclsResponseDraft,
] = APIS[ApiKey.DESCRIBE_ACLS]
CREATE_ACLS: Api[
    create_acls.CreateAclsRequest,
    create_acls.CreateAclsRequestDraft,
    create_acls.CreateAclsResponse,
    create_acls.CreateAclsResponseDraft,
] = APIS[ApiKey.CREATE_ACLS]
DELETE_ACLS: Api[
    delete_acls.DeleteAclsRequest,
    delete_acls.DeleteAclsRequestDraft,
    delete_acls.DeleteAclsResponse,
    delete_acls.DeleteAclsResponseDraft,
] = APIS[ApiKey.DELETE_ACLS]
DESCRIBE_CONFIGS: Api[
    describe_configs.DescribeConfigsRequest,
    describe_configs.DescribeConfigsRequestDraft,
    describe_configs.DescribeConfigsResponse,
    describe_configs.DescribeConfigsResponseDraft,
] = APIS[ApiKey.DESCRIBE_CONFIGS]
ALTER_CONFIGS: Api[
    alter_configs.AlterConfigsRequest,
    alter_configs.AlterConfigsRequestDraft,
    alter_configs.AlterConfigsResponse,
    alter_configs.AlterConfigsResponseDraft,
] = APIS[ApiKey.ALTER_CONFIGS]
ALTER_REPLICA_LOG_DIRS: Api[
    alter_replica_log_dirs.AlterReplicaLogDirsRequest,
    alter_replica_log_dirs.AlterReplicaLogDirsRequestDraft,
    alter_replica_log_dirs.AlterReplicaLogDirsResponse,
    alter_replica_log_dirs.AlterReplicaLogDirsResponseDraft,
] = APIS[ApiKey.ALTER_REPLICA_LOG_DIRS]
DESCRIBE_LOG_DIRS: Api[
    describe_log_dirs.DescribeLogDirsRequest,
    describe_log_dirs.DescribeLogDirsRequestDraft,
    describe_log_dirs.DescribeLogDirsResponse,
    describe_log_dirs.DescribeLogDirsResponseDraft,
] = APIS[ApiKey.DESCRIBE_LOG_DIRS]
SASL_AUTHENTICATE: Api[
    sasl_authenticate.SaslAuthenticateRequest,
    sasl_authenticate.SaslAuthenticateRequestDraft,
    sasl_authenticate.SaslAuthenticateResponse,
    sasl_authenticate.SaslAuthenticateResponseDraft,
] = APIS[ApiKey.SASL_AUTHENTICATE]
CREATE_PARTITIONS: Api[
    create_partitions.CreatePartitionsRequest,
    create_partitions.CreatePartitionsRequestDraft,
    create_partitions.CreatePartitionsResponse,
    create_partitions.CreatePartitionsResponseDraft,
] = APIS[ApiKey.CREATE_PARTITIONS]
DELETE_GROUPS: Api[
    delete_groups.DeleteGroupsRequest,
    delete_groups.DeleteGroupsRequestDraft,
    delete_groups.DeleteGroupsResponse,
    delete_groups.DeleteGroupsResponseDraft,
] = APIS[ApiKey.DELETE_GROUPS]
ELECT_LEADERS: Api[
    elect_leaders.ElectLeadersRequest,
    elect_leaders.ElectLeadersRequestDraft,
    elect_leaders.ElectLeadersResponse,
    elect_leaders.ElectLeadersResponseDraft,
] = APIS[ApiKey.ELECT_LEADERS]
INCREMENTAL_ALTER_CONFIGS: Api[
    incremental_alter_configs.IncrementalAlterConfigsRequest,
    incremental_alter_configs.IncrementalAlterConfigsRequestDraft,
    incremental_alter_configs.IncrementalAlterConfigsResponse,
    incremental_alter_configs.IncrementalAlterConfigsResponseDraft,
] = APIS[ApiKey.INCREMENTAL_ALTER_CONFIGS]
ALTER_PARTITION_REASSIGNMENTS: Api[
    alter_partition_reassignments.AlterPartitionReassignmentsRequest,
    alter_partition_reassignments.AlterPartitionReassignmentsRequestDraft,
    alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    alter_partition_reassignments.AlterPartitionReassignmentsResponseDraft,
] = APIS[ApiKey.ALTER_PARTITION_REASSIGNMENTS]
LIST_PARTITION_REASSIGNMENTS: Api[
    list_partition_reassignments.ListPartitionReassignmentsRequest,
    list_partition_reassignments.ListPartitionReassignmentsRequestDraft,
    list_partition_reassignments.ListPartitionReassignmentsResponse,
    list_partition_reassignments.ListPartitionReassignmentsResponseDraft,
] = APIS[ApiKey.LIST_PARTITION_REASSIGNMENTS]
OFFSET_DELETE: Api[
    offset_delete.OffsetDeleteRequest,
    offset_delete.OffsetDeleteRequestDraft,
    offset_delete.OffsetDeleteResponse,
    offset_delete.OffsetDeleteResponseDraft,
] = APIS[ApiKey.OFFSET_DELETE]
DESCRIBE_CLIENT_QUOTAS: Api[
    describe_client_quotas.DescribeClientQuotasRequest,
    describe_client_quotas.DescribeClientQuotasRequestDraft,
    describe_client_quotas.DescribeClientQuotasResponse,
    describe_client_quotas.DescribeClientQuotasResponseDraft,
] = APIS[ApiKey.DESCRIBE_CLIENT_QUOTAS]
DESCRIBE_USER_SCRAM_CREDENTIALS: Api[
    describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
    describe_user_scram_credentials.DescribeUserScramCredentialsRequestDraft,
    describe_user_scram_credentials.DescribeUserScramCredentialsResponse,
    describe_user_scram_credentials.DescribeUserScramCredentialsResponseDraft,
] = APIS[ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS]
ALTER_USER_SCRAM_CREDENTIALS: Api[
    alter_user_scram_credentials.AlterUserScramCredentialsRequest,
    alter_user_scram_credentials.AlterUserScramCredentialsRequestDraft,
    alter_user_scram_credentials.AlterUserScramCredentialsResponse,
    alter_user_scram_credentials.AlterUserScramCredentialsResponseDraft,
] = APIS[ApiKey.ALTER_USER_SCRAM_CREDENTIALS]
DESCRIBE_QUORUM: Api[
    describe_quorum.DescribeQuorumRequest,
    describe_quorum.DescribeQuorumRequestDraft,
    describe_quorum.DescribeQuorumResponse,
    describe_quorum.DescribeQuorumResponseDraft,
] = APIS[ApiKey.DESCRIBE_QUORUM]
UPDATE_FEATURES: Api[
    update_features.UpdateFeaturesRequest,
    update_features.UpdateFeaturesRequestDraft,
    update_features.UpdateFeaturesResponse,
    update_features.UpdateFeaturesResponseDraft,
] = APIS[ApiKey.UPDATE_FEATURES]
DESCRIBE_CLUSTER: Api[
    describe_cluster.DescribeClusterRequest,
    describe_cluster.DescribeClusterRequestDraft,
    describe_cluster.DescribeClusterResponse,
    describe_cluster.DescribeClusterResponseDraft,
] = APIS[ApiKey.DESCRIBE_CLUSTER]
DESCRIBE_PRODUCERS: Api[
    describe_producers.DescribeProducersRequest,
    describe_producers.DescribeProducersRequestDraft,
    describe_producers.DescribeProducersResponse,
    describe_producers.DescribeProducersResponseDraft,
] = APIS[ApiKey.DESCRIBE_PRODUCERS]
DESCRIBE_TRANSACTIONS: Api[
    describe_transactions.DescribeTransactionsRequest,
    describe_transactions.DescribeTransactionsRequestDraft,
    describe_transactions.DescribeTransactionsResponse,
    describe_transactions.DescribeTransactionsResponseDraft,
] = APIS[ApiKey.DESCRIBE_TRANSACTIONS]
LIST_TRANSACTIONS: Api[
    list_transactions.ListTransactionsRequest,
    list_transactions.ListTransactionsRequestDraft,
    list_transactions.ListTransactionsResponse,
    list_transactions.ListTransactionsResponseDraft,
] = APIS[ApiKey.LIST_TRANSACTIONS]
CONSUMER_GROUP_HEARTBEAT: Api[
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequest,
    consumer_group_heartbeat.ConsumerGroupHeartbeatRequestDraft,
    consumer_group_heartbeat.ConsumerGroupHeartbeatResponse,
    consumer_group_heartbeat.ConsumerGroupHeartbeatResponseDraft,
] = APIS[ApiKey.CONSUMER_GROUP_HEARTBEAT]
CONSUMER_GROUP_DESCRIBE: Api[
    consumer_group_describe.ConsumerGroupDescribeRequest,
    consumer_group_describe.ConsumerGroupDescribeRequestDraft,
    consumer_group_describe.ConsumerGroupDescribeResponse,
    consumer_group_describe.ConsumerGroupDescribeResponseDraft,
] = APIS[ApiKey.CONSUMER_GROUP_DESCRIBE]
LIST_CONFIG_RESOURCES: Api[
    list_config_resources.ListConfigResourcesRequest,
    list_config_resources.ListConfigResourcesRequestDraft,
    list_config_resources.ListConfigResourcesResponse,
    list_config_resources.ListConfigResourcesResponseDraft,
] = APIS[ApiKey.LIST_CONFIG_RESOURCES]
DESCRIBE_TOPIC_PARTITIONS: Api[
    describe_topic_partitions.DescribeTopicPartitionsRequest,
    describe_topic_partitions.DescribeTopicPartitionsRequestDraft,
    describe_topic_partitions.DescribeTopicPartitionsResponse,
    describe_topic_partitions.DescribeTopicPartitionsResponseDraft,
] = APIS[ApiKey.DESCRIBE_TOPIC_PARTITIONS]
