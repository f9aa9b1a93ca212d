"""DescribeCluster (key 60, versions 0-2): the one node (KIP-700).

Controllers (endpoint type 2) cannot be described: a broker answers that with MISMATCHED_ENDPOINT_TYPE, and an
unknown type with UNSUPPORTED_ENDPOINT_TYPE.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, Restore, cluster_operations
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import DescribeClusterRequest, DescribeClusterResponseDraft


KEY = ApiKey.DESCRIBE_CLUSTER
VERSIONS = (0, 2)


def access(
    asked: AccessRequest[DescribeClusterRequest],
) -> Restore[DescribeClusterResponseDraft] | None:
    """Open to all, except for the authorized operations."""
    if not asked.request["include_cluster_authorized_operations"]:
        return None

    def restore(answer: DescribeClusterResponseDraft) -> DescribeClusterResponseDraft:
        if answer.get("error_code"):
            return answer
        return answer | {"cluster_authorized_operations": cluster_operations(asked)}

    return restore


NOT_ASKED = -(2**31)
"""The value of authorized operations that were not asked for."""

CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
"""All operations on a cluster, as bits by their number: without an authorizer all are allowed."""

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: RequestContext, request: DescribeClusterRequest) -> DescribeClusterResponseDraft:
    """Return this node as the only broker."""
    broker = context.broker
    kind = request["endpoint_type"]
    if kind != _BROKERS:
        known = kind == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        return {
            "error_code": code,
            "error_message": f"endpoint type {kind}: this is a broker, type {_BROKERS}",
            "endpoint_type": kind,
            "cluster_id": broker.cluster_id,
        }
    asked = request["include_cluster_authorized_operations"]
    return {
        "cluster_id": broker.cluster_id,
        "controller_id": broker.node_id,
        "brokers": [{"broker_id": broker.node_id, "host": context.host, "port": context.port}],
        "cluster_authorized_operations": CLUSTER_OPERATIONS if asked else NOT_ASKED,
    }
