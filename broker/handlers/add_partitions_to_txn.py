"""AddPartitionsToTxn (key 24, versions 0-5): add partitions to a transaction, or verify that they are in it.

Up to version 3 a request has one transaction, of a client. From version 4 it may have several; verify_only
only checks their partitions (KIP-890). For each transaction it is all or nothing: if one partition is unknown
or forbidden, the others get OPERATION_NOT_ATTEMPTED. The broker's own topics are forbidden, as
AddOffsetsToTxn adds the partitions of them that are needed; `__consumer_offsets` is accepted from version 4.
PRODUCER_FENCED is INVALID_PRODUCER_EPOCH before version 2, TRANSACTION_ABORTABLE is INVALID_TXN_STATE before
version 5.

Complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    CLUSTER_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    AccessRequest,
    RequestRefused,
    denied_entries,
    refusal,
)
from eoslog.broker.coordinator.transactions.transaction_state import TV1, TV2
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import OFFSETS_TOPIC
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnRequestTransaction,
        AddPartitionsToTxnRequestV3AndBelowTopic,
        AddPartitionsToTxnResponseDraft,
        AddPartitionsToTxnResponseResultsByPartitionDraft,
        AddPartitionsToTxnResponseResultsByTopicV3AndBelowDraft,
        AddPartitionsToTxnResponseResultsByTransactionDraft,
    )


KEY = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = (0, 5)


_BATCHED = 4


def access(
    asked: AccessRequest[AddPartitionsToTxnRequest],
) -> RequestRefused[AddPartitionsToTxnResponseDraft] | None:
    """Needs WRITE on the id and on every topic, or nothing is added. From version 4 for brokers only."""
    request = asked.request
    if asked.version >= _BATCHED:
        if asked.may_cluster(AclOperation.CLUSTER_ACTION):
            return None
        return refusal(asked, CLUSTER_DENIED)
    topics = request["v3_and_below_topics"]
    if not asked.may(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request["v3_and_below_transactional_id"]
    ):
        return refusal(asked, TRANSACTION_DENIED)
    denied = {t["name"] for t in topics if not asked.may_topic(AclOperation.WRITE, t["name"])}
    if not denied:
        return None

    def code(topic: AddPartitionsToTxnRequestV3AndBelowTopic) -> ErrorCode:
        return TOPIC_DENIED if topic["name"] in denied else ErrorCode.OPERATION_NOT_ATTEMPTED

    return RequestRefused(denied_entries(asked, "v3_and_below_topics", topics, code))


BATCHED_SINCE = 4

Errors = dict[TopicPartition, ErrorCode]


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponseDraft:
    """Serve one transaction after the other."""
    if context.header.api_version < BATCHED_SINCE:
        only: AddPartitionsToTxnRequestTransaction = {
            "transactional_id": request["v3_and_below_transactional_id"],
            "producer_id": request["v3_and_below_producer_id"],
            "producer_epoch": request["v3_and_below_producer_epoch"],
            "verify_only": False,
            "topics": request["v3_and_below_topics"],
        }
        return {"results_by_topic_v3_and_below": _by_topic(await _serve(context, only))}
    results: list[AddPartitionsToTxnResponseResultsByTransactionDraft] = [
        {
            "transactional_id": transaction["transactional_id"],
            "topic_results": _by_topic(await _serve(context, transaction)),
        }
        for transaction in request["transactions"]
    ]
    return {"error_code": 0, "results_by_transaction": results}


async def _serve(context: RequestContext, transaction: AddPartitionsToTxnRequestTransaction) -> Errors:
    places = [(topic["name"], index) for topic in transaction["topics"] for index in topic["partitions"]]
    refused = {place: code for place in places if (code := _refusal(context, place)) is not None}
    if refused:
        return {place: refused.get(place, ErrorCode.OPERATION_NOT_ATTEMPTED) for place in places}
    if transaction["verify_only"]:
        return {place: _verify(context, transaction, place) for place in places}
    return dict.fromkeys(places, await _add(context, transaction, places))


def _refusal(context: RequestContext, place: TopicPartition) -> ErrorCode | None:
    topic = context.broker.topics.get(place[0])
    offsets = context.header.api_version >= BATCHED_SINCE and place[0] == OFFSETS_TOPIC
    if topic is not None and topic.internal and not offsets:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if context.broker.topics.partition(*place) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


async def _add(
    context: RequestContext,
    transaction: AddPartitionsToTxnRequestTransaction,
    places: Sequence[TopicPartition],
) -> ErrorCode:
    version = context.header.api_version
    try:
        await context.broker.transactions.add_partitions(
            transaction["transactional_id"],
            transaction["producer_id"],
            transaction["producer_epoch"],
            places,
            client_version=TV2 if version >= BATCHED_SINCE else TV1,
        )
    except KafkaError as error:
        return for_version(KEY, version, error.code)
    return ErrorCode.NONE


def _verify(
    context: RequestContext, transaction: AddPartitionsToTxnRequestTransaction, place: TopicPartition
) -> ErrorCode:
    try:
        context.broker.transactions.check_member(
            transaction["transactional_id"], transaction["producer_id"], transaction["producer_epoch"], place
        )
    except KafkaError as error:
        return for_version(KEY, context.header.api_version, error.code)
    return ErrorCode.NONE


def _by_topic(errors: Errors) -> list[AddPartitionsToTxnResponseResultsByTopicV3AndBelowDraft]:
    def lines(topic: str) -> Iterable[AddPartitionsToTxnResponseResultsByPartitionDraft]:
        for place, code in errors.items():
            if place[0] == topic:
                yield {"partition_index": place[1], "partition_error_code": code}

    topics = dict.fromkeys(topic for topic, _ in errors)
    return [{"name": topic, "results_by_partition": list(lines(topic))} for topic in topics]
