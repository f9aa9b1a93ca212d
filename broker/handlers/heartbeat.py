"""Heartbeat (key 12, versions 0-4): a member of a classic group is alive, and learns of rebalances.

Static members from version 3 (KIP-345).

Complete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.coordinator.groups.classic_group_state import Heartbeat, HeartbeatAnswer
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.protocol.typed import HeartbeatRequest, HeartbeatResponseDraft


KEY = ApiKey.HEARTBEAT
VERSIONS = (0, 4)


access = needs(AclOperation.READ, ResourceType.GROUP, "group_id")


def handle(
    context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponseDraft | Settled[HeartbeatResponseDraft]:
    """Pass the heartbeat to the group."""
    event = Heartbeat(request["member_id"], request["group_instance_id"], request["generation_id"])
    pending = context.broker.groups.heartbeat(request["group_id"], event)
    return {"error_code": pending.result().error} if pending.done() else Settled(_answer(pending))


async def _answer(pending: asyncio.Future[HeartbeatAnswer]) -> HeartbeatResponseDraft:
    return {"error_code": (await pending).error}
