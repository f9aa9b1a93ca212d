"""DeleteRecords (key 21, versions 0-2): move partitions' log start offsets forward (KIP-107).

Offset -1 means the high watermark. A deletion is durable before it is answered; files are removed with the
next round of retention. Refused: internal topics (INVALID_TOPIC_EXCEPTION), topics that are only compacted
(POLICY_VIOLATION), offsets above the high watermark (OFFSET_OUT_OF_RANGE). The time-out is ignored, as there
are no other replicas to wait for.

Complete.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import topics
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import is_internal
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DeleteRecordsRequest,
        DeleteRecordsRequestPartition,
        DeleteRecordsResponseDraft,
        DeleteRecordsResponsePartitionDraft,
    )


KEY = ApiKey.DELETE_RECORDS
VERSIONS = (0, 2)


access = topics(AclOperation.DELETE)


logger = logging.getLogger(__name__)
_NO_OFFSET = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponseDraft:
    """Delete in each partition separately."""
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [_answer(context, topic["name"], wanted) for wanted in topic["partitions"]],
            }
            for topic in request["topics"]
        ]
    }


def _answer(
    context: RequestContext, topic: str, wanted: DeleteRecordsRequestPartition
) -> DeleteRecordsResponsePartitionDraft:
    index = wanted["partition_index"]
    try:
        start, code = _delete(context, topic, index, wanted["offset"]), ErrorCode.NONE
    except KafkaError as error:
        logger.info("records of %s-%d are not deleted: %s", topic, index, error)
        start, code = _NO_OFFSET, error.code
    return {"partition_index": index, "low_watermark": start, "error_code": code}


def _delete(context: RequestContext, topic: str, index: int, offset: int) -> int:
    if is_internal(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is the broker's own")
    partition = context.broker.topics.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
    return partition.delete_records(offset)
