"""UpdateFeatures (key 57, versions 0-2): features' levels are fixed (KIP-584).

A feature may be set to the level it has, which changes nothing; any other level, and any other feature, is
INVALID_UPDATE_VERSION. A request that names a feature twice, or none, is INVALID_REQUEST. From version 2 on
all is refused if one is.

Left out: changing levels; transaction.version=2 serves clients of the older protocol too.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.broker.handlers.api_versions import FEATURES
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.schema import Message

KEY = ApiKey.UPDATE_FEATURES


def handle(context: RequestContext, request: Message) -> Message:
    """Judge each feature, and refuse the whole request from version 2 on."""
    names = [update["feature"] for update in request["feature_updates"]]
    if not names or len(set(names)) < len(names):
        message = "name at least one feature, and none twice"
        return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": message, "results": []}
    results = [_judged(update) for update in request["feature_updates"]]
    refused = next((result for result in results if result["error_code"]), None)
    if refused and context.header.api_version >= 2:
        return {key: refused[key] for key in ("error_code", "error_message")} | {"results": []}
    return {"error_code": ErrorCode.NONE, "error_message": None, "results": results}


def _judged(update: Message) -> Message:
    name, level = update["feature"], update["max_version_level"]
    has = FEATURES.get(name)
    if has is None:
        code, message = ErrorCode.INVALID_UPDATE_VERSION, f"there is no feature {name}"
    elif level != has:
        code, message = (
            ErrorCode.INVALID_UPDATE_VERSION,
            f"the level of {name} is {has}, not {level}",
        )
    else:
        code, message = ErrorCode.NONE, None
    return {"feature": name, "error_code": code, "error_message": message}
