"""Fetch (key 1, versions 4-18): record batches from given offsets, waiting for new ones.

A fetch is answered at once if it has `min_bytes`, an error or nothing to wait for. Otherwise it waits until
the readable end of a partition moves, for at most `max_wait_ms`. Partitions are read in the request's order
until `max_bytes` are found; the first that has data returns at least one whole batch (KIP-74). In a session
(KIP-227) only partitions that have changed are answered. With authorization on there are no sessions, so that
every fetch names what it reads. KAFKA_STORAGE_ERROR is NOT_LEADER_OR_FOLLOWER before version 6.

Left out: fetches of replicas (there are no followers) are refused with NOT_LEADER_OR_FOLLOWER. A diverging
epoch is not reported, as only replicas send the epoch of their last fetch (consumers ask
OffsetForLeaderEpoch).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access import (
    TOPIC_DENIED,
    AccessRequest,
    RequestRefused,
    Restore,
    refusal,
    topics,
)
from eoslog.broker.requests import RequestContext, Settled
from eoslog.broker.rules.fetch_session import (
    FetchRound,
    PartitionKey,
    asked,
    check_leader_epoch,
    reads_committed,
)
from eoslog.protocol.acls import AclOperation
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import for_version
from eoslog.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.protocol.typed import (
        FetchRequest,
        FetchResponseAbortedTransactionDraft,
        FetchResponseDraft,
        FetchResponsePartitionDraft,
        FetchResponseResponseDraft,
    )

KEY = ApiKey.FETCH
VERSIONS = (4, 18)


_fetched = topics(AclOperation.READ, name="topic")


def access(
    asked: AccessRequest[FetchRequest],
) -> RequestRefused[FetchResponseDraft] | Restore[FetchResponseDraft] | None:
    """Consumers need READ on each topic. A client that claims to be a follower needs CLUSTER_ACTION."""
    request = asked.request
    if max(request["replica_id"], request["replica_state"]["replica_id"]) < 0:
        return _fetched(asked)
    if asked.may_cluster(AclOperation.CLUSTER_ACTION):
        return None
    return refusal(asked, TOPIC_DENIED)


_TOPIC_IDS = 13
_MAX_WAIT_MS = 24 * 3_600_000
_HELD_WHILE_WAITING = 64 << 10
_AT_ONCE = 500  # partitions: a few milliseconds
_BESIDE = 10_000


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponseDraft | Settled[FetchResponseDraft]:
    """Answer at once if there is enough to return, else wait for it."""
    if sum(len(topic["partitions"]) for topic in request["topics"]) > _BESIDE:
        return Settled(_beside(context, request))
    try:
        reads_committed(request["isolation_level"])
    except KafkaError as error:
        return _all_refused(context, request, error.code)
    try:
        sessions, now_ms = context.broker.fetch_sessions, context.broker.clock.now_ms()
        fetch = _Fetch(context, request, sessions.wanted(request, _by_id(context), now_ms))
    except KafkaError as error:
        return {"error_code": error.code}
    if context.broker.memory.answers_short or fetch.is_long or context.broker.turns.has_read_enough:
        return Settled(fetch.wait())
    fetch.read(fetch.places)
    if fetch.satisfied or request["max_wait_ms"] <= 0:
        return fetch.answer()
    fetch.forget(most=0)
    return Settled(fetch.wait())


async def _beside(context: RequestContext, request: FetchRequest) -> FetchResponseDraft:
    """Serve a request so long that a thread makes even the list of its partitions. It gets no session."""
    context.broker.fetch_sessions.end(request["session_id"])
    named = await asyncio.to_thread(list, asked(request, _by_id(context)))
    return await _Fetch(context, request, FetchRound(named)).wait()


def _by_id(context: RequestContext) -> bool:
    return context.header.api_version >= _TOPIC_IDS


class _Fetch:
    """One Fetch request and its unfinished answer."""

    def __init__(self, context: RequestContext, request: FetchRequest, wanted: FetchRound) -> None:
        broker = context.broker
        self._topics = broker.topics
        self._request = request
        self._version = context.header.api_version
        self._by_id = _by_id(context)
        self._committed = reads_committed(request["isolation_level"])
        self._max_bytes = min(request["max_bytes"], broker.config.network.fetch_max_bytes)
        self._memory, self._turns = broker.memory, broker.turns
        self._replica = max(request["replica_id"], request["replica_state"]["replica_id"])
        self._wanted = wanted
        self._parts = dict(self._wanted.parts)
        self._answers: dict[PartitionKey, FetchResponsePartitionDraft] = {}
        self._sizes: dict[PartitionKey, int] = {}
        self._failed = False
        self._held_back = False  # a batch is too large to be returned while memory is short
        self._found = 0

    @property
    def places(self) -> Sequence[PartitionKey]:
        """All partitions, in the order to read them."""
        return list(self._parts)

    @property
    def is_long(self) -> bool:
        """Whether there are more partitions than are read in one go."""
        return len(self._parts) > _AT_ONCE

    @property
    def satisfied(self) -> bool:
        """Whether the answer needs no further waiting."""
        return self._failed or self._found >= self._request["min_bytes"] or not self._parts

    def read(self, places: Sequence[PartitionKey]) -> None:
        """Read these partitions; a result replaces an earlier one."""
        self._begin_round()
        self._read_some(places)
        self._turns.has_read(self._found)

    async def _read_in_steps(self, places: Sequence[PartitionKey]) -> None:
        """As `read`, in steps between which other requests are served."""
        while self._turns.has_read_enough:
            await self._turns.next()
        self._begin_round()
        for start in range(0, len(places), _AT_ONCE):
            if start:
                await self._turns.next()
            before = self._found
            self._read_some(places[start : start + _AT_ONCE])
            self._turns.has_read(max(0, self._found - before))

    def _begin_round(self) -> None:
        self._room = min(self._max_bytes, self._memory.room())
        self._held_back = False

    def _read_some(self, places: Sequence[PartitionKey]) -> None:
        for place in places:
            self._found -= self._sizes.get(place, 0)
            try:
                answer, size = self._read_partition(place)
            except KafkaError as error:
                self._failed = True
                answer, size = _refused(place[1], for_version(KEY, self._version, error.code)), 0
            self._found += size
            self._answers[place], self._sizes[place] = answer, size

    def _read_partition(self, place: PartitionKey) -> tuple[FetchResponsePartitionDraft, int]:
        """A partition's part of the answer, and how many bytes of records are in it."""
        part = self._parts[place]
        partition = self._partition(place)
        check_leader_epoch(partition.leader_epoch, part["current_leader_epoch"])
        if min(part["partition_max_bytes"], self._max_bytes) < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative number of bytes is asked for")
        room = max(0, min(part["partition_max_bytes"], self._room - self._found))
        offset, short = part["fetch_offset"], self._memory.answers_short
        one = self._found == 0 and not short
        result = partition.read(offset, room, committed=self._committed, min_one=one)
        end = result.last_stable_offset if self._committed else result.high_watermark
        self._held_back |= short and not result.records and offset < end
        aborted: list[FetchResponseAbortedTransactionDraft] | None = None
        if result.aborted is not None:
            aborted = [{"producer_id": pid, "first_offset": first} for pid, first in result.aborted]
        answer: FetchResponsePartitionDraft = {
            "partition_index": place[1],
            "high_watermark": result.high_watermark,
            "last_stable_offset": result.last_stable_offset,
            "log_start_offset": result.log_start_offset,
            "aborted_transactions": aborted,
            "records": result.records,
        }
        return answer, len(result.records)

    def _partition(self, place: PartitionKey) -> Partition:
        key, index = place
        topic = self._topics.get(key) if isinstance(key, str) else self._topics.by_id(key)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self._replica >= 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"replica {self._replica} is unknown here")
        return topic.partitions[index]

    def forget(self, most: int) -> bool:
        """Drop what was read if it is more than `most` bytes: while we wait, no limit counts it."""
        if self._found <= most:
            return False
        self._answers.clear()
        self._sizes.clear()
        self._found = 0
        return True

    def answer(self) -> FetchResponseDraft:
        """The response, with what was read so far."""
        session = self._wanted.session
        by_topic: dict[str | bytes, list[FetchResponsePartitionDraft]] = {}
        for (topic, _), answer in self._wanted.needed(self._answers).items():
            by_topic.setdefault(topic, []).append(answer)
        responses: list[FetchResponseResponseDraft] = [
            {"topic_id": topic, "partitions": answers}
            if isinstance(topic, bytes)
            else {"topic": topic, "partitions": answers}
            for topic, answers in by_topic.items()
        ]
        return {"session_id": session.id if session else 0, "responses": responses}

    async def wait(self) -> FetchResponseDraft:
        """Wait until there is enough to answer, for at most the client's time."""
        loop = asyncio.get_running_loop()
        stirred, over = asyncio.Event(), asyncio.Event()
        moved: set[PartitionKey] = set()

        def time_over() -> None:
            over.set()
            stirred.set()

        def stir(place: PartitionKey) -> None:
            moved.add(place)
            stirred.set()

        timer = loop.call_later(min(self._request["max_wait_ms"], _MAX_WAIT_MS) / 1000, time_over)
        watched: list[tuple[Partition, Callable[[], None]]] = []
        try:
            await self._watch(stir, watched)
            await self._memory.until_room()
            await self._read_in_steps(self.places)  # something may have come since the first read
            while not self.satisfied and not over.is_set():
                forgotten = self.forget(most=_HELD_WHILE_WAITING)
                if self._held_back:
                    await self._memory.until_below_limit()
                    forgotten = True
                else:
                    await stirred.wait()
                    await self._memory.until_room()
                stirred.clear()
                stirring = [place for place in self._parts if forgotten or place in moved]
                moved.clear()
                await self._read_in_steps(stirring)
            return self.answer()
        finally:
            timer.cancel()
            for partition, callback in watched:
                partition.unsubscribe(callback)

    async def _watch(
        self, stir: Callable[[PartitionKey], None], watched: list[tuple[Partition, Callable[[], None]]]
    ) -> None:
        """Subscribe to each partition that exists, and add it to `watched`."""
        for number, place in enumerate(self._parts, 1):
            if number % _AT_ONCE == 0:
                await self._turns.next()
            try:
                partition = self._partition(place)
            except KafkaError:  # its answer has the error already
                continue
            callback = partial(stir, place)
            partition.subscribe(callback)
            watched.append((partition, callback))


def _all_refused(context: RequestContext, request: FetchRequest, code: ErrorCode) -> FetchResponseDraft:
    """The answer for a request that is refused as a whole; before version 7 only partitions have an error."""
    responses: list[FetchResponseResponseDraft] = [
        {
            "topic": topic["topic"],
            "topic_id": topic["topic_id"],
            "partitions": [_refused(part["partition"], code) for part in topic["partitions"]],
        }
        for topic in request["topics"]
    ]
    return {"error_code": code, "responses": responses}


def _refused(index: int, code: ErrorCode) -> FetchResponsePartitionDraft:
    return {
        "partition_index": index,
        "error_code": code,
        "high_watermark": -1,
        "aborted_transactions": None,
        "records": b"",
    }
