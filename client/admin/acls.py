"""Access rules of a cluster (KIP-11, KIP-290): list, add and remove them with the standard requests."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from eoslog.client.wire.cluster import Cluster, ask_controller, not_allowed
from eoslog.client.wire.retry import retrying
from eoslog.errors import EoslogError
from eoslog.protocol.acls import Acl, AclFilter, AclOperation, Pattern, Permission, ResourceType
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.typed import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreateAclsRequestCreationDraft,
        CreateAclsResponseResult,
        DeleteAclsRequestDraft,
        DeleteAclsResponseFilterResult,
        DeleteAclsResponseMatchingAcl,
        DescribeAclsRequestDraft,
        DescribeAclsResponse,
        DescribeAclsResponseAcl,
        DescribeAclsResponseResource,
    )


_Kind = TypeVar("_Kind", bound=IntEnum)

_SWITCHED_OFF = (
    "this cluster has no access rules: they are switched on by authorizer.class.name at the brokers, "
    "see security.md"
)


_Result: TypeAlias = (
    "DescribeAclsResponse | CreateAclsResponseResult | DeleteAclsResponseFilterResult"
    " | DeleteAclsResponseMatchingAcl"
)


def list_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The rules that match a filter, in order. Raises KafkaError, EoslogError."""

    def attempt() -> list[Acl]:
        answer = cluster.any_broker().call(DESCRIBE_ACLS, _filter(wanted))
        refusal = _refusal(answer, "Describe")
        if refusal is not None:
            raise refusal
        return [_acl(resource, rule) for resource in answer["resources"] for rule in resource["acls"]]

    return sorted(retrying(cluster, "DescribeAcls", attempt))


def add_acls(cluster: Cluster, acls: Sequence[Acl]) -> list[KafkaError | None]:
    """Add rules. Returns why each was refused, None for each that was added. Raises EoslogError."""
    creations: list[CreateAclsRequestCreationDraft] = [
        {
            "resource_type": acl.resource,
            "resource_name": acl.name,
            "resource_pattern_type": acl.pattern,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation,
            "permission_type": acl.permission,
        }
        for acl in acls
    ]
    answer = ask_controller(
        cluster, CREATE_ACLS, {"creations": creations}, lambda answer: _first(answer["results"])
    )
    return [_refusal(result, "Alter") for result in answer["results"]]


def remove_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> tuple[list[Acl], list[KafkaError]]:
    """Remove the rules that match the filters. Returns these and the refusals. Raises EoslogError."""
    body: DeleteAclsRequestDraft = {"filters": [_filter(wanted) for wanted in filters]}
    answer = ask_controller(cluster, DELETE_ACLS, body, lambda answer: _first(answer["filter_results"]))
    gone: list[Acl] = []
    refused: list[KafkaError] = []
    for result in answer["filter_results"]:
        refusal = _refusal(result, "Alter")
        if refusal is not None:
            refused.append(refusal)
        for matching in result["matching_acls"]:
            refusal = _refusal(matching, "Alter")
            if refusal is not None:
                refused.append(refusal)
            else:
                gone.append(_acl(matching, matching))
    return sorted(set(gone)), refused


def _first(results: Sequence[_Result]) -> int:
    return next((result["error_code"] for result in results if result["error_code"]), 0)


def _filter(wanted: AclFilter) -> DescribeAclsRequestDraft:
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _acl(
    resource: DescribeAclsResponseResource | DeleteAclsResponseMatchingAcl,
    rule: DescribeAclsResponseAcl | DeleteAclsResponseMatchingAcl,
) -> Acl:
    return Acl(
        _known(ResourceType, resource["resource_type"]),
        resource["resource_name"],
        _known(Pattern, resource["pattern_type"]),
        rule["principal"],
        rule["host"],
        _known(AclOperation, rule["operation"]),
        _known(Permission, rule["permission_type"]),
    )


def _known(kind: type[_Kind], number: int) -> _Kind:
    """The member with this number; UNKNOWN for one of a later version of Kafka."""
    return kind(number) if number in kind.__members__.values() else kind(0)


def _refusal(result: _Result, right: str) -> KafkaError | None:
    """The error in one result, if any.

    Raises EoslogError if every rule would be refused: rules are switched off, or the user lacks this right on
    the cluster.
    """
    code = result["error_code"]
    if code == ErrorCode.SECURITY_DISABLED:
        raise EoslogError(_SWITCHED_OFF)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise not_allowed("access rules", right)
    return KafkaError(code, result["error_message"] or "") if code else None
