"""Serves requests with many parts in steps, so that other clients do not wait long for them.

The broker does one thing at a time. So a request of more than `LARGE` bytes is decoded in a thread. One that
names many things is served a few at a time, with other work in between, and its answer is encoded in a
thread. The connection's next request starts after it.

The number of things that a request may name, in all its arrays together, is limited: to what can be served in
100 ms, or in steps. More would take too much memory as well: a name of one byte takes a hundred when decoded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.requests.context import Handler, RequestContext
    from eoslog.protocol.typed import DescribeConfigsRequestResource, MetadataRequestTopic

LARGE = 32 << 10
MOST_THINGS = 20_000
MOST_IN_STEPS = 100_000
MOST_OFFSETS = 50_000  # each takes little time
MANY = 20
"""Things that are served at once. The slowest ones, topics that must be created, take milliseconds each."""

_FIRST, _MOST = 5, 500  # things in a step, the first and the largest; adapted to the last step's time
_SHORT, _LONG = 0.001, 0.004  # seconds


class _Parts(NamedTuple):
    """The fields that list independent things: in the request (`asked`) and in its answer (`answered`)."""

    asked: str
    answered: str
    same: Callable[[Any], Hashable] | None = None
    """The key by which duplicates are found and answered once. Set where an answer is so much longer than its
    question that asking for one thing a thousand times would be an attack."""
    name: str = ""
    inner: str = ""
    number: str = ""
    """Set if each thing has a list, as a topic has partitions: the fields of its name, of the list, and of
    the number in it. Duplicates go to the handler in the same step, as they are an error."""


def _same_topic(wanted: MetadataRequestTopic) -> Hashable:
    return wanted["name"], wanted["topic_id"]


def _same_resource(wanted: DescribeConfigsRequestResource) -> Hashable:
    keys = wanted["configuration_keys"]
    return wanted["resource_type"], wanted["resource_name"], None if keys is None else tuple(keys)


_PARTS: dict[int, _Parts] = {
    ApiKey.METADATA: _Parts("topics", "topics", _same_topic),
    ApiKey.LIST_OFFSETS: _Parts("topics", "topics", None, "name", "partitions", "partition_index"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Parts("topics", "topics", None, "topic", "partitions", "partition"),
    ApiKey.DESCRIBE_PRODUCERS: _Parts("topics", "topics"),
    ApiKey.DESCRIBE_CONFIGS: _Parts("resources", "results", _same_resource),
    ApiKey.DESCRIBE_GROUPS: _Parts("groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Parts("group_ids", "groups"),
    ApiKey.DELETE_GROUPS: _Parts("groups_names", "results"),
    ApiKey.OFFSET_FETCH: _Parts("groups", "groups"),
    ApiKey.FIND_COORDINATOR: _Parts("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_TRANSACTIONS: _Parts("transactional_ids", "transaction_states"),
}


_OFFSETS = frozenset({
    ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.OFFSET_DELETE, ApiKey.ADD_PARTITIONS_TO_TXN,
})  # fmt: skip


def is_large(key: int, size: int) -> bool:
    """Whether decoding a request of `size` bytes takes long. Records do not, as they are not decoded."""
    return size > LARGE and key != ApiKey.PRODUCE


def most_things(key: int) -> int:
    """How many things a request may name. A Fetch reads its partitions in its own steps."""
    if key in _PARTS or key == ApiKey.FETCH:
        return MOST_IN_STEPS
    return MOST_OFFSETS if key in _OFFSETS else MOST_THINGS


def has_many(key: int, request: Message) -> bool:
    """Whether serving the request takes long."""
    parts = _PARTS.get(key)
    if parts is None:
        return False
    things = request.get(parts.asked) or ()
    return len(things) > MANY or (bool(parts.inner) and any(len(one[parts.inner]) > _MOST for one in things))


async def serve(handler: Handler, context: RequestContext, request: Message) -> Message | None:
    """The handler's answer to a request of many parts, made in steps."""
    parts = _PARTS[context.header.api_key]
    everything = _apart(parts, request[parts.asked])
    answer: Message = {}
    results: list[Message] = []
    start, size = 0, _FIRST
    while start < len(everything):
        await context.broker.turns.next()
        some = everything[start : start + size]
        begun = perf_counter()
        result = handler(context, request | {parts.asked: some})
        start, size = start + size, _next_size(size, perf_counter() - begun)
        more = await settled(result)
        if more is None or more.get("error_code"):  # the whole request is refused
            return more
        results += more[parts.answered]
        answer = answer or more
    return answer | {parts.answered: _together(parts, results)}


async def read_and_serve(
    handler: Handler, context: RequestContext, read: Callable[[], Message], refuse: Callable[[str], None]
) -> Message | None:
    """Like `serve`, for a large request that `read` decodes first. `refuse` gets the error if that fails."""
    async with context.broker.turns.large():
        try:
            request = await asyncio.to_thread(read)
        except ProtocolError as error:
            refuse(f"{error}")
            return None
        if has_many(context.header.api_key, request):
            return await serve(handler, context, request)
    return await settled(handler(context, request))


def _apart(parts: _Parts, asked: list[Any]) -> list[Any]:
    """The list of things: without duplicates, or with one entry of the inner list each."""
    if parts.same is not None:
        return list({parts.same(one): one for one in asked}.values())
    if not parts.inner:
        return asked
    places: dict[tuple[str, int], Message] = {}
    for thing in asked:
        for one in thing[parts.inner]:
            place = thing[parts.name], one[parts.number]
            places.setdefault(place, thing | {parts.inner: []})[parts.inner].append(one)
    return list(places.values())


def _together(parts: _Parts, results: list[Message]) -> list[Message]:
    """The reverse of `_apart` for the results: each thing once, with its whole list."""
    if not parts.inner:
        return results
    found: dict[Any, Message] = {}
    for one in results:
        found.setdefault(one[parts.name], one | {parts.inner: []})[parts.inner].extend(one[parts.inner])
    return list(found.values())


def _next_size(size: int, took: float) -> int:
    if took < _SHORT:
        return min(2 * size, _MOST)
    return max(size // 2, 1) if took > _LONG else size


async def settled(result: Message | Awaitable[Message | None] | None) -> Message | None:
    """The answer of a handler, which may have to be awaited."""
    return await result if isinstance(result, Awaitable) else result
