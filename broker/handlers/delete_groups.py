"""DeleteGroups (key 42, versions 0-2): delete groups without members, and their offsets.

Every group in the request is answered (librdkafka stops the process otherwise): GROUP_ID_NOT_FOUND,
NON_EMPTY_GROUP, or no error once the deletion is durable. Offsets of open transactions for the group are
deleted as well.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import GROUP_DENIED, AccessRequest, Restore, remove_denied
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import DeleteGroupsRequest, DeleteGroupsResponseDraft


KEY = ApiKey.DELETE_GROUPS
VERSIONS = (0, 2)


def access(asked: AccessRequest[DeleteGroupsRequest]) -> Restore[DeleteGroupsResponseDraft] | None:
    """Needs DELETE on each group."""
    return remove_denied(
        asked,
        "groups_names",
        lambda group: asked.may(AclOperation.DELETE, ResourceType.GROUP, group),
        GROUP_DENIED,
    )


def handle(context: RequestContext, request: DeleteGroupsRequest) -> Settled[DeleteGroupsResponseDraft]:
    """Delete each group separately: one that is refused does not stop the others."""
    begun = [(group_id, _delete(context, group_id)) for group_id in dict.fromkeys(request["groups_names"])]
    return Settled(_answer(begun))


def _delete(context: RequestContext, group_id: str) -> Awaitable[None] | ErrorCode:
    try:
        return context.broker.groups.delete(group_id)
    except KafkaError as error:
        return error.code


async def _answer(begun: list[tuple[str, Awaitable[None] | ErrorCode]]) -> DeleteGroupsResponseDraft:
    return {"results": [{"group_id": g, "error_code": await _error(pending)} for g, pending in begun]}


async def _error(pending: Awaitable[None] | ErrorCode) -> ErrorCode:
    if isinstance(pending, ErrorCode):
        return pending
    try:
        await pending
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
