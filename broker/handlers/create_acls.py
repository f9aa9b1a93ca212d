"""CreateAcls (key 30, versions 1-3): add ACLs.

Each ACL is checked separately. The valid ones are added together, durable before the answer. An ACL that
exists already is not an error. SECURITY_DISABLED if no authorizer is configured (authorizer.class.name).

Complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.authorize.messages import acl_of, existing
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import Acl, AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        CreateAclsRequest,
        CreateAclsResponseDraft,
        CreateAclsResponseResultDraft,
    )


logger = logging.getLogger(__name__)

KEY = ApiKey.CREATE_ACLS
VERSIONS = (1, 3)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponseDraft:
    """Add the ACLs and return each one's result, in order."""
    right: list[Acl] = []
    results: list[CreateAclsResponseResultDraft] = []
    for wanted in request["creations"]:
        try:
            right.append(acl_of(wanted))
            results.append({"error_message": None})
        except KafkaError as error:
            results.append(_refused(error))
    try:
        existing(context.broker.authorizer).add(right)
        for acl in right:
            logger.info("%s from %s adds the ACL %s", context.principal, context.client_host, acl)
    except KafkaError as error:
        return {"results": [_refused(error) for _ in results]}
    return {"results": results}


def _refused(error: KafkaError) -> CreateAclsResponseResultDraft:
    return {"error_code": error.code, "error_message": error.message}
