"""DescribeClientQuotas (key 48, versions 0-1): there are no quotas, so the answer is an empty list (KIP-546).

Kafka's own tool asks for them before it lists the users that have passwords.

Left out: quotas, and with them AlterClientQuotas and the checks of the filter.
"""

from __future__ import annotations

from eoslog.broker.requests.context import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

KEY = ApiKey.DESCRIBE_CLIENT_QUOTAS
VERSIONS = (0, 1)


def handle(context: RequestContext, request: Message) -> Message:
    """Return an empty list."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": []}
