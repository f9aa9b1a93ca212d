"""EndTxn (key 26, versions 0-5): commit or abort a transaction.

Answered when every marker is durable, so that who was told "committed" reads what was committed; Kafka
answers earlier, when the decision is recorded. From version 5 on each end bumps the epoch and answers the
new one; a retry comes with the old one and is answered alike (KIP-890). Up to version 4 the epoch stays,
and the same end twice is answered twice. The tables are in `rules.transaction_end`. PRODUCER_FENCED is
INVALID_PRODUCER_EPOCH before version 2. CONCURRENT_TRANSACTIONS also where the outcome is decided but a
marker could not be written yet.

Complete.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.broker.rules.transaction_errors import for_version
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.END_TXN

BUMPS_SINCE = 5


async def handle(context: RequestContext, request: Message) -> Message:
    """End the transaction by the rules of the request's version."""
    version = context.header.api_version
    try:
        producer_id, epoch = await context.broker.transactions.end_txn(
            request["transactional_id"],
            request["producer_id"],
            request["producer_epoch"],
            request["committed"],
            bump=version >= BUMPS_SINCE,
        )
    except KafkaError as error:
        return {"error_code": for_version(KEY, version, error.code)}
    if version < BUMPS_SINCE:
        return {"error_code": 0}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
