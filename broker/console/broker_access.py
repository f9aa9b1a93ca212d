"""A client inside the broker: each request passes authorization and runs its handler, as one from outside.

So the console shows nobody more than the protocol would, and needs no rules of its own. It runs on the
console's event loop. Only the handlers run on the broker's loop, one request at a time and for a bounded
share of its time: see `SHARE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.broker.network.dispatch import checks, handlers
from eoslog.broker.requests import CloseConnection, RequestContext
from eoslog.broker.rules.acls import Client
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Given, Message
from eoslog.protocol.topic_partitions import TopicPartition
from eoslog.protocol.typed import LIST_OFFSETS

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker
    from eoslog.protocol.typed import ListOffsetsRequestTopicDraft

SHARE = 0.1
"""The largest share of the broker's event loop for the console, which waits before it takes more."""

PATIENCE = 10.0
"""Seconds that the broker may take for one answer."""

_CLIENT_ID = "eoslog-console"

Found = TypeVar("Found")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")


Row = dict[str, Any]
"""What a list shows of an item."""


def check(code: int, what: str) -> None:
    """Raise KafkaError for an answer's error code."""
    if code:
        raise KafkaError(code, what)


class BrokerBusy(Exception):
    """The broker did not answer within `PATIENCE`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: `session` has the principal, `host` is the browser's address."""

    session: ClientSession
    host: str

    @property
    def name(self) -> str:
        """The principal, as "User:alice"."""
        return self.session.principal


class Pace:
    """Limits the console's share of the broker's loop by a pause after each piece of work."""

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = perf_counter) -> None:
        self._share, self._clock = share, clock
        self._free_at = 0.0

    def wait(self) -> float:
        """Seconds until the next piece of work may begin."""
        return max(0.0, self._free_at - self._clock())

    def took(self, seconds: float) -> None:
        """Note that a piece of work has just ended."""
        self._free_at = self._clock() + seconds * (1 / self._share - 1)


