"""LeaveGroup (key 13, versions 0-5): members leave a classic group at once, without a time-out.

Up to version 2 a request has one member, whose error is the request's. From version 3 it has a list, each
member with its own error; an administrator may name static members by instance id alone (KIP-345).

Complete.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.coordinator.groups.classic_group_state import Leave, LeaveAnswer
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        LeaveGroupRequest,
        LeaveGroupResponseDraft,
        LeaveGroupResponseMemberDraft,
    )


KEY = ApiKey.LEAVE_GROUP
VERSIONS = (0, 5)


access = needs(AclOperation.READ, ResourceType.GROUP, "group_id")


_BATCHED = 3


def handle(
    context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponseDraft | Settled[LeaveGroupResponseDraft]:
    """Pass the leave to the group."""
    version = context.header.api_version
    if version < _BATCHED:
        members: tuple[tuple[str, str | None], ...] = ((request["member_id"], None),)
    else:
        members = tuple((m["member_id"], m["group_instance_id"]) for m in request["members"])
    pending = context.broker.groups.leave(request["group_id"], Leave(members))
    return _body(pending.result(), version) if pending.done() else Settled(_answer(pending, version))


async def _answer(pending: asyncio.Future[LeaveAnswer], version: int) -> LeaveGroupResponseDraft:
    return _body(await pending, version)


def _body(answer: LeaveAnswer, version: int) -> LeaveGroupResponseDraft:
    if version < _BATCHED:
        return {"error_code": answer.error or next((error for _, _, error in answer.members), 0)}
    left: list[LeaveGroupResponseMemberDraft] = [
        {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
        for member_id, instance_id, error in answer.members
    ]
    return {"error_code": answer.error, "members": left}
