"""DeleteAcls (key 31, versions 1-3): remove the ACLs that match filters, and list them.

Durable before the answer. SECURITY_DISABLED if no authorizer is configured (authorizer.class.name).

Complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.authorize.messages import existing, filter_of, message_of
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import Acl, AclFilter, AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DeleteAclsRequest,
        DeleteAclsResponseDraft,
        DeleteAclsResponseFilterResultDraft,
    )


logger = logging.getLogger(__name__)

KEY = ApiKey.DELETE_ACLS
VERSIONS = (1, 3)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponseDraft:
    """Remove, all together, the ACLs that the valid filters match."""
    filters: list[AclFilter] = []
    errors: dict[int, KafkaError] = {}
    for index, wanted in enumerate(request["filters"]):
        try:
            filters.append(filter_of(wanted))
        except KafkaError as error:
            errors[index] = error
    try:
        found = existing(context.broker.authorizer).remove(filters)
    except KafkaError as error:
        return {"filter_results": [_refused(error) for _ in request["filters"]]}
    for acl in dict.fromkeys(acl for acls in found for acl in acls):
        logger.info("%s from %s removes the ACL %s", context.principal, context.client_host, acl)
    removed = iter(found)
    return {
        "filter_results": [
            _refused(errors[index]) if index in errors else _removed(next(removed))
            for index in range(len(request["filters"]))
        ]
    }


def _refused(error: KafkaError) -> DeleteAclsResponseFilterResultDraft:
    return {"error_code": error.code, "error_message": error.message}


def _removed(acls: list[Acl]) -> DeleteAclsResponseFilterResultDraft:
    return {
        "error_message": None,
        "matching_acls": [
            {
                "error_code": ErrorCode.NONE,
                "error_message": None,
                "resource_type": acl.resource,
                "resource_name": acl.name,
                "pattern_type": acl.pattern,
                **message_of(acl),
            }
            for acl in acls
        ],
    }