class BrokerAccess:
    """Calls the broker; made and used on the console's event loop."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the broker's."""
        self.broker, self._loop = broker, loop
        self._pace, self._turn = Pace(), asyncio.Lock()
        self._guard: Guard | None = None
        if broker.authorizer is not None:
            from eoslog.broker.authorize.access import Guard  # imported only where it is used

            self._guard = Guard(broker.authorizer, checks())

    async def ask(
        self,
        caller: Caller,
        api: Api[Any, RequestDraft, Response, Any],
        version: int,
        body: Given[RequestDraft],
        first: Callable[[], None] | None = None,
    ) -> Response:
        """Carry out a request. Raises BrokerBusy, and KafkaError where a refusal has no answer.

        `first` runs on the broker's loop, in the turn in which the handler begins, and may raise to stop it.
        """
        request, _ = api.request.read(version, b"".join(api.request.write(version, body)))
        header = RequestHeader(api.key, version, 0, _CLIENT_ID)
        context = RequestContext(self.broker, header, caller.host, session=caller.session)
        encoded = await self._in_turn(lambda took: self._carry_out(context, request, first, took))
        answer, _ = api.response.read(version, encoded)
        return answer

    async def look(self, action: Callable[[], Found]) -> Found:
        """Call a short function on the broker's loop. Raises what it raises, and BrokerBusy."""

        async def timed(took: Callable[[float], None]) -> Found:
            begun = perf_counter()
            try:
                return action()
            finally:
                took(perf_counter() - begun)

        return await self._in_turn(timed)

    async def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Run a coroutine on the broker's loop. Raises what it raises, and BrokerBusy."""
        return await self._arrived(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def may(self, caller: Caller, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the caller may do this, by the broker's ACLs."""
        return await self.look(lambda: self.allows(caller, operation, kind, name))

    async def may_see_cluster(self, caller: Caller) -> bool:
        """Whether the caller may see what concerns the whole broker."""
        return await self.may(caller, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows(self, caller: Caller, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """The same, on the broker's loop."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        client = Client(caller.session.principal, caller.host)
        return authorizer.allows(client, operation, kind, name)

    async def _in_turn(self, make: Callable[[Callable[[float], None]], Coroutine[Any, Any, Found]]) -> Found:
        async with self._turn:
            wait = self._pace.wait()
            if wait > 0:
                await asyncio.sleep(wait)
            spent: list[float] = []
            try:
                return await self.run(make(spent.append))
            finally:
                self._pace.took(sum(spent))

    async def _arrived(self, outcome: Future[Found]) -> Found:
        # Work that has begun continues even if its caller stops waiting: no change may end half-done.
        begun = asyncio.shield(asyncio.wrap_future(outcome))
        try:
            return await asyncio.wait_for(begun, PATIENCE)
        except TimeoutError as error:
            raise BrokerBusy(f"the broker did not answer within {PATIENCE:.0f} s") from error

    async def _carry_out(
        self,
        context: RequestContext,
        request: Message,
        first: Callable[[], None] | None,
        took: Callable[[float], None],
    ) -> bytes:
        """On the broker's loop: authorization, handler, and the answer as bytes (loops share no objects)."""
        header, guard, begun = context.header, self._guard, perf_counter()
        key = ApiKey(header.api_key)
        handler = handlers()[key]
        if guard is not None:
            handler = guard.around(header, handler)
        if first is not None:
            first()
        try:
            answer = handler(context, request)
            if isinstance(answer, Awaitable):
                took(perf_counter() - begun)
                answer, begun = await answer, perf_counter()
        except CloseConnection as refused:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(refused)) from refused
        assert answer is not None, f"{key.name} has an answer"
        encoded = b"".join(APIS[key].response.write(header.api_version, answer))
        took(perf_counter() - begun)
        return encoded


# -- offsets ---------------------------------------------------------------------------------------
# First and last offsets of partitions, by ListOffsets in small pieces.


START, END = -2, -1
AT_ONCE = 200
"""Partitions in one request, so that each is short work for the broker's loop."""


def pieces(places: Iterable[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Split into pieces of `AT_ONCE`."""
    rest = iter(places)
    while piece := list(islice(rest, AT_ONCE)):
        yield piece


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers by topic."""
    found: dict[str, list[int]] = {}
    for topic, index in places:
        found.setdefault(topic, []).append(index)
    return found


async def offsets(
    inside: BrokerAccess,
    caller: Caller,
    places: Sequence[TopicPartition],
    time: int,
    *,
    committed: bool = False,
) -> dict[TopicPartition, int]:
    """Offsets of partitions: `START`, `END` (the last stable offset if `committed`), or for a time in ms.

    Partitions that give an error, or have no record at or after that time, are omitted.
    """
    found: dict[TopicPartition, int] = {}
    for piece in pieces(places):
        topics: list[ListOffsetsRequestTopicDraft] = [
            {"name": topic, "partitions": [{"partition_index": i, "timestamp": time} for i in indexes]}
            for topic, indexes in by_topic(piece).items()
        ]
        answer = await inside.ask(
            caller,
            LIST_OFFSETS,
            7,
            {"replica_id": -1, "isolation_level": int(committed), "topics": topics},
        )
        found |= {
            (topic["name"], part["partition_index"]): part["offset"]
            for topic in answer["topics"]
            for part in topic["partitions"]
            if not part["error_code"] and part["offset"] >= 0
        }
    return found


# -- paging ----------------------------------------------------------------------------------------
# Long lists: filtered by a text, sorted, in pages by name, or cut off where they are too long. Pure.


Item = TypeVar("Item")

MOST = 200
"""The most items in one answer."""

MOST_LOOKED_AT = 2000
"""The most items that are sorted by other columns; where more match, they are sorted by name."""

NAME = "name"


@dataclass(frozen=True)
class PageQuery:
    """A list's parameters. `fold`: one line for all items of a sink. `sink`: only the items of this sink."""

    after: str = ""
    contains: str = ""
    limit: int = MOST
    sort: str = NAME
    down: bool = False
    fold: bool = False
    sink: str = ""

    def wants(self, sink: str | None) -> bool:
        """Whether an item of this sink, or of none, has a line of its own."""
        return sink == self.sink if self.sink else sink is None or not self.fold


def matching(items: Iterable[Item], name: Callable[[Item], str], contains: str) -> list[Item]:
    """The names that contain a text in either case, plain or quoted as in sinks' ids."""
    plain = contains.lower()
    quoted = plain.replace("%", "%25").replace("/", "%2f")
    return [item for item in items if plain in name(item).lower() or quoted in name(item).lower()]


def chosen(
    items: Iterable[Item], name: Callable[[Item], str], want: PageQuery
) -> tuple[list[Item], str | None]:
    """For a list by name: a page, and where the next one begins. For other orders: all, by name."""
    if want.sort == NAME and not want.down:
        return page(items, name, after=want.after, limit=want.limit)
    if want.sort == NAME:
        return sorted(items, key=name, reverse=True)[: want.limit], None
    return sorted(items, key=name), None


def arranged(rows: Iterable[Row], want: PageQuery) -> list[Row]:
    """The rows of `chosen` items, sorted as wanted and cut off; unknown values come last."""
    found, column = list(rows), want.sort
    if column == NAME:
        return found
    known = [row for row in found if row[column] is not None]
    known.sort(key=lambda row: row[column], reverse=want.down)
    return [*known, *(row for row in found if row[column] is None)][: want.limit]


def page(
    items: Iterable[Item], name: Callable[[Item], str], *, after: str, limit: int
) -> tuple[list[Item], str | None]:
    """The first `limit` items by name that come after `after`.

    Also returns the name after which the next page begins; None at the end.
    """
    left = (item for item in items if name(item) > after)
    found = nsmallest(min(limit, MOST) + 1, left, key=name)
    more = len(found) > min(limit, MOST)
    found = found[:-1] if more else found
    return found, name(found[-1]) if more else None
