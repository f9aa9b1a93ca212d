"""OffsetFetch (key 9, versions 1-10): return how far a group has read.

Several groups in a request from version 8 (KIP-709), topics by id from version 10 (KIP-848), all of a group's
topics if none are named (from version 2). With require_stable (version 7, KIP-447) a partition for which an
open transaction has an offset gets UNSTABLE_OFFSET_COMMIT; if all topics are read, that includes partitions
with nothing committed yet, which Kafka leaves out.

The answer is durable. If nothing is committed, the offset is -1. An offset that was committed for an older
topic of the same name is not returned for the present one. From version 9 a member of a consumer group
(KIP-848) sends its epoch; if it is not the current one, it gets STALE_MEMBER_EPOCH.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.broker.authorize.access import (
    GROUP_DENIED,
    TOPIC_DENIED,
    AccessRequest,
    RequestRefused,
    Restore,
    denied_entries,
    refusal,
    split,
    topics,
)
from eoslog.broker.coordinator.groups.committed_offsets import NO_TOPIC_ID, Fetched
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestGroupTopic,
        OffsetFetchResponseDraft,
        OffsetFetchResponseGroupDraft,
        OffsetFetchResponseGroupTopicDraft,
        OffsetFetchResponseGroupTopicPartitionDraft,
        OffsetFetchResponseTopicDraft,
    )


KEY = ApiKey.OFFSET_FETCH
VERSIONS = (1, 10)


_Topic = TypeVar("_Topic", "OffsetFetchResponseTopicDraft", "OffsetFetchResponseGroupTopicDraft")


_BATCHED = 8


_seen_topics = topics(AclOperation.DESCRIBE)


def access(
    asked: AccessRequest[OffsetFetchRequest],
) -> RequestRefused[OffsetFetchResponseDraft] | Restore[OffsetFetchResponseDraft] | None:
    """Needs DESCRIBE on the group and each topic; a fetch of all topics omits what may not be described."""
    if asked.version >= _BATCHED:
        return _fetch_groups(asked)
    request = asked.request
    if not asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, request["group_id"]):
        return refusal(asked, GROUP_DENIED)
    if request["topics"] is None:
        return lambda answer: answer | {"topics": _visible(asked, answer["topics"])}
    return _seen_topics(asked)


def _visible(asked: AccessRequest[OffsetFetchRequest], topics_found: Iterable[_Topic]) -> list[_Topic]:
    return [
        topic
        for topic in topics_found
        if asked.may(AclOperation.DESCRIBE, ResourceType.TOPIC, asked.topic_name(topic) or "", log=False)
    ]


def _fetch_groups(asked: AccessRequest[OffsetFetchRequest]) -> Restore[OffsetFetchResponseDraft]:
    kept, denied = split(
        asked.request["groups"],
        lambda group: asked.may(AclOperation.DESCRIBE, ResourceType.GROUP, group["group_id"]),
    )
    asked.request["groups"] = kept
    all_topics = [group["topics"] is None for group in kept]
    removed = [_remove_denied_topics(asked, group) for group in kept]
    refused: list[OffsetFetchResponseGroupDraft] = (
        denied_entries(asked, "groups", denied, GROUP_DENIED)["groups"] if denied else []
    )

    def restore(answer: OffsetFetchResponseDraft) -> OffsetFetchResponseDraft:
        groups: list[OffsetFetchResponseGroupDraft] = []
        for group, everything, refused_topics in zip(answer["groups"], all_topics, removed, strict=True):
            visible = _visible(asked, group["topics"]) if everything else [*group["topics"], *refused_topics]
            groups.append(group | {"topics": visible if not group.get("error_code") else group["topics"]})
        return answer | {"groups": [*groups, *refused]}

    return restore


def _no_offset(index: int) -> OffsetFetchResponseGroupTopicPartitionDraft:
    return {"partition_index": index, "committed_offset": -1, "error_code": TOPIC_DENIED}


def _remove_denied_topics(
    asked: AccessRequest[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseGroupTopicDraft]:
    """Remove a group's topics that may not be described; returns their entries for the answer."""
    if group["topics"] is None:
        return []

    def allowed(topic: OffsetFetchRequestGroupTopic) -> bool:
        name = asked.topic_name(topic)
        return name is None or asked.may_topic(AclOperation.DESCRIBE, name)

    group["topics"], denied = split(group["topics"], allowed)
    return [
        {
            "name": topic["name"],
            "topic_id": topic["topic_id"],
            "partitions": [_no_offset(index) for index in topic["partition_indexes"]],
        }
        for topic in denied
    ]


_GROUP_ERROR = 2
_TOPIC_IDS = 10

Found = list[tuple[TopicPartition, Fetched]]


