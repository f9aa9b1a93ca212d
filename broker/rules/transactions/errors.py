"""Error codes of the transactional APIs that older clients do not know, and what they get instead."""

from __future__ import annotations

from collections.abc import Mapping

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode

PRODUCER_FENCED_SINCE: Mapping[ApiKey, int] = {
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""First version whose clients know PRODUCER_FENCED (KIP-588); before that INVALID_PRODUCER_EPOCH."""

TRANSACTION_ABORTABLE_SINCE: Mapping[ApiKey, int] = {
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 4,
}
"""First version whose clients know TRANSACTION_ABORTABLE (KIP-890); before that INVALID_TXN_STATE."""


def for_version(key: ApiKey, version: int, code: ErrorCode) -> ErrorCode:
    """The code to answer a request of `key` in `version` with."""
    if code is ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_SINCE[key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < TRANSACTION_ABORTABLE_SINCE[key]:
        return ErrorCode.INVALID_TXN_STATE
    return code
