"""EndTxn (key 26, versions 0-5): commit or abort a transaction.

Answered when every marker is durable, so that a client that gets the answer "committed" can read what it
committed; Kafka answers earlier, when the decision is recorded. From version 5 each end bumps the epoch and
the answer has the new one; a retry with the old epoch gets the same answer (KIP-890). Up to version 4 the
epoch stays, and the same end may be sent twice. The tables are in `rules.transaction_end`. PRODUCER_FENCED is
INVALID_PRODUCER_EPOCH before version 2. CONCURRENT_TRANSACTIONS is also returned if the outcome is decided
but a marker could not be written yet.

All partitions of a transaction become readable at once: a fetch sees the committed records of all its
partitions, or of none. The same is true of several transactions, each with its own outcome, that a request of
version 5 names in the tagged field `together`, which is eoslog's own: one record decides all of them. A
partition that cannot take its marker is not waited for: it follows when it can.

Complete.
"""

from __future__ import annotations

from eoslog.broker.coordinator.transactions.transactions import Producer
from eoslog.broker.requests.context import RequestContext
from eoslog.broker.rules.transactions.errors import for_version
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.END_TXN
VERSIONS = (0, 5)

BUMPS_SINCE = 5


async def handle(context: RequestContext, request: Message) -> Message:
    """End the transactions by the rules of the request's version."""
    version, together = context.header.api_version, request["together"]
    outcomes = await context.broker.transactions.end_together(
        [_producer(request), *map(_producer, together)], request["committed"], bump=version >= BUMPS_SINCE
    )
    answer, *others = (_answer(version, outcome) for outcome in outcomes)
    if together:
        pairs = zip(together, others, strict=True)
        answer["together"] = [{"transactional_id": one["transactional_id"], **other} for one, other in pairs]
    return answer


def _producer(named: Message) -> Producer:
    return Producer(named["transactional_id"], named["producer_id"], named["producer_epoch"])


def _answer(version: int, outcome: tuple[int, int] | KafkaError) -> Message:
    if isinstance(outcome, KafkaError):
        return {"error_code": for_version(KEY, version, outcome.code)}
    if version < BUMPS_SINCE:
        return {"error_code": 0}
    return {"error_code": 0, "producer_id": outcome[0], "producer_epoch": outcome[1]}
