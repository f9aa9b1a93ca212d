"""ApiVersions (key 18, versions 0-4): what this broker serves.

The list is made from what the handlers declare. From version 3 the answer names finalized features:
transaction.version=2, by which Java clients choose the newer transaction protocol (KIP-890), and
group.version=1, which says that there are consumer groups (KIP-848). To a client named eoslog it also says
what EndTxn offers, in the tagged field `ends_together`, which is eoslog's own. A client's name and version
must follow KIP-511's pattern, else INVALID_REQUEST.

Complete.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import everybody
from eoslog.broker.requests import RequestContext
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import ApiVersionsRequest, ApiVersionsResponseDraft


KEY = ApiKey.API_VERSIONS
VERSIONS = (0, 4)


access = everybody


_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
OURS = "eoslog"
"""The name of the client whose answer has eoslog's own field; all others get Kafka's answer."""
FEATURES = {"group.version": 1, "transaction.version": 2}
"""The finalized features and their levels."""


def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponseDraft:
    """Return the list of served APIs and the finalized features."""
    error = ErrorCode.NONE
    if context.header.api_version >= 3 and not _named_well(request):
        error = ErrorCode.INVALID_REQUEST
    # Below version 4 a supported feature that begins at 0 breaks the Java client (KAFKA-17011).
    lowest = 0 if context.header.api_version >= 4 else 1
    return {
        "error_code": error,
        "api_keys": context.broker.announced(),
        "supported_features": [
            {"name": name, "min_version": lowest, "max_version": level} for name, level in FEATURES.items()
        ],
        "finalized_features_epoch": 0,
        "finalized_features": [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in FEATURES.items()
        ],
        "ends_together": request.get("client_software_name") == OURS,
    }


def _named_well(request: ApiVersionsRequest) -> bool:
    named = request["client_software_name"], request["client_software_version"]
    return all(_SOFTWARE.fullmatch(one) for one in named)
