"""DescribeQuorum (key 55, versions 0-2): a quorum of one, this node (KIP-595, KIP-836).

Only partition 0 of __cluster_metadata can be described, any other is UNKNOWN_TOPIC_OR_PARTITION. There is no
metadata log: offsets are 0, times are the current time.

Left out: adding and removing voters (keys 80 and 81), which has no use on a single node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeQuorumRequest,
        DescribeQuorumResponseCurrentVoterDraft,
        DescribeQuorumResponseDraft,
        DescribeQuorumResponseNodeDraft,
        DescribeQuorumResponsePartitionDraft,
    )


KEY = ApiKey.DESCRIBE_QUORUM
VERSIONS = (0, 2)


access = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)


METADATA_TOPIC = "__cluster_metadata"
LISTENER = "CONTROLLER"

_NODES_SINCE = 2


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponseDraft:
    """Return this node as leader and only voter."""
    node: DescribeQuorumResponseNodeDraft = {
        "node_id": context.broker.node_id,
        "listeners": [{"name": LISTENER, "host": context.host, "port": context.port}],
    }
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "topics": [
            {
                "topic_name": topic["topic_name"],
                "partitions": [
                    _described(context, topic["topic_name"], one["partition_index"])
                    for one in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ],
        **({"nodes": [node]} if context.header.api_version >= _NODES_SINCE else {}),
    }


def _described(context: RequestContext, topic: str, index: int) -> DescribeQuorumResponsePartitionDraft:
    if (topic, index) != (METADATA_TOPIC, 0):
        return {
            "partition_index": index,
            "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "error_message": f"the quorum is that of {METADATA_TOPIC}-0",
        }
    now_ms = context.broker.clock.now_ms()
    voter: DescribeQuorumResponseCurrentVoterDraft = {
        "replica_id": context.broker.node_id,
        "log_end_offset": 0,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    return {
        "partition_index": index,
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "leader_id": context.broker.node_id,
        "leader_epoch": 1,
        "high_watermark": 0,
        "current_voters": [voter],
        "observers": [],
    }