def handle(context: RequestContext, request: OffsetFetchRequest) -> Settled[OffsetFetchResponseDraft]:
    """Read each group's offsets now; the answer waits until they are durable."""
    version, stable = context.header.api_version, request["require_stable"]
    groups = request["groups"] if version >= _BATCHED else [_only(request)]
    asked = [_Group(context, group, stable) for group in groups]
    return Settled(_answer(asked, version))


def _only(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group that older versions ask for."""
    topics: list[OffsetFetchRequestGroupTopic] | None = None
    if request["topics"] is not None:
        topics = [{**topic, "topic_id": NO_TOPIC_ID} for topic in request["topics"]]
    return {"group_id": request["group_id"], "member_id": None, "member_epoch": -1, "topics": topics}


async def _answer(asked: list[_Group], version: int) -> OffsetFetchResponseDraft:
    bodies = [await group.body() for group in asked]
    if version >= _BATCHED:
        return {"groups": bodies}
    error, topics = bodies[0]["error_code"], bodies[0]["topics"]
    if error and version < _GROUP_ERROR:
        topics = asked[0].each_refused(error)
    # Older versions have one group, not named in the answer, and topics by name alone.
    named: list[OffsetFetchResponseTopicDraft] = [
        {"name": topic["name"], "partitions": topic["partitions"]} for topic in topics
    ]
    return {"error_code": error, "topics": named}


class _Group:
    """The part of a request about one group."""

    def __init__(self, context: RequestContext, asked: OffsetFetchRequestGroup, require_stable: bool) -> None:
        self._topics = context.broker.topics
        self._asked = asked
        self._by_id = context.header.api_version >= _TOPIC_IDS
        self._error = ErrorCode.NONE
        self._found: Awaitable[Found] | None = None
        try:
            groups = context.broker.groups
            reader = (asked["member_id"], asked["member_epoch"])
            self._found = groups.fetch_offsets(asked["group_id"], self._places(), require_stable, reader)
        except KafkaError as error:
            self._error = error.code

    def _places(self) -> list[tuple[TopicPartition, bytes | None]] | None:
        if self._asked["topics"] is None:
            return None
        places: list[tuple[TopicPartition, bytes | None]] = []
        for asked in self._asked["topics"]:
            name, topic_id = self._resolve(asked)
            if name is not None:
                places += [((name, index), topic_id) for index in asked["partition_indexes"]]
        return places

    def _resolve(self, asked: OffsetFetchRequestGroupTopic) -> tuple[str | None, bytes | None]:
        """Return a topic's name and present id; no name if the requested id is unknown."""
        if self._by_id:
            topic = self._topics.by_id(asked["topic_id"])
            return (None, None) if topic is None else (topic.name, topic.topic_id)
        topic = self._topics.get(asked["name"])
        return asked["name"], None if topic is None else topic.topic_id

    async def body(self) -> OffsetFetchResponseGroupDraft:
        """Return this group's part of the answer."""
        topics: list[OffsetFetchResponseGroupTopicDraft] = []
        try:
            if self._found is not None:
                found = await self._found
                topics = self._of_all(found) if self._asked["topics"] is None else self._of_named(found)
        except KafkaError as error:
            self._error = error.code
        return {"group_id": self._asked["group_id"], "topics": topics, "error_code": self._error}

    def _of_all(self, found: Found) -> list[OffsetFetchResponseGroupTopicDraft]:
        topics: dict[str, tuple[bytes, list[OffsetFetchResponseGroupTopicPartitionDraft]]] = {}
        for (name, index), fetched in found:
            topic = self._topics.get(name)
            if topic is None and self._by_id:
                continue  # A deleted topic has no id by which to name it.
            topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
            topics.setdefault(name, (topic_id, []))[1].append(_partition(index, fetched))
        return [
            {"name": name, "topic_id": topic_id, "partitions": partitions}
            for name, (topic_id, partitions) in topics.items()
        ]

    def _of_named(self, found: Found) -> list[OffsetFetchResponseGroupTopicDraft]:
        by_place: dict[Any, Fetched] = dict(found)
        topics: list[OffsetFetchResponseGroupTopicDraft] = []
        for asked in self._asked["topics"] or ():
            name, _ = self._resolve(asked)
            unknown = Fetched(error=ErrorCode.UNKNOWN_TOPIC_ID)
            partitions = [_partition(i, by_place.get((name, i), unknown)) for i in asked["partition_indexes"]]
            topics.append({"name": name or "", "topic_id": asked["topic_id"], "partitions": partitions})
        return topics

    def each_refused(self, error: int) -> list[OffsetFetchResponseGroupTopicDraft]:
        """Return the error for every partition, for versions without one for the whole."""
        refused = Fetched(error=ErrorCode(error))
        return [
            {
                "name": asked["name"],
                "partitions": [_partition(i, refused) for i in asked["partition_indexes"]],
            }
            for asked in self._asked["topics"] or ()
        ]


def _partition(index: int, fetched: Fetched) -> OffsetFetchResponseGroupTopicPartitionDraft:
    return {
        "partition_index": index,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": fetched.error,
    }
