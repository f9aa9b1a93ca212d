"""ListPartitionReassignments (key 46, version 0): there never is one on a single node (KIP-455).

Complete.
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
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponseDraft,
    )


KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


access = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponseDraft:
    """Return an empty list."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": []}
