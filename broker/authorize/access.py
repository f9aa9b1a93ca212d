"""What a handler's `access` is made of, and the guard that asks it before the handler runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from eoslog.broker.core.authorizer import Authorizer
from eoslog.broker.requests import CloseConnection, Settled
from eoslog.broker.rules.acls import Client
from eoslog.protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, ResourceType
from eoslog.protocol.error_places import error_answer, error_of_parts
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.requests import Handler, RequestContext
    from eoslog.broker.topics.topics import Topics
    from eoslog.protocol.frames import RequestHeader
    from eoslog.protocol.typed import (
        AlterConfigsRequestResource,
        ConsumerGroupDescribeResponseGroupDraft,
        DescribeConfigsRequestResource,
        DescribeGroupsResponseGroupDraft,
        DescribeTopicPartitionsResponseTopicDraft,
        IncrementalAlterConfigsRequestResource,
        MetadataResponseTopicDraft,
    )

# -- a request and its rights ----------------------------------------------------------------------
# A request to authorize, the possible results of a check, and the log of refusals: in the format of Kafka's
# authorizer, with a bound on the number of lines.


logger = logging.getLogger("eoslog.broker.authorizer")

MOST_LOGGED = 20
"""Refusals of one principal that get a line each, in `WINDOW_S`. Further ones are only counted."""
WINDOW_S = 1.0


class Audit:
    """Logs what was refused to which principal; on the event loop."""

    def __init__(self) -> None:
        self._logged: Counter[str] = Counter()  # by principal, in this window
        self._more: Counter[tuple[str, str, int]] = Counter()  # by principal, host and API key

    def denied(
        self, client: Client, key: int, operation: AclOperation, resource: ResourceType, name: str
    ) -> None:
        """Log that a client may not do what it asked for with the API `key`."""
        if not self._logged:
            asyncio.get_running_loop().call_later(WINDOW_S, self._end_window)
        self._logged[client.principal] += 1
        if self._logged[client.principal] > MOST_LOGGED:
            self._more[client.principal, client.host, key] += 1
            return
        logger.info(
            "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s"
            " for request = %d",
            client.principal, operation.name, client.host, resource.name, name, key,
        )  # fmt: skip

    def _end_window(self) -> None:
        self._logged.clear()
        for (principal, host, key), count in self._more.most_common(MOST_LOGGED):
            logger.info(
                "Principal = %s is Denied %d times more from host = %s for request = %d",
                principal, count, host, key,
            )  # fmt: skip
        self._more.clear()


Request = TypeVar("Request")
Answer = TypeVar("Answer")

Restore: TypeAlias = Callable[[Answer], Answer]
"""Adds to an answer what was removed from its request."""


@dataclass(frozen=True, slots=True)
class RequestRefused(Generic[Answer]):
    """The whole request is refused with this answer; None where the API has no answer for that."""

    answer: Answer | None


class AccessRequest(Generic[Request]):
    """A request to authorize, and its client."""

    __slots__ = ("_audit", "_authorizer", "client", "key", "request", "topics", "version")

    def __init__(
        self,
        authorizer: Authorizer,
        audit: Audit,
        client: Client,
        key: int,
        version: int,
        request: Request,
        topics: Topics,
    ) -> None:
        """Checks remove from `request` what is not allowed."""
        self._authorizer, self._audit = authorizer, audit
        self.client = client
        self.key, self.version, self.request = key, version, request
        self.topics = topics

    def may(self, operation: AclOperation, resource: ResourceType, name: str, *, log: bool = True) -> bool:
        """Whether the client may do this. `log`: log a refusal, since the client asked for this."""
        allowed = self._authorizer.allows(self.client, operation, resource, name)
        if not allowed and log:
            self._audit.denied(self.client, self.key, operation, resource, name)
        return allowed

    def may_topic(self, operation: AclOperation, name: str) -> bool:
        """Whether the client may do this to a topic."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_cluster(self, operation: AclOperation, *, log: bool = True) -> bool:
        """Whether the client may do this to the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def may_some(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the client may do this to at least one possible resource of this type."""
        return self._authorizer.allows_some(self.client, operation, resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """All operations that the client may do to a resource, as bits by their numbers."""
        return sum(1 << o for o in SUPPORTED[resource] if self.may(o, resource, name, log=False))

    def topic_name(self, topic: Mapping[str, object], field: str = "name") -> str | None:
        """The name of a topic that the request has by name or id; None for an unknown id."""
        name, topic_id = topic.get(field), topic.get("topic_id")
        if name and isinstance(name, str):
            return name
        found = self.topics.by_id(topic_id) if isinstance(topic_id, bytes) else None
        return None if found is None else found.name


Check = Callable[[AccessRequest[Any]], RequestRefused[Any] | Restore[Any] | None]


# -- filtering -------------------------------------------------------------------------------------
# What the checks of the APIs are made of: `needs`, `topics`, `configs`, `in_turn`, and what they share.
#
# A check removes what is not allowed from a request's lists, and adds it to the answer's lists with an error.


CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code by type of resource where access is denied."""

TOPIC_DENIED = CODES[ResourceType.TOPIC]
GROUP_DENIED = CODES[ResourceType.GROUP]
CLUSTER_DENIED = CODES[ResourceType.CLUSTER]
TRANSACTION_DENIED = CODES[ResourceType.TRANSACTIONAL_ID]

NO_ID = bytes(16)

Item = TypeVar("Item")


def split(items: Iterable[Item], allowed: Callable[[Item], bool]) -> tuple[list[Item], list[Item]]:
    """The items that are allowed, and those that are not."""
    kept: list[Item] = []
    denied: list[Item] = []
    for item in items:
        (kept if allowed(item) else denied).append(item)
    return kept, denied


def remove_denied(
    asked: AccessRequest[Any],
    field: str,
    allowed: Callable[[Any], bool],
    code: ErrorCode | Callable[[Any], ErrorCode],
    message: str | None = None,
) -> Restore[Any] | None:
    """Remove the items of `field` that are not allowed; the answer has `code`, or its result, for each."""
    kept, denied = split(asked.request[field] or (), allowed)
    if not denied:
        return None
    asked.request[field] = kept
    return appended(denied_entries(asked, field, denied, code, message))


def denied_entries(
    asked: AccessRequest[Any],
    field: str,
    items: Iterable[Any],
    code: ErrorCode | Callable[[Any], ErrorCode],
    message: str | None = None,
) -> Any:
    """The lists of the answer that have an error for each of these items of `field`."""
    lists: Message = {}
    for item in items:
        its_code = code(item) if callable(code) else code
        parts = error_of_parts(asked.key, asked.version, {field: [item]}, its_code, message)
        for name, entries in parts.items():
            lists.setdefault(name, []).extend(entries)
    return lists


def appended(lists: Message) -> Restore[Any]:
    """Adds entries to lists of the answer."""

    def restore(answer: Message) -> Message:
        longer = {name: [*answer.get(name, ()), *more] for name, more in lists.items() if more}
        return answer | longer

    return restore


def refusal(asked: AccessRequest[Any], code: ErrorCode) -> RequestRefused[Any]:
    """An answer that refuses everything in the request; empty where the request is."""
    return RequestRefused(error_answer(asked.key, asked.version, asked.request, code) or {})


def topics(operation: AclOperation, name: str = "name", field: str = "topics") -> Check:
    """A check for APIs that name topics with partitions: each topic is checked by itself."""

    def check(asked: AccessRequest[Any]) -> Restore[Any] | None:
        def allowed(topic: Mapping[str, object]) -> bool:
            found = asked.topic_name(topic, name)
            return found is None or asked.may_topic(operation, found)

        return remove_denied(asked, field, allowed, TOPIC_DENIED)

    return check


def needs(
    operation: AclOperation,
    resource: ResourceType,
    name: str | None = None,
    refuse: Callable[[AccessRequest[Any], ErrorCode], RequestRefused[Any]] = refusal,
) -> Check:
    """A check for APIs about one resource, named in the field `name`; without `name`, the cluster."""

    def check(asked: AccessRequest[Any]) -> RequestRefused[Any] | None:
        which = CLUSTER_NAME if name is None else asked.request[name]
        if asked.may(operation, resource, which):
            return None
        return refuse(asked, CODES[resource])

    return check


def everybody(asked: AccessRequest[Any]) -> None:
    """A check for APIs that are open to all."""


def in_turn(*checks: Check) -> Check:
    """All of these checks in order; the first that refuses the whole request ends it."""

    def check(asked: AccessRequest[Any]) -> RequestRefused[Any] | Restore[Any] | None:
        restores: list[Restore[Any]] = []
        for one in checks:
            checked = one(asked)
            if isinstance(checked, RequestRefused):
                return checked
            if checked is not None:
                restores.append(checked)
        return _chained(restores) if restores else None

    return check


def _chained(restores: list[Restore[Any]]) -> Restore[Any]:
    def restore(answer: Message) -> Message:
        for one in restores:
            answer = one(answer)
        return answer

    return restore


_Group: TypeAlias = "DescribeGroupsResponseGroupDraft | ConsumerGroupDescribeResponseGroupDraft"


def add_group_operations(asked: AccessRequest[Any], groups: Iterable[_Group]) -> None:
    """Add to each group of an answer what the client may do to it."""
    for group in groups:
        if not group.get("error_code"):
            group["authorized_operations"] = asked.operations(ResourceType.GROUP, group["group_id"])


def add_topic_operations(
    asked: AccessRequest[Any], topic: MetadataResponseTopicDraft | DescribeTopicPartitionsResponseTopicDraft
) -> None:
    """Add to a topic of an answer what the client may do to it."""
    name = topic.get("name")
    if name and not topic.get("error_code"):
        topic["topic_authorized_operations"] = asked.operations(ResourceType.TOPIC, name)


def cluster_operations(asked: AccessRequest[Any]) -> int:
    """The operations that the client may do to the cluster, as bits; none if it may not describe it."""
    if not asked.may_cluster(AclOperation.DESCRIBE):
        return 0
    return asked.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def may_create_topic(asked: AccessRequest[Any], name: str) -> bool:
    """Whether the client may create this topic: by a right on the cluster, or on the topic."""
    return asked.may_cluster(AclOperation.CREATE, log=False) or asked.may_topic(AclOperation.CREATE, name)


def configs(operation: AclOperation) -> Check:
    """Needs the operation on each topic or group, and on the cluster for all other resources."""

    def where(
        resource: AlterConfigsRequestResource
        | DescribeConfigsRequestResource
        | IncrementalAlterConfigsRequestResource,
    ) -> tuple[ResourceType, str]:
        kind = _CONFIG_OF.get(resource["resource_type"], ResourceType.CLUSTER)
        return kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else resource["resource_name"]

    def check(asked: AccessRequest[Any]) -> Restore[Any] | None:
        return remove_denied(
            asked,
            "resources",
            lambda resource: asked.may(operation, *where(resource)),
            lambda resource: CODES[where(resource)[0]],
        )

    return check


# Resource types of the config APIs -> the type whose ACLs apply; all others: the cluster's.
_CONFIG_OF = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}


# -- guard -----------------------------------------------------------------------------------------
# Authorizes each request before its handler runs.
#
# Each API has a check: `access` in its handler's file. The check may answer in the handler's place
# (`RequestRefused`). It may remove what is not allowed from the request, and return a function that adds it
# to the answer with its error code. Or it may return None: the request goes on unchanged. An API without a
# check is refused to everybody.


class Guard:
    """Runs the checks before the handlers."""

    def __init__(self, authorizer: Authorizer, checks: Mapping[int, Check]) -> None:
        self._authorizer, self._checks, self._audit = authorizer, checks, Audit()

    def around(self, header: RequestHeader, handler: Handler) -> Handler:
        """The handler, preceded by its API's check."""
        check = self._checks.get(header.api_key)

        def guarded(context: RequestContext, request: Message) -> Any:
            if check is None:
                raise CloseConnection(f"API key {header.api_key} has no access rule, so nobody may use it")
            asked = self.asked(context, request)
            checked = check(asked)
            if isinstance(checked, RequestRefused):
                if checked.answer is None:
                    raise CloseConnection(f"{context.principal} may not use API key {header.api_key}")
                return checked.answer
            result = handler(context, request)
            return result if checked is None else _restored(result, checked)

        return guarded

    def asked(self, context: RequestContext, request: Message) -> AccessRequest[Any]:
        """The request, as checks get it."""
        header = context.header
        client = Client(context.principal, context.client_host)
        topics = context.broker.topics
        return AccessRequest(
            self._authorizer, self._audit, client, header.api_key, header.api_version, request, topics
        )


def _restored(result: Message | Awaitable[Message | None] | None, restore: Restore[Any]) -> Any:
    """What a handler returned, with the refusals added to its answer, now or later."""
    if isinstance(result, Settled):
        return Settled(_later(result, restore))
    if isinstance(result, Awaitable):
        return _later(result, restore)
    return _unanswered() if result is None else restore(result)


def _later(result: Awaitable[Message | None], restore: Restore[Any]) -> Coroutine[Any, Any, Message | None]:
    async def answer() -> Message | None:
        message = await result
        return _unanswered() if message is None else restore(message)

    return answer()


def _unanswered() -> Message:
    """With acks=0 there is no answer for a refusal: the connection is closed, as after any error."""
    raise CloseConnection("access was denied, and acks=0 leaves no answer to say so")
