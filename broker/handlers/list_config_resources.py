"""ListConfigResources (key 74, versions 0-1): the resources that have configs, by type (KIP-714, KIP-1142).

Version 1 lists the types in the request, all if it has none. A type that has no configs is
UNSUPPORTED_VERSION.

Left out: levels of loggers and subscriptions to client metrics, as in DescribeConfigs. Version 0, which lists
only such subscriptions, lists none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.broker.resources import ConfigResourceType, resource_of
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponseConfigResourceDraft,
        ListConfigResourcesResponseDraft,
    )


KEY = ApiKey.LIST_CONFIG_RESOURCES
VERSIONS = (0, 1)


access = needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


def handle(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponseDraft:
    """Return the resources, type by type."""
    if context.header.api_version == 0:
        return {"config_resources": []}
    kinds = sorted(set(request["resource_types"])) or [int(kind) for kind in ConfigResourceType]
    if not set(kinds) <= set(ConfigResourceType):
        return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "config_resources": []}
    found: list[ListConfigResourcesResponseConfigResourceDraft] = [
        {"resource_name": name, "resource_type": kind}
        for kind in kinds
        for name in resource_of(context.broker, kind).names()
    ]
    return {"config_resources": found}
