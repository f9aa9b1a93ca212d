"""DescribeClientQuotas (key 48, versions 0-1): there are no quotas, so the answer is an empty list (KIP-546).

Kafka's own tool asks for them before it lists the users that have passwords.

Left out: quotas, and with them AlterClientQuotas and the checks of the filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponseDraft,
    )


KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = (0, 1)


access = needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)


def handle(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponseDraft:
    """Return an empty list."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": []}
