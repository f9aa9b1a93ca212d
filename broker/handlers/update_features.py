"""UpdateFeatures (key 57, versions 0-2): levels of features are fixed (KIP-584).

A feature may be set to the level it has, which changes nothing. Any other level, and any other feature, is
INVALID_UPDATE_VERSION, and then the whole request is refused.

Left out: changing levels; transaction.version=2 also serves clients of the older protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import needs
from eoslog.broker.handlers.api_versions import FEATURES
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        UpdateFeaturesRequest,
        UpdateFeaturesResponseDraft,
        UpdateFeaturesResponseResultDraft,
    )


KEY = ApiKey.UPDATE_FEATURES
VERSIONS = (0, 2)


access = needs(AclOperation.ALTER, ResourceType.CLUSTER)


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponseDraft:
    """Confirm all features, or refuse them all."""
    names = [update["feature"] for update in request["feature_updates"]]
    for update in request["feature_updates"]:
        refused = _refusal(update["feature"], update["max_version_level"])
        if refused:
            code = ErrorCode.INVALID_UPDATE_VERSION
            return {"error_code": code, "error_message": refused, "results": []}
    kept: list[UpdateFeaturesResponseResultDraft] = [
        {"feature": name, "error_code": ErrorCode.NONE, "error_message": None} for name in names
    ]
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": kept}


def _refusal(name: str, level: int) -> str | None:
    """Why a feature cannot have a level, None if it has that level."""
    has = FEATURES.get(name)
    if has is None:
        return f"there is no feature {name}"
    return None if level == has else f"the level of {name} is {has}, not {level}"
