"""ListPartitionReassignments (key 46, version 0): there never is one on a single node (KIP-455).

Complete.
"""

from __future__ import annotations

from eoslog.broker.requests.context import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

KEY = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS = (0, 0)


def handle(context: RequestContext, request: Message) -> Message:
    """Return an empty list."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": []}
