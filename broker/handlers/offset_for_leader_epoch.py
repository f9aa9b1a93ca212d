"""OffsetForLeaderEpoch (key 23, versions 2-4): where a leader epoch ends in the log (KIP-101, KIP-320).

Each run of the broker has its own epoch; that of the present run ends where the log ends. For a later epoch
the answer is that none is known (epoch and offset -1). For one in which nothing was written, or of which
nothing is left, it is the same as Kafka's: the largest epoch below it, or the start of the log. A client
whose current epoch is not that of this run gets FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.

Complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, RequestRefused, Restore, topics
from eoslog.broker.log.leader_epochs import UNDEFINED
from eoslog.broker.requests import RequestContext
from eoslog.broker.rules.fetch_session import check_leader_epoch
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochRequestPartition,
        OffsetForLeaderEpochResponseDraft,
        OffsetForLeaderEpochResponsePartitionDraft,
    )


KEY = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS = (2, 4)


_epochs = topics(AclOperation.DESCRIBE, name="topic")


def access(
    asked: AccessRequest[OffsetForLeaderEpochRequest],
) -> RequestRefused[OffsetForLeaderEpochResponseDraft] | Restore[OffsetForLeaderEpochResponseDraft] | None:
    """Needs DESCRIBE on each topic; with CLUSTER_ACTION all topics are allowed."""
    if asked.may_cluster(AclOperation.CLUSTER_ACTION, log=False):
        return None
    return _epochs(asked)


def handle(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponseDraft:
    """Answer for each partition separately."""
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [_answer(context, topic["topic"], wanted) for wanted in topic["partitions"]],
            }
            for topic in request["topics"]
        ]
    }


def _answer(
    context: RequestContext, topic: str, wanted: OffsetForLeaderEpochRequestPartition
) -> OffsetForLeaderEpochResponsePartitionDraft:
    index = wanted["partition"]
    answer: OffsetForLeaderEpochResponsePartitionDraft = {
        "partition": index,
        "leader_epoch": UNDEFINED,
        "end_offset": UNDEFINED,
        "error_code": 0,
    }
    try:
        epoch, offset = _end(context, topic, index, wanted)
    except KafkaError as error:
        return answer | {"error_code": error.code}
    return answer | {"leader_epoch": epoch, "end_offset": offset}


def _end(
    context: RequestContext, topic: str, index: int, wanted: OffsetForLeaderEpochRequestPartition
) -> tuple[int, int]:
    """The largest known epoch up to the requested one, and the offset at which it ends."""
    partition = context.broker.topics.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")
    check_leader_epoch(partition.leader_epoch, wanted["current_leader_epoch"])
    return partition.epoch_end(wanted["leader_epoch"])
