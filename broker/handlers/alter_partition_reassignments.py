"""AlterPartitionReassignments (key 45, versions 0-1): partitions stay on the one node (KIP-455).

An assignment to this node alone is accepted and changes nothing; any other is INVALID_REPLICA_ASSIGNMENT.
Cancelling gets NO_REASSIGNMENT_IN_PROGRESS, as there never is one. Unknown partitions are
UNKNOWN_TOPIC_OR_PARTITION.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.partition_creation import check_replicas
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsRequestPartition,
        AlterPartitionReassignmentsResponseDraft,
        AlterPartitionReassignmentsResponsePartitionDraft,
    )


KEY = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS = (0, 1)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponseDraft:
    """Check each partition separately."""
    return {
        "allow_replication_factor_change": request["allow_replication_factor_change"],
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "responses": [
            {
                "name": topic["name"],
                "partitions": [_checked(context, topic["name"], one) for one in topic["partitions"]],
            }
            for topic in request["topics"]
        ],
    }


def _checked(
    context: RequestContext, topic: str, wanted: AlterPartitionReassignmentsRequestPartition
) -> AlterPartitionReassignmentsResponsePartitionDraft:
    index, replicas = wanted["partition_index"], wanted["replicas"]
    code, message = ErrorCode.NONE, None
    try:
        if context.broker.topics.partition(topic, index) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if replicas is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way")
        check_replicas(context.broker.node_id, replicas)
    except KafkaError as error:
        code, message = error.code, error.message
    return {"partition_index": index, "error_code": code, "error_message": message}
