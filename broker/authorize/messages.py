"""ACLs and ACL filters in the messages of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import ip_network
from typing import TYPE_CHECKING, TypeVar

from eoslog.broker.core.authorizer import Authorizer
from eoslog.protocol.acls import CLUSTER_NAME, Acl, AclFilter, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreateAclsRequestCreation,
        DeleteAclsRequestFilter,
        DescribeAclsRequest,
        DescribeAclsResponseAclDraft,
    )


NO_AUTHORIZER = "No Authorizer is configured. Start the broker with authorizer.class.name."

_Kind = TypeVar("_Kind", bound=IntEnum)


def existing(authorizer: Authorizer | None) -> Authorizer:
    """The authorizer. Raises KafkaError SECURITY_DISABLED if there is none."""
    if authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    return authorizer


def filter_of(wanted: DescribeAclsRequest | DeleteAclsRequestFilter) -> AclFilter:
    """A filter. Raises KafkaError INVALID_REQUEST."""
    return AclFilter(
        _known(ResourceType, wanted["resource_type_filter"], "resource type"),
        wanted["resource_name_filter"],
        _known(Pattern, wanted["pattern_type_filter"], "pattern type"),
        wanted["principal_filter"],
        wanted["host_filter"],
        _known(AclOperation, wanted["operation"], "operation"),
        _known(Permission, wanted["permission_type"], "permission type"),
    )


def acl_of(wanted: CreateAclsRequestCreation) -> Acl:
    """A rule to create. Raises KafkaError INVALID_REQUEST that says what is wrong with it."""
    acl = Acl(
        _known(ResourceType, wanted["resource_type"], "resource type"),
        wanted["resource_name"],
        _known(Pattern, wanted["resource_pattern_type"], "pattern type"),
        wanted["principal"],
        wanted["host"],
        _known(AclOperation, wanted["operation"], "operation"),
        _known(Permission, wanted["permission_type"], "permission type"),
    )
    _check(acl)
    return acl


def message_of(acl: Acl) -> DescribeAclsResponseAclDraft:
    """The fields of a rule that all answers have."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def _known(kind: type[_Kind], number: int, what: str) -> _Kind:
    try:
        value = kind(number)
    except ValueError:
        value = kind(0)
    if not value:
        raise _wrong(f"{what} {number} is unknown")
    return value


def _check(acl: Acl) -> None:
    for value in (acl.resource, acl.operation, acl.permission):
        if value == 1:
            raise _wrong(f"{type(value).__name__} ANY is for filters only")
    if acl.pattern not in (Pattern.LITERAL, Pattern.PREFIXED):
        raise _wrong(f"pattern type {acl.pattern.name} is for filters only")
    if not acl.name:
        raise _wrong("the resource name is empty")
    if acl.resource is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise _wrong(f"the only name of a CLUSTER resource is {CLUSTER_NAME}")
    kind, colon, name = acl.principal.partition(":")
    if not (kind and colon and name):
        raise _wrong(f"principal {acl.principal!r}: give TYPE:NAME, as User:alice")
    if not acl.host:
        raise _wrong("the host is empty; * stands for every host")
    if "/" in acl.host:
        try:
            ip_network(acl.host, strict=False)
        except ValueError as error:
            raise _wrong(f"host {acl.host}: {error}") from error


def _wrong(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, why)
