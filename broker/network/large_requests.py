"""Requests of many parts are carried out in steps, so that nobody waits long for what another asks.

The broker does one thing at a time. A request of `LARGE` bytes is read beside all else, in a thread; one that
names many things is served so many at a time, others have their turn in between, and the answer is encoded in
a thread again. The connection's next request begins after it.

A request may name so many things, in all its arrays together, as are served in 100 ms or in steps. More would
cost memory, too: a name of one byte takes a hundred when it is read.
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
    from eoslog.protocol.typed.describe_configs import DescribeConfigsRequestResource
    from eoslog.protocol.typed.metadata import MetadataRequestTopic

LARGE = 32 << 10
MOST_THINGS = 20_000
MOST_IN_STEPS = 100_000
MOST_OFFSETS = 50_000  # they take little time each
MANY = 20
"""Things that are served at once: the dearest ones, topics that have to be made, take milliseconds each."""

_FIRST, _MOST = 5, 500  # things in a step: it depends on how long the step before took
_SHORT, _LONG = 0.001, 0.004  # seconds


class _Parts(NamedTuple):
    """Where a request names the things it asks about, each independent of the others, and where the answer
    tells of them."""

    asked: str
    told: str
    same: Callable[[Any], Hashable] | None = None
    """What is the same of two that are told once: where an answer is so much longer than its question that to
    ask for one thing a thousand times would be an attack."""
    name: str = ""
    inner: str = ""
    number: str = ""
    """Where each thing has a list of its own, as a topic its partitions: its name's field, the list's, and
    the number's in it. What is named twice is asked for at once, as that is an error."""


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
    """Whether reading a request of so many bytes takes long. Records do not: nothing looks into them."""
    return size > LARGE and key != ApiKey.PRODUCE


def most_things(key: int) -> int:
    """How many things a request may name. A Fetch reads its partitions in steps of its own."""
    if key in _PARTS or key == ApiKey.FETCH:
        return MOST_IN_STEPS
    return MOST_OFFSETS if key in _OFFSETS else MOST_THINGS


def has_many(key: int, request: Message) -> bool:
    """Whether serving it takes long."""
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
    told: list[Message] = []
    start, size = 0, _FIRST
    while start < len(everything):
        await context.broker.turns.next()
        some = everything[start : start + size]
        begun = perf_counter()
        result = handler(context, request | {parts.asked: some})
        start, size = start + size, _next_size(size, perf_counter() - begun)
        more = await settled(result)
        if more is None or more.get("error_code"):  # the whole is refused
            return more
        told += more[parts.told]
        answer = answer or more
    return answer | {parts.told: _together(parts, told)}


async def read_and_serve(
    handler: Handler, context: RequestContext, read: Callable[[], Message], refuse: Callable[[str], None]
) -> Message | None:
    """As `serve`, of a large request that is still to be read. `refuse` is told what makes no sense."""
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
    """The things one by one."""
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


def _together(parts: _Parts, told: list[Message]) -> list[Message]:
    """The reverse, of what is told of them: each thing once, with its list."""
    if not parts.inner:
        return told
    found: dict[Any, Message] = {}
    for one in told:
        found.setdefault(one[parts.name], one | {parts.inner: []})[parts.inner].extend(one[parts.inner])
    return list(found.values())


def _next_size(size: int, took: float) -> int:
    if took < _SHORT:
        return min(2 * size, _MOST)
    return max(size // 2, 1) if took > _LONG else size


async def settled(result: Message | Awaitable[Message | None] | None) -> Message | None:
    """What a handler answers, now or later."""
    return await result if isinstance(result, Awaitable) else result
