"""InitProducerId (key 22, versions 0-6): a producer id and epoch, fencing older users of a transactional id.

Without a transactional id each call returns a new producer id at epoch 0. With one it returns the id's
producer id at the next epoch, or a new producer id once the epochs are used up. An open transaction of an
older producer is aborted first: CONCURRENT_TRANSACTIONS, try again. From version 3 a producer may give its id
and epoch, to continue after an error (KIP-360); an outdated one gets PRODUCER_FENCED, before version 4
INVALID_PRODUCER_EPOCH.

Version 6 (KIP-939): with enable2_pc transactions never time out; TRANSACTIONAL_ID_AUTHORIZATION_FAILED if
transaction.two.phase.commit.enable=false. keep_prepared_txn, which Kafka 4.3 still refuses, keeps an open
transaction instead of aborting it. The answer has the producer id and epoch that wrote it, and the new ones,
by which it is to be committed or aborted; all older ones are fenced. Until it is ended nothing can be written
(INVALID_TXN_STATE). A kept transaction never gets less time than it had.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    CLUSTER_DENIED,
    TRANSACTION_DENIED,
    AccessRequest,
    RequestRefused,
    refusal,
)
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.producer_identity import NOBODY

if TYPE_CHECKING:
    from eoslog.protocol.typed import InitProducerIdRequest, InitProducerIdResponseDraft


KEY = ApiKey.INIT_PRODUCER_ID
VERSIONS = (0, 6)


def access(
    asked: AccessRequest[InitProducerIdRequest],
) -> RequestRefused[InitProducerIdResponseDraft] | None:
    """Needs WRITE on the transactional id; without an id, IDEMPOTENT_WRITE or WRITE on some topic."""
    name = asked.request["transactional_id"]
    if name is None:
        if asked.may_cluster(AclOperation.IDEMPOTENT_WRITE, log=False) or asked.may_some(
            AclOperation.WRITE, ResourceType.TOPIC
        ):
            return None
        return refusal(asked, CLUSTER_DENIED)
    if asked.may(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name) and (
        not asked.request["enable2_pc"]
        or asked.may(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, name)
    ):
        return None
    return refusal(asked, TRANSACTION_DENIED)


async def handle(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponseDraft:
    """Ask the coordinator, which returns when the new epoch is durable."""
    ongoing = NOBODY
    try:
        transactions, name = context.broker.transactions, request["transactional_id"]
        asked = (
            request["transaction_timeout_ms"],
            request.get("producer_id", -1),
            request.get("producer_epoch", -1),
        )
        two_phase = request.get("enable2_pc", False)
        if request.get("keep_prepared_txn", False) and name is not None:
            holder, ongoing = await transactions.keep_prepared(name, *asked, two_phase=two_phase)
        else:
            holder = await transactions.init_producer_id(name, *asked, two_phase=two_phase)
    except KafkaError as error:
        code = for_version(KEY, context.header.api_version, error.code)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": 0,
        "producer_id": holder.producer_id,
        "producer_epoch": holder.epoch,
        "ongoing_txn_producer_id": ongoing.producer_id,
        "ongoing_txn_producer_epoch": ongoing.epoch,
    }
