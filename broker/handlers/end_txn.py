"""EndTxn (key 26, versions 0-5): commit or abort a transaction.

Answered when every marker is durable, so that a client that gets the answer "committed" can read what it
committed; Kafka answers earlier, when the decision is recorded. From version 5 each end bumps the epoch and
the answer has the new one; a retry with the old epoch gets the same answer (KIP-890). Up to version 4 the
epoch stays, and the same end may be sent twice. The tables are in `coordinator.transactions.transaction`.
PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2. CONCURRENT_TRANSACTIONS is also returned if the
outcome is decided but a marker could not be written yet.

All partitions of a transaction become readable at once: a fetch sees the committed records of all its
partitions, or of none. The same is true of several transactions, each with its own outcome, that a request of
version 5 names in the tagged field `together`, which is eoslog's own: one record decides all of them. A
partition that cannot take its marker is not waited for: it follows when it can.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.authorize.access import (
    TRANSACTION_DENIED,
    AccessRequest,
    Restore,
    in_turn,
    needs,
    remove_denied,
)
from eoslog.broker.coordinator.transactions.transaction_coordinator import Producer
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity

if TYPE_CHECKING:
    from eoslog.protocol.typed import EndTxnRequest, EndTxnRequestTogether, EndTxnResponseDraft


KEY = ApiKey.END_TXN
VERSIONS = (0, 5)


_writes = needs(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")


def _together(asked: AccessRequest[EndTxnRequest]) -> Restore[EndTxnResponseDraft] | None:
    def allowed(named: EndTxnRequestTogether) -> bool:
        return asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, named["transactional_id"])

    return remove_denied(asked, "together", allowed, TRANSACTION_DENIED)


access = in_turn(_writes, _together)


BUMPS_SINCE = 5


class _Outcome(NamedTuple):
    """What the answer says of one transaction."""

    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


async def handle(context: RequestContext, request: EndTxnRequest) -> EndTxnResponseDraft:
    """End the transactions by the rules of the request's version."""
    version, together = context.header.api_version, request["together"]
    outcomes = await context.broker.transactions.end_together(
        [_producer(request), *map(_producer, together)], request["committed"], bump=version >= BUMPS_SINCE
    )
    first, *others = (_answer(version, outcome) for outcome in outcomes)
    answer: EndTxnResponseDraft = {
        "error_code": first.error_code,
        "producer_id": first.producer_id,
        "producer_epoch": first.producer_epoch,
    }
    if together:
        pairs = zip(together, others, strict=True)
        answer["together"] = [
            {
                "transactional_id": one["transactional_id"],
                "error_code": other.error_code,
                "producer_id": other.producer_id,
                "producer_epoch": other.producer_epoch,
            }
            for one, other in pairs
        ]
    return answer


def _producer(named: EndTxnRequest | EndTxnRequestTogether) -> Producer:
    return Producer(named["transactional_id"], named["producer_id"], named["producer_epoch"])


def _answer(version: int, outcome: ProducerIdentity | KafkaError) -> _Outcome:
    if isinstance(outcome, KafkaError):
        return _Outcome(for_version(KEY, version, outcome.code))
    return _Outcome(0) if version < BUMPS_SINCE else _Outcome(0, *outcome)
