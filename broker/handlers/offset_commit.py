"""OffsetCommit (key 8, versions 2-10): store how far a group has read.

Unknown topics and partitions are refused one by one, as is metadata that is too long; a wrong member or
generation refuses all. Members of a consumer group (KIP-848) send their epoch, from version 9. An older epoch
is accepted for partitions that the member has had since then (KIP-1251), else it is STALE_MEMBER_EPOCH. From
version 10 topics are named by id. Versions 2-4 may ask for their own retention time. A group that does not
exist: GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import in_turn, needs, topics
from eoslog.broker.coordinator.groups.committed_offsets import Committer
from eoslog.broker.coordinator.groups.group_offsets import NewOffset, Results
from eoslog.broker.requests import RequestContext, Settled
from eoslog.protocol.acls import AclOperation, ResourceType
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.topics.topics import Topic
    from eoslog.protocol.typed import (
        OffsetCommitRequest,
        OffsetCommitResponseDraft,
        OffsetCommitResponsePartitionDraft,
        OffsetCommitResponseTopicDraft,
        TxnOffsetCommitRequest,
        TxnOffsetCommitRequestPartition,
        TxnOffsetCommitRequestTopic,
    )

KEY = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)


access = in_turn(needs(AclOperation.READ, ResourceType.GROUP, "group_id"), topics(AclOperation.READ))


_TOPIC_IDS = 10


_Key = str | bytes
"""A topic's name, or from version 10 on its id."""


def handle(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponseDraft | Settled[OffsetCommitResponseDraft]:
    """Commit offsets of existing partitions; the others are refused in the answer."""
    by_id = context.header.api_version >= _TOPIC_IDS
    topics = [(topic["topic_id"] if by_id else topic["name"], topic) for topic in request["topics"]]
    named = Named(context, KEY, topics, retention_ms=request["retention_time_ms"])
    if not named.offsets:
        return {"topics": named.answered({})}
    who = committer(request, request["generation_id_or_member_epoch"])
    try:
        pending = context.broker.groups.commit_offsets(who, named.offsets, context.header.api_version)
    except KafkaError as error:
        return {"topics": named.refused(error.code)}
    return Settled(_answer(named, pending))


def committer(request: OffsetCommitRequest | TxnOffsetCommitRequest, generation: int) -> Committer:
    """Return the committer in an OffsetCommit or TxnOffsetCommit, which name the generation differently."""
    return Committer(
        group_id=request["group_id"],
        member_id=request["member_id"],
        instance_id=request["group_instance_id"],
        generation=generation,
    )


async def _answer(named: Named, pending: Awaitable[Results]) -> OffsetCommitResponseDraft:
    return {"topics": await named.settled(pending)}


class Named:
    """The partitions in a commit: existing ones in `offsets`, the others in `unknown`."""

    def __init__(
        self,
        context: RequestContext,
        api: ApiKey,
        topics: Sequence[tuple[_Key, TxnOffsetCommitRequestTopic]],
        *,
        retention_ms: int = -1,
    ) -> None:
        """`topics` with their names or, where they are named by them, their ids."""
        self._known_as = partial(for_version, api, context.header.api_version)
        self._asked = topics
        self._retention_ms = retention_ms
        self.offsets: list[NewOffset] = []
        self.unknown: dict[tuple[_Key, int], ErrorCode] = {}
        known = context.broker.topics
        for key, asked in topics:
            topic = known.by_id(key) if isinstance(key, bytes) else known.get(key)
            for part in asked["partitions"]:
                self._sort(key, asked, topic, part)

    def _sort(
        self,
        key: _Key,
        asked: TxnOffsetCommitRequestTopic,
        topic: Topic | None,
        part: TxnOffsetCommitRequestPartition,
    ) -> None:
        index = part["partition_index"]
        if topic is not None and 0 <= index < len(topic.partitions):
            new = NewOffset(
                place=(topic.name, index),
                topic_id=topic.topic_id,
                offset=part["committed_offset"],
                leader_epoch=part["committed_leader_epoch"],
                metadata=part["committed_metadata"],
                retention_ms=self._retention_ms,
            )
            self.offsets.append(new)
            asked["name"] = topic.name
            return
        missing_id = topic is None and isinstance(key, bytes)
        error = ErrorCode.UNKNOWN_TOPIC_ID if missing_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.unknown[key, index] = self._known_as(error)

    async def settled(self, pending: Awaitable[Results]) -> list[OffsetCommitResponseTopicDraft]:
        """The answer's topics when the commit is durable or refused."""
        try:
            return self.answered(await pending)
        except KafkaError as error:
            return self.refused(error.code)

    def answered(self, results: Results) -> list[OffsetCommitResponseTopicDraft]:
        """The answer's topics with each partition's result."""
        return [self._topic(key, asked, results) for key, asked in self._asked]

    def refused(self, error: ErrorCode) -> list[OffsetCommitResponseTopicDraft]:
        """The answer's topics, all that exists refused with what this version knows for `error`."""
        return self.answered({new.place: self._known_as(error) for new in self.offsets})

    def _topic(
        self, key: _Key, asked: TxnOffsetCommitRequestTopic, results: Results
    ) -> OffsetCommitResponseTopicDraft:
        partitions: list[OffsetCommitResponsePartitionDraft] = []
        for part in asked["partitions"]:
            index = part["partition_index"]
            error = self.unknown.get((key, index))
            if error is None:
                error = results[asked["name"], index]
            partitions.append({"partition_index": index, "error_code": error})
        answer: OffsetCommitResponseTopicDraft = {"name": asked["name"], "partitions": partitions}
        if isinstance(key, bytes):
            answer["topic_id"] = key
        return answer
