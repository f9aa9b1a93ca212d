"""OffsetDelete (key 47, version 0): delete a group's offsets for topics that no member reads (KIP-496).

GROUP_SUBSCRIBED_TO_TOPIC for topics that members read, UNKNOWN_TOPIC_OR_PARTITION for partitions that do not
exist. For the whole request GROUP_ID_NOT_FOUND, or NON_EMPTY_GROUP if members are not consumers, since it is
not known then what they read. Deleting an offset that does not exist is no error.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import AccessRequest, RequestRefused, Restore, in_turn, needs, topics
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponseDraft,
        OffsetDeleteResponsePartitionDraft,
        OffsetDeleteResponseTopicDraft,
    )


KEY = ApiKey.OFFSET_DELETE
VERSIONS = (0, 0)


def _deleted(
    asked: AccessRequest[OffsetDeleteRequest],
) -> RequestRefused[OffsetDeleteResponseDraft] | Restore[OffsetDeleteResponseDraft] | None:
    """Needs READ on each topic. A whole request that is refused (a group with members) names no topic."""
    checked = topics(AclOperation.READ)(asked)
    if checked is None or isinstance(checked, RequestRefused):
        return checked

    def restore(answer: OffsetDeleteResponseDraft) -> OffsetDeleteResponseDraft:
        restored: OffsetDeleteResponseDraft = answer if answer.get("error_code") else checked(answer)
        return restored

    return restore


access = in_turn(needs(AclOperation.DELETE, ResourceType.GROUP, "group_id"), _deleted)


def handle(
    context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponseDraft | Settled[OffsetDeleteResponseDraft]:
    """Delete the offsets that may be deleted."""
    topics = context.broker.topics
    places = [(t["name"], p["partition_index"]) for t in request["topics"] for p in t["partitions"]]
    known = [place for place in places if topics.partition(*place) is not None]
    try:
        pending = context.broker.groups.delete_offsets(request["group_id"], known)
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    return Settled(_answer(request, pending))


async def _answer(
    request: OffsetDeleteRequest, pending: Awaitable[dict[TopicPartition, ErrorCode]]
) -> OffsetDeleteResponseDraft:
    try:
        results = await pending
    except KafkaError as error:
        return {"error_code": error.code, "topics": []}
    return {"topics": [_topic(asked, results) for asked in request["topics"]]}


def _topic(
    asked: OffsetDeleteRequestTopic, results: dict[TopicPartition, ErrorCode]
) -> OffsetDeleteResponseTopicDraft:
    name = asked["name"]
    partitions: list[OffsetDeleteResponsePartitionDraft] = [
        {
            "partition_index": part["partition_index"],
            "error_code": results.get((name, part["partition_index"]), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
        for part in asked["partitions"]
    ]
    return {"name": name, "partitions": partitions}
