"""AlterReplicaLogDirs (key 34, versions 1-2): there is one data directory (KIP-113).

A move to that directory is accepted and changes nothing; to any other it is LOG_DIR_NOT_FOUND. An unknown
partition is REPLICA_NOT_AVAILABLE, an offline one KAFKA_STORAGE_ERROR.

Left out: several data directories.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponseDraft,
        AlterReplicaLogDirsResponsePartitionDraft,
    )


KEY = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS = (1, 2)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponseDraft:
    """Check each partition separately."""
    here = os.path.abspath(context.broker.topics.data_dir)
    found: dict[str, list[AlterReplicaLogDirsResponsePartitionDraft]] = {}
    for directory in request["dirs"]:
        known = os.path.abspath(directory["path"]) == here
        for topic in directory["topics"]:
            found.setdefault(topic["name"], []).extend(
                {"partition_index": index, "error_code": _checked(context, known, topic["name"], index)}
                for index in topic["partitions"]
            )
    return {"results": [{"topic_name": name, "partitions": parts} for name, parts in found.items()]}


def _checked(context: RequestContext, known: bool, topic: str, index: int) -> ErrorCode:
    if not known:
        return ErrorCode.LOG_DIR_NOT_FOUND
    partition = context.broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE if partition.offline is None else ErrorCode.KAFKA_STORAGE_ERROR
