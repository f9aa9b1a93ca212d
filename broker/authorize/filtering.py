"""What the checks of the APIs are made of: `needs`, `topics`, `configs`, `in_turn`, and what they share.

A check removes what is not allowed from a request's lists, and adds it to the answer's lists with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eoslog.broker.authorize.access_request import AccessRequest, Check, RequestRefused, Restore
from eoslog.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from eoslog.protocol.error_places import error_answer, error_of_parts
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AlterConfigsRequestResource,
        ConsumerGroupDescribeResponseGroupDraft,
        DescribeConfigsRequestResource,
        DescribeGroupsResponseGroupDraft,
        DescribeTopicPartitionsResponseTopicDraft,
        IncrementalAlterConfigsRequestResource,
        MetadataResponseTopicDraft,
    )

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
