"""WriteTxnMarkers (key 27, versions 1-2): end a producer's transaction on single partitions, from outside.

A repair tool: Kafka's brokers send it to each other, and admin clients send it to end a transaction that no
coordinator knows any more (KIP-664). Answered when the markers are durable. Fenced by producer epoch and
coordinator epoch; from version 2 a marker of transaction version 2 must have a higher epoch than the records
that it ends (KIP-1228). Unlike in Kafka, it is refused with INVALID_TXN_STATE for a transaction that this
broker's coordinator will end itself: otherwise one partition could have another outcome than the rest.

Complete.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import CLUSTER_DENIED, AccessRequest, RequestRefused, refusal
from eoslog.broker.requests import RequestContext
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersRequestMarker,
        WriteTxnMarkersResponseDraft,
        WriteTxnMarkersResponseMarkerDraft,
        WriteTxnMarkersResponseTopicDraft,
    )


KEY = ApiKey.WRITE_TXN_MARKERS
VERSIONS = (1, 2)


def access(
    asked: AccessRequest[WriteTxnMarkersRequest],
) -> RequestRefused[WriteTxnMarkersResponseDraft] | None:
    """Needs ALTER or CLUSTER_ACTION on the cluster."""
    if asked.may_cluster(AclOperation.ALTER, log=False) or asked.may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return refusal(asked, CLUSTER_DENIED)


logger = logging.getLogger(__name__)


async def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponseDraft:
    """Write all markers concurrently."""
    answers = await asyncio.gather(*(_marker(context, marker) for marker in request["markers"]))
    return {"markers": list(answers)}


async def _marker(
    context: RequestContext, marker: WriteTxnMarkersRequestMarker
) -> WriteTxnMarkersResponseMarkerDraft:
    topics: list[WriteTxnMarkersResponseTopicDraft] = []
    for topic in marker["topics"]:
        name, indexes = topic["name"], topic["partition_indexes"]
        codes = await asyncio.gather(*(_write(context, marker, name, index) for index in indexes))
        pairs = zip(indexes, codes, strict=True)
        topics.append(
            {"name": name, "partitions": [{"partition_index": i, "error_code": code} for i, code in pairs]}
        )
    return {"producer_id": marker["producer_id"], "topics": topics}


async def _write(
    context: RequestContext, marker: WriteTxnMarkersRequestMarker, topic: str, index: int
) -> ErrorCode:
    partition = context.broker.topics.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = "commit" if marker["transaction_result"] else "abort"
    producer = f"{marker['producer_id']}.{marker['producer_epoch']}"
    what = f"{result} marker for producer {producer} on {topic}-{index}"
    try:
        await context.broker.transactions.write_marker(
            partition,
            marker["producer_id"],
            marker["producer_epoch"],
            marker["transaction_result"],
            marker["coordinator_epoch"],
            marker.get("transaction_version", 0),
        )
    except KafkaError as error:
        logger.warning("%s, requested by %s, is refused: %s", what, context.client_host, error)
        return error.code
    logger.warning("%s is written, requested by %s", what, context.client_host)
    return ErrorCode.NONE
