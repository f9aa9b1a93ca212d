"""DescribeAcls (key 29, versions 1-3): the ACLs that match a filter, by resource.

SECURITY_DISABLED if no authorizer is configured (authorizer.class.name).

Complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.authorize.messages import existing, filter_of, message_of
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import Acl, AclOperation, Pattern, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeAclsRequest,
        DescribeAclsResponseDraft,
        DescribeAclsResponseResourceDraft,
    )


KEY = ApiKey.DESCRIBE_ACLS
VERSIONS = (1, 3)


access = needs(AclOperation.DESCRIBE, ResourceType.CLUSTER)


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponseDraft:
    """Return the ACLs that match the filter."""
    try:
        found = existing(context.broker.authorizer).acls.matching(filter_of(request))
    except KafkaError as error:
        return {"error_code": error.code, "error_message": error.message}
    return {"error_message": None, "resources": [_resource(*group) for group in groupby(found, _pattern)]}


def _pattern(acl: Acl) -> tuple[ResourceType, str, Pattern]:
    return acl.resource, acl.name, acl.pattern


def _resource(
    which: tuple[ResourceType, str, Pattern], acls: Iterable[Acl]
) -> DescribeAclsResponseResourceDraft:
    kind, name, pattern = which
    return {
        "resource_type": kind,
        "resource_name": name,
        "pattern_type": pattern,
        "acls": [message_of(acl) for acl in acls],
    }
