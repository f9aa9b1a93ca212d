"""OffsetCommit (key 8, versions 2-10): store how far a group has read.

Unknown topics and partitions are refused one by one, as is metadata that is too long; a wrong member or
generation refuses all. Members of a consumer group (KIP-848) send their epoch, from version 9. An older epoch
is accepted for partitions that the member has had since then (KIP-1251), else it is STALE_MEMBER_EPOCH. From
version 10 topics are named by id. Versions 2-4 may ask for their own retention time. A group that does not
exist: GROUP_ID_NOT_FOUND from version 9, ILLEGAL_GENERATION before.

Complete.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from eoslog.broker.coordinator.groups.offsets_shell import NewOffset, Results
from eoslog.broker.requests.context import RequestContext, Settled
from eoslog.broker.rules.offsets import Committer
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.topics.topics import Topic

KEY = ApiKey.OFFSET_COMMIT
VERSIONS = (2, 10)

_TOPIC_IDS = 10


def handle(context: RequestContext, request: Message) -> Message | Settled:
    """Commit offsets of existing partitions; the others are refused in the answer."""
    named = Named(context, request, by_id=context.header.api_version >= _TOPIC_IDS)
    if not named.offsets:
        return named.body({})
    who = committer(request, request["generation_id_or_member_epoch"])
    try:
        pending = context.broker.groups.commit_offsets(who, named.offsets, context.header.api_version)
    except KafkaError as error:
        return named.refuse(error.code)
    return Settled(answer(named, pending))


def committer(request: Message, generation: int) -> Committer:
    """Return the committer in an OffsetCommit or TxnOffsetCommit, which name the generation differently."""
    return Committer(
        group_id=request["group_id"],
        member_id=request["member_id"],
        instance_id=request["group_instance_id"],
        generation=generation,
    )


async def answer(named: Named, pending: Awaitable[Results]) -> Message:
    """Return the answer when the commit is durable or refused."""
    try:
        return named.body(await pending)
    except KafkaError as error:
        return named.refuse(error.code)


class Named:
    """The partitions in a commit: existing ones in `offsets`, the others in `unknown`."""

    def __init__(self, context: RequestContext, request: Message, *, by_id: bool) -> None:
        self._request = request
        self._by_id = by_id
        self.offsets: list[NewOffset] = []
        self.unknown: dict[tuple[Any, int], ErrorCode] = {}
        for asked in request["topics"]:
            topics = context.broker.topics
            topic = topics.by_id(asked["topic_id"]) if by_id else topics.get(asked["name"])
            for part in asked["partitions"]:
                self._sort(asked, topic, part)

    def _sort(self, asked: Message, topic: Topic | None, part: Message) -> None:
        index = part["partition_index"]
        if topic is not None and 0 <= index < len(topic.partitions):
            new = NewOffset(
                place=(topic.name, index),
                topic_id=topic.topic_id,
                offset=part["committed_offset"],
                leader_epoch=part["committed_leader_epoch"],
                metadata=part["committed_metadata"],
                retention_ms=self._request.get("retention_time_ms", -1),
            )
            self.offsets.append(new)
            asked["name"] = topic.name
            return
        missing_id = topic is None and self._by_id
        error = ErrorCode.UNKNOWN_TOPIC_ID if missing_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.unknown[self._key(asked), index] = error

    def _key(self, asked: Message) -> Any:
        return asked["topic_id"] if self._by_id else asked["name"]

    def body(self, results: Results) -> Message:
        """Return the answer with each partition's result."""
        return {"topics": [self._topic(asked, results) for asked in self._request["topics"]]}

    def refuse(self, error: ErrorCode) -> Message:
        """Return the answer that refuses all existing partitions with `error`."""
        return self.body({new.place: error for new in self.offsets})

    def _topic(self, asked: Message, results: Results) -> Message:
        key, partitions = self._key(asked), []
        for part in asked["partitions"]:
            index = part["partition_index"]
            error = self.unknown.get((key, index))
            if error is None:
                error = results[asked["name"], index]
            partitions.append({"partition_index": index, "error_code": error})
        answer = {"name": asked["name"], "partitions": partitions}
        if "topic_id" in asked:  # TxnOffsetCommit has names only
            answer["topic_id"] = asked["topic_id"]
        return answer
