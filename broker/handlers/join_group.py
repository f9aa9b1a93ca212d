"""JoinGroup (key 11, versions 0-9): join a classic consumer group, or join it again.

The answer comes when the join phase ends. From version 4 new dynamic members get their id in a first answer
(MEMBER_ID_REQUIRED, KIP-394). Static members from version 5 (KIP-345). From version 9 the leader of an
unchanged group may be asked to skip the assignment (KIP-814). Version 0 has no rebalance time-out; its
session time-out is used. A classic group may replace a consumer group (KIP-848) without members, and keeps
its offsets.

Left out: a consumer group that has members refuses members of the classic protocol
(INCONSISTENT_GROUP_PROTOCOL).
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.coordinator.groups.classic_group_state import Join, JoinAnswer
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.protocol.typed import JoinGroupRequest, JoinGroupResponseDraft


KEY = ApiKey.JOIN_GROUP
VERSIONS = (0, 9)


access = needs(AclOperation.READ, ResourceType.GROUP, "group_id")


_KNOWN_ID = 4
_NULL_PROTOCOL = 7
_SKIP_ASSIGNMENT = 9


def handle(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponseDraft | Settled[JoinGroupResponseDraft]:
    """Pass the join to the group."""
    version = context.header.api_version
    pending = context.broker.groups.join(request["group_id"], _event(context, request))
    return _body(pending.result(), version) if pending.done() else Settled(_answer(pending, version))


def _event(context: RequestContext, request: JoinGroupRequest) -> Join:
    version = context.header.api_version
    client_id = context.header.client_id or ""
    instance_id = request["group_instance_id"]
    session = request["session_timeout_ms"]
    rebalance = request["rebalance_timeout_ms"]
    return Join(
        member_id=request["member_id"],
        instance_id=instance_id,
        client_id=client_id,
        client_host=context.client_host,
        protocol_type=request["protocol_type"],
        protocols=tuple((p["name"], bytes(p["metadata"])) for p in request["protocols"]),
        session_timeout_ms=session,
        rebalance_timeout_ms=session if rebalance < 0 else rebalance,
        new_member_id=f"{client_id if instance_id is None else instance_id}-{uuid.uuid4()}",
        requires_known_id=version >= _KNOWN_ID,
        can_skip_assignment=version >= _SKIP_ASSIGNMENT,
    )


async def _answer(pending: asyncio.Future[JoinAnswer], version: int) -> JoinGroupResponseDraft:
    return _body(await pending, version)


def _body(answer: JoinAnswer, version: int) -> JoinGroupResponseDraft:
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": "" if answer.protocol is None and version < _NULL_PROTOCOL else answer.protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [{"member_id": m, "group_instance_id": i, "metadata": d} for m, i, d in answer.members],
    }
