"""DescribeTopicPartitions (key 75, version 0): topics and their partitions, page by page (KIP-966).

Topics are sorted by name; all of them if none is named. An answer has at most
max.request.partition.size.limit partitions, or fewer if the request says so; its cursor says where the next
page begins. A cursor for a topic that is not in the request, or before partition 0, is INVALID_REQUEST.

Complete: there are no other replicas to elect from, so the lists of eligible leaders are empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    TOPIC_DENIED,
    AccessRequest,
    Restore,
    add_topic_operations,
    appended,
    denied_entries,
    split,
)
from eoslog.broker.handlers.metadata import TOPIC_OPERATIONS, described_partition
from eoslog.broker.requests import RequestContext
from eoslog.broker.topics.topics import check_name
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsRequestTopic,
        DescribeTopicPartitionsResponseDraft,
        DescribeTopicPartitionsResponseTopicDraft,
    )


KEY = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS = (0, 0)


def access(
    asked: AccessRequest[DescribeTopicPartitionsRequest],
) -> Restore[DescribeTopicPartitionsResponseDraft]:
    """As Metadata: named topics are refused, of all topics those that may not be seen are left out.

    A request for all topics gets the visible names filled in, so that the answer's limit counts only these.
    """
    request = asked.request
    named = request["topics"]
    denied: list[DescribeTopicPartitionsRequestTopic] = []
    if named:
        request["topics"], denied = split(
            named, lambda topic: asked.may_topic(AclOperation.DESCRIBE, topic["name"])
        )
    else:
        names = (
            n
            for n in asked.topics.names()
            if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, n, log=False)
        )
        request["topics"] = [{"name": name} for name in names]
    nothing_left = not request["topics"]
    refused = denied_entries(asked, "topics", denied, TOPIC_DENIED)

    def restore(answer: DescribeTopicPartitionsResponseDraft) -> DescribeTopicPartitionsResponseDraft:
        topics = [] if nothing_left else answer["topics"]
        for topic in topics:
            add_topic_operations(asked, topic)
        cursor = None if nothing_left else answer.get("next_cursor")
        restored: DescribeTopicPartitionsResponseDraft = answer | {"topics": topics, "next_cursor": cursor}
        complete: DescribeTopicPartitionsResponseDraft = appended(refused)(restored)
        return complete

    return restore


def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponseDraft:
    """Return one page."""
    topics, cursor = context.broker.topics, request["cursor"]
    named = {topic["name"] for topic in request["topics"]}
    first, start = (cursor["topic_name"], cursor["partition_index"]) if cursor else ("", 0)
    if cursor and (start < 0 or (named and first not in named)):
        return _refused(named)
    names = sorted(name for name in named or topics.names() if name >= first)
    limit = context.broker.config.topics.describe_partitions_limit
    left = max(1, min(request["response_partition_limit"], limit))
    answers: list[DescribeTopicPartitionsResponseTopicDraft] = []
    for name in names:
        if left == 0:
            return _page(answers, name, 0)
        begin = start if name == first else 0
        answer, following = _topic(context, name, begin, left)
        if answer.get("error_code") != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or named:
            answers.append(answer)
        if following is not None:
            return _page(answers, name, following)
        left -= len(answer.get("partitions", ()))
    return {"topics": answers}


def _topic(
    context: RequestContext, name: str, begin: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopicDraft, int | None]:
    """A topic's partitions from `begin`, and the index after the last one if there are more."""
    topic = context.broker.topics.get(name)
    if topic is None:
        try:
            check_name(name)
            return {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": name}, None
        except KafkaError as error:
            return {"error_code": error.code, "name": name}, None
    end = begin + limit
    answer: DescribeTopicPartitionsResponseTopicDraft = {
        "name": name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [
            {**described_partition(context, one), "eligible_leader_replicas": [], "last_known_elr": []}
            for one in topic.partitions[begin:end]
        ],
        "topic_authorized_operations": TOPIC_OPERATIONS,
    }
    return answer, end if end < len(topic.partitions) else None


def _page(
    answers: list[DescribeTopicPartitionsResponseTopicDraft], name: str, partition: int
) -> DescribeTopicPartitionsResponseDraft:
    return {"topics": answers, "next_cursor": {"topic_name": name, "partition_index": partition}}


def _refused(named: set[str]) -> DescribeTopicPartitionsResponseDraft:
    return {"topics": [{"error_code": ErrorCode.INVALID_REQUEST, "name": name} for name in sorted(named)]}
