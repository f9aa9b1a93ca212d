"""InitProducerId (key 22, versions 0-6): a producer id and epoch, fencing older users of a transactional id.

Without a transactional id each call gives a new producer id at epoch 0. With one: its producer id at the
next epoch, a new producer id once the epochs are used up. An open transaction of an older user is
aborted first: CONCURRENT_TRANSACTIONS, come again. From version 3 on a producer may name the id and
epoch it has, to go on after an error (KIP-360); an outdated one gets PRODUCER_FENCED, before version 4
INVALID_PRODUCER_EPOCH.

Version 6 (KIP-939), once the table of APIs offers it: enable2_pc makes transactions that never time out.
Left out, as in Kafka: keep_prepared_txn, which gets UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from eoslog.broker.dispatch import RequestContext
from eoslog.broker.rules.transaction_errors import for_version
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

KEY = ApiKey.INIT_PRODUCER_ID


async def handle(context: RequestContext, request: Message) -> Message:
    """Ask the coordinator, which answers when the new epoch is durable."""
    try:
        if request.get("keep_prepared_txn", False):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "keep_prepared_txn is not served")
        producer_id, epoch = await context.broker.transactions.init_producer_id(
            request["transactional_id"],
            request["transaction_timeout_ms"],
            request.get("producer_id", -1),
            request.get("producer_epoch", -1),
            two_phase=request.get("enable2_pc", False),
        )
    except KafkaError as error:
        code = for_version(KEY, context.header.api_version, error.code)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
