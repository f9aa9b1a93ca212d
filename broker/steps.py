"""Requests of many parts are carried out in steps, so that nobody waits long for what another asks.

The broker does one thing at a time. A request of `LARGE` bytes is read beside all else, in a thread; one that
names many things is served so many at a time, others have their turn in between, and the answer is encoded in
a thread again. The connection's next request begins after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.dispatch import Handler, RequestContext

LARGE = 32 << 10
MANY = 20
"""Things that are served at once: the dearest ones, topics that have to be made, take milliseconds each."""

_FIRST, _MOST = 5, 500  # things in a step: it depends on how long the step before took
_SHORT, _LONG = 0.002, 0.01  # seconds


class _Parts(NamedTuple):
    """Where a request names the things it asks about, each independent of the others, and where the answer
    tells of them."""

    asked: str
    told: str
    same: Callable[[Any], Hashable] | None = None
    """What is the same of two that are told once: where an answer is so much longer than its question that to
    ask for one thing a thousand times would be an attack."""


def _same_resource(wanted: Message) -> Hashable:
    keys = wanted["configuration_keys"]
    return wanted["resource_type"], wanted["resource_name"], None if keys is None else tuple(keys)


_PARTS: dict[int, _Parts] = {
    ApiKey.METADATA: _Parts("topics", "topics"),
    ApiKey.LIST_OFFSETS: _Parts("topics", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Parts("topics", "topics"),
    ApiKey.DESCRIBE_PRODUCERS: _Parts("topics", "topics"),
    ApiKey.DESCRIBE_CONFIGS: _Parts("resources", "results", _same_resource),
    ApiKey.DESCRIBE_GROUPS: _Parts("groups", "groups"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _Parts("group_ids", "groups"),
    ApiKey.DELETE_GROUPS: _Parts("groups_names", "results"),
    ApiKey.OFFSET_FETCH: _Parts("groups", "groups"),
    ApiKey.FIND_COORDINATOR: _Parts("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_TRANSACTIONS: _Parts("transactional_ids", "transaction_states"),
}


def is_large(key: int, size: int) -> bool:
    """Whether reading a request of so many bytes takes long. Records do not: nothing looks into them."""
    return size > LARGE and key != ApiKey.PRODUCE


def has_many(key: int, request: Message) -> bool:
    """Whether serving it takes long."""
    parts = _PARTS.get(key)
    return parts is not None and len(request.get(parts.asked) or ()) > MANY


async def serve(handler: Handler, context: RequestContext, request: Message) -> Message | None:
    """The handler's answer, made in steps where the request has many parts."""
    key = context.header.api_key
    if not has_many(key, request):
        return await _settled(handler(context, request))
    parts = _PARTS[key]
    everything: list[Any] = request[parts.asked]
    if parts.same is not None:
        everything = list({parts.same(one): one for one in everything}.values())
    answer: Message = {}
    told: list[Message] = []
    start, size = 0, _FIRST
    while start < len(everything):
        some = everything[start : start + size]
        begun = perf_counter()
        result = handler(context, request | {parts.asked: some})
        start, size = start + size, _next_size(size, perf_counter() - begun)
        more = await _settled(result)
        if more is None or more.get("error_code"):  # the whole is refused
            return more
        told += more[parts.told]
        answer = answer or more
        await asyncio.sleep(0)
    return answer | {parts.told: told}


def _next_size(size: int, took: float) -> int:
    if took < _SHORT:
        return min(2 * size, _MOST)
    return max(size // 2, 1) if took > _LONG else size


async def _settled(result: Message | Awaitable[Message | None] | None) -> Message | None:
    return await result if isinstance(result, Awaitable) else result
