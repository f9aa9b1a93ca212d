"""SyncGroup (key 14, versions 0-5): get a member's assignment; the leader sends everybody's.

The answer comes when the leader has sent them. Static members from version 3 (KIP-345); from version 5 the
protocol's type and name must be given, are checked and returned (KIP-559).

Complete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.coordinator.groups.classic_group_state import Sync, SyncAnswer
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import SyncGroupRequest, SyncGroupResponseDraft


KEY = ApiKey.SYNC_GROUP
VERSIONS = (0, 5)


access = needs(AclOperation.READ, ResourceType.GROUP, "group_id")


_NAMES_SINCE = 5


def handle(
    context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponseDraft | Settled[SyncGroupResponseDraft]:
    """Pass the sync to the group, unless it does not say what it must."""
    named = request["protocol_type"] is not None and request["protocol_name"] is not None
    if context.header.api_version >= _NAMES_SINCE and not named:
        return {"error_code": ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
    event = Sync(
        member_id=request["member_id"],
        instance_id=request["group_instance_id"],
        generation=request["generation_id"],
        protocol_type=request["protocol_type"],
        protocol=request["protocol_name"],
        assignments={a["member_id"]: bytes(a["assignment"]) for a in request["assignments"]},
    )
    pending = context.broker.groups.sync(request["group_id"], event)
    return _body(pending.result()) if pending.done() else Settled(_answer(pending))


async def _answer(pending: asyncio.Future[SyncAnswer]) -> SyncGroupResponseDraft:
    return _body(await pending)


def _body(answer: SyncAnswer) -> SyncGroupResponseDraft:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
