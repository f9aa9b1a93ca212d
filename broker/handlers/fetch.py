"""Fetch (key 1, versions 4-18): record batches from given offsets on, waiting for some to come.

A fetch is answered at once when it has `min_bytes`, an error or nothing to wait for; else it waits until a
partition's readable end moves, at most `max_wait_ms`. Partitions are read in the request's order until
`max_bytes` are found; the first that has data gives at least one whole batch (KIP-74).

Sessions (KIP-227) are not kept: a client that asks for one is answered with session 0, which tells it to send
whole requests; one that names a session gets FETCH_SESSION_ID_NOT_FOUND and does the same. There are no
followers, so a replica's fetch is refused.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from eoslog.broker.dispatch import RequestContext, Settled
from eoslog.broker.handlers.list_offsets import check_leader_epoch
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.topics import Topic

KEY = ApiKey.FETCH

_TOPIC_IDS = 13
_FULL_FETCH = (0, -1)  # session epochs that need no session
_READ_COMMITTED = 1
_MAX_WAIT_MS = 24 * 3_600_000


def handle(context: RequestContext, request: Message) -> Message | Settled:
    """Answer at once if there is enough, else when there is."""
    if request["session_epoch"] not in _FULL_FETCH:
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND}
    fetch = _Fetch(context, request)
    fetch.read()
    if fetch.satisfied or request["max_wait_ms"] <= 0:
        return fetch.answer
    return Settled(fetch.wait())


class _Fetch:
    """One Fetch request and the answer in the making."""

    def __init__(self, context: RequestContext, request: Message) -> None:
        self._topics = context.broker.topics
        self._request = request
        self._by_id = context.header.api_version >= _TOPIC_IDS
        self._committed = request["isolation_level"] == _READ_COMMITTED
        self._max_bytes = min(request["max_bytes"], context.broker.config.fetch_max_bytes)
        self._replica = max(request["replica_id"], request["replica_state"]["replica_id"])
        self.answer: Message = {}
        self.satisfied = False

    def read(self) -> None:
        """Make the answer from what is readable now."""
        self._found = 0
        self._failed = False
        responses = [
            {
                "topic": wanted["topic"],
                "topic_id": wanted["topic_id"],
                "partitions": self._read_topic(wanted),
            }
            for wanted in self._request["topics"]
        ]
        self.answer = {"responses": responses}
        self.satisfied = self._failed or self._found >= self._request["min_bytes"] or not responses

    def _read_topic(self, wanted: Message) -> list[Message]:
        topic = self._topic(wanted)
        answers = []
        for part in wanted["partitions"]:
            try:
                answers.append(self._read_partition(topic, part))
            except KafkaError as error:
                self._failed = True
                answers.append(_refused(part["partition"], error))
        return answers

    def _topic(self, wanted: Message) -> Topic | None:
        return self._topics.by_id(wanted["topic_id"]) if self._by_id else self._topics.get(wanted["topic"])

    def _read_partition(self, topic: Topic | None, part: Message) -> Message:
        partition = self._partition(topic, part["partition"])
        check_leader_epoch(part["current_leader_epoch"])
        room = max(0, min(part["partition_max_bytes"], self._max_bytes - self._found))
        result = partition.read(
            part["fetch_offset"], room, committed=self._committed, min_one=self._found == 0
        )
        self._found += len(result.records)
        aborted = None
        if result.aborted is not None:
            aborted = [{"producer_id": pid, "first_offset": first} for pid, first in result.aborted]
        return {
            "partition_index": part["partition"],
            "high_watermark": result.high_watermark,
            "last_stable_offset": result.last_stable_offset,
            "log_start_offset": result.log_start_offset,
            "aborted_transactions": aborted,
            "records": result.records,
        }

    def _partition(self, topic: Topic | None, index: int) -> Partition:
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if self._by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code)
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._replica >= 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {self._replica} is none of ours")
        return topic.partitions[index]

    async def wait(self) -> Message:
        """Wait until there is enough to answer, at most the time the client gave."""
        loop = asyncio.get_running_loop()
        moved, over = asyncio.Event(), asyncio.Event()

        def time_over() -> None:
            over.set()
            moved.set()

        timer = loop.call_later(min(self._request["max_wait_ms"], _MAX_WAIT_MS) / 1000, time_over)
        watched = self._watched()
        for partition in watched:
            partition.subscribe(moved.set)
        try:
            while True:
                self.read()  # also before the first wait: something may have come since the first look
                if self.satisfied or over.is_set():
                    return self.answer
                moved.clear()
                await moved.wait()
        finally:
            timer.cancel()
            for partition in watched:
                partition.unsubscribe(moved.set)

    def _watched(self) -> list[Partition]:
        """Each partition of the request that is there, once."""
        found: dict[tuple[str, int], Partition] = {}
        for wanted in self._request["topics"]:
            topic = self._topic(wanted)
            for part in wanted["partitions"]:
                if topic is not None and 0 <= part["partition"] < len(topic.partitions):
                    found[topic.name, part["partition"]] = topic.partitions[part["partition"]]
        return list(found.values())


def _refused(index: int, error: KafkaError) -> Message:
    return {
        "partition_index": index,
        "error_code": error.code,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }
