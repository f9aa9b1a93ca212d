"""Which version of an API knows which error code, and which code clients of older versions get instead.

Every version that is served knows a code without a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode as E

NEVER = 2**15
"""Above every version: no client of this API knows the code."""


class Known(NamedTuple):
    """The first version that knows a code, and the code that older ones get."""

    since: int
    older: E


_VERIFYING = Known(NEVER, E.NOT_ENOUGH_REPLICAS)
"""For the coordinator's errors in an answer to Produce: after this code every producer tries again, without
asking for new metadata first (KIP-890)."""

VERSIONS: Mapping[tuple[ApiKey, E], Known] = {
    # KIP-112
    (ApiKey.PRODUCE, E.KAFKA_STORAGE_ERROR): Known(4, E.NOT_LEADER_OR_FOLLOWER),
    (ApiKey.FETCH, E.KAFKA_STORAGE_ERROR): Known(6, E.NOT_LEADER_OR_FOLLOWER),
    # KIP-322
    (ApiKey.DELETE_TOPICS, E.TOPIC_DELETION_DISABLED): Known(3, E.INVALID_REQUEST),
    # KIP-516
    (ApiKey.PRODUCE, E.UNKNOWN_TOPIC_ID): Known(13, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.FETCH, E.UNKNOWN_TOPIC_ID): Known(13, E.UNKNOWN_TOPIC_OR_PARTITION),
    # KIP-588
    (ApiKey.INIT_PRODUCER_ID, E.PRODUCER_FENCED): Known(4, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_PARTITIONS_TO_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.END_TXN, E.PRODUCER_FENCED): Known(2, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.PRODUCE, E.PRODUCER_FENCED): Known(NEVER, E.INVALID_PRODUCER_EPOCH),
    (ApiKey.TXN_OFFSET_COMMIT, E.PRODUCER_FENCED): Known(NEVER, E.INVALID_PRODUCER_EPOCH),
    # KIP-848; in transactions KIP-1319
    (ApiKey.OFFSET_COMMIT, E.UNKNOWN_TOPIC_ID): Known(10, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.OFFSET_COMMIT, E.GROUP_ID_NOT_FOUND): Known(9, E.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, E.UNKNOWN_TOPIC_ID): Known(6, E.UNKNOWN_TOPIC_OR_PARTITION),
    (ApiKey.TXN_OFFSET_COMMIT, E.GROUP_ID_NOT_FOUND): Known(6, E.ILLEGAL_GENERATION),
    (ApiKey.TXN_OFFSET_COMMIT, E.STALE_MEMBER_EPOCH): Known(6, E.ILLEGAL_GENERATION),
    # KIP-890
    (ApiKey.INIT_PRODUCER_ID, E.TRANSACTION_ABORTABLE): Known(5, E.INVALID_TXN_STATE),
    (ApiKey.ADD_PARTITIONS_TO_TXN, E.TRANSACTION_ABORTABLE): Known(5, E.INVALID_TXN_STATE),
    (ApiKey.ADD_OFFSETS_TO_TXN, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.END_TXN, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.PRODUCE, E.TRANSACTION_ABORTABLE): Known(11, E.INVALID_TXN_STATE),
    (ApiKey.TXN_OFFSET_COMMIT, E.TRANSACTION_ABORTABLE): Known(4, E.INVALID_TXN_STATE),
    (ApiKey.PRODUCE, E.CONCURRENT_TRANSACTIONS): Known(12, E.NOT_ENOUGH_REPLICAS),
    (ApiKey.PRODUCE, E.NETWORK_EXCEPTION): _VERIFYING,
    (ApiKey.PRODUCE, E.COORDINATOR_LOAD_IN_PROGRESS): _VERIFYING,
    (ApiKey.PRODUCE, E.COORDINATOR_NOT_AVAILABLE): _VERIFYING,
    (ApiKey.PRODUCE, E.NOT_COORDINATOR): _VERIFYING,
    # The transaction is ending. A client that joined it by itself does not expect that code here, but tries
    # again after this one, and then learns how the transaction ended. Kafka answers CONCURRENT_TRANSACTIONS.
    (ApiKey.TXN_OFFSET_COMMIT, E.CONCURRENT_TRANSACTIONS): Known(5, E.COORDINATOR_LOAD_IN_PROGRESS),
    # KAFKA-7296: it ends older producers
    (ApiKey.TXN_OFFSET_COMMIT, E.COORDINATOR_LOAD_IN_PROGRESS): Known(2, E.COORDINATOR_NOT_AVAILABLE),
    # KIP-1043
    (ApiKey.DESCRIBE_GROUPS, E.GROUP_ID_NOT_FOUND): Known(6, E.NONE),
}


def for_version(key: ApiKey, version: int, code: E) -> E:
    """The code that a client of this version gets for `code`."""
    known = VERSIONS.get((key, code))
    if known is None or version >= known.since:
        return code
    return for_version(key, version, known.older)
