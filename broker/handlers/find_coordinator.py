"""FindCoordinator (key 10, versions 0-6): which broker coordinates a group or a transactional id.

There is one broker, so it is always this one, at the address by which the client reached it. The topic of the
coordinator's state is created on first use. A request may have several keys from version 4 (KIP-699).

Left out: share groups (key type 2), answered with INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.authorize.access import (
    GROUP_DENIED,
    TRANSACTION_DENIED,
    AccessRequest,
    RequestRefused,
    Restore,
    refusal,
    remove_denied,
)
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import FindCoordinatorRequest, FindCoordinatorResponseDraft


KEY = ApiKey.FIND_COORDINATOR
VERSIONS = (0, 6)


_BATCHED = 4


def access(
    asked: AccessRequest[FindCoordinatorRequest],
) -> RequestRefused[FindCoordinatorResponseDraft] | Restore[FindCoordinatorResponseDraft] | None:
    """Needs DESCRIBE on the group or the transactional id."""
    kinds = {0: (ResourceType.GROUP, GROUP_DENIED), 1: (ResourceType.TRANSACTIONAL_ID, TRANSACTION_DENIED)}
    found = kinds.get(asked.request["key_type"])
    if found is None:
        return None  # the handler knows no other
    resource, code = found
    if asked.version < _BATCHED:
        allowed = asked.may(AclOperation.DESCRIBE, resource, asked.request["key"])
        return None if allowed else refusal(asked, code)
    return remove_denied(
        asked, "coordinator_keys", lambda key: asked.may(AclOperation.DESCRIBE, resource, key), code
    )


TOPICS = {0: "__consumer_offsets", 1: "__transaction_state"}
"""The internal topic of each key type."""


class _Place(NamedTuple):
    """What an answer says of its key, or from version 4 on of each."""

    error_code: int
    node_id: int
    host: str
    port: int
    error_message: str = ""


def handle(context: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponseDraft:
    """Answer with this broker for every key."""
    place = _place(context, request["key_type"])
    if context.header.api_version < _BATCHED:
        return {
            "error_code": place.error_code,
            "error_message": place.error_message,
            "node_id": place.node_id,
            "host": place.host,
            "port": place.port,
        }
    return {
        "coordinators": [
            {
                "key": key,
                "error_code": place.error_code,
                "error_message": place.error_message,
                "node_id": place.node_id,
                "host": place.host,
                "port": place.port,
            }
            for key in request["coordinator_keys"]
        ]
    }


def _place(context: RequestContext, key_type: int) -> _Place:
    try:
        topic = TOPICS.get(key_type)
        if topic is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there are no coordinators of key type {key_type}")
        context.broker.topics.internal(topic)
    except KafkaError as error:
        code = error.code
        if code is not ErrorCode.INVALID_REQUEST:
            # Clients try again after this error; they do not understand others here.
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _Place(code, -1, "", -1, str(error))
    return _Place(0, context.broker.node_id, context.host, context.port)
