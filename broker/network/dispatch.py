"""From a request's bytes to its handler, and from the answer to bytes; large requests in steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from eoslog.broker.authorize.access import Check
from eoslog.broker.network.wire_machine import joined
from eoslog.broker.requests import CloseConnection, Handler, RequestContext
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.error_places import error_of_all
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.fields import Versions
from eoslog.protocol.frames import RequestHeader, decode_request_header, encode_response
from eoslog.protocol.schema import Buffer, Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.protocol.typed import (
        ApiVersionsResponseApiKeyDraft,
        DescribeConfigsRequestResource,
        MetadataRequestTopic,
    )

# -- large requests --------------------------------------------------------------------------------
# Serves requests with many parts in steps, so that other clients do not wait long for them.
#
# The broker does one thing at a time. So a request of more than `LARGE` bytes is decoded in a thread. One
# that names many things is served a few at a time, with other work in between, and its answer is encoded in
# a thread. The connection's next request starts after it.
#
# The number of things that a request may name, in all its arrays together, is limited: to what can be
# served in 100 ms, or in steps. More would take too much memory as well: a name of one byte takes a hundred
# when decoded.


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


# -- any request -----------------------------------------------------------------------------------
# Finds the handler of a request, and encodes what the handler returned or raised.
#
# A handler's file declares its API: key, versions, access, function. An error that a handler raises becomes
# an error answer, if the API has a field for it. Otherwise the connection is closed.


_HEAD = Struct(">hhi")  # api key, version, correlation id: the same in every header version

RAW = -1
"""Stands for the version of a SASL token that comes without a header, after SaslHandshake version 0."""


Read = Callable[[], Message]
"""Decodes a request's body, in any thread. Raises ProtocolError if it is invalid."""


def begin(
    frame: memoryview, handlers: Mapping[ApiKey, Handler], session: ClientSession, now: float
) -> tuple[RequestHeader, Handler, Read]:
    """Decode a request's header. Returns it, the handler, and the function that decodes the body.

    `now`: monotonic seconds. Raises ProtocolError if the request is invalid, not served, or not allowed now.
    """
    if len(frame) < _HEAD.size:
        raise ProtocolError(f"a request of {len(frame)} bytes has no header")
    key, version, correlation_id = _HEAD.unpack_from(frame)
    handler = handlers.get(key)
    if handler is None:
        raise ProtocolError(f"API key {key} (version {version}) is not served")
    refusal = session.refuses(key, now)
    if refusal is not None:
        raise ProtocolError(refusal)
    api, versions = APIS[ApiKey(key)], served()[key].versions
    if version not in versions:
        if key == ApiKey.API_VERSIONS:
            header = RequestHeader(ApiKey.API_VERSIONS, 0, correlation_id, None)
            return header, _unsupported_api_versions, dict
        raise ProtocolError(
            f"{api.name} version {version} is not served, only {versions.first} to {versions.last}"
        )
    header, position = decode_request_header(frame)
    return header, handler, lambda: api.request.read(version, frame, position, most_things(key))[0]


def _unsupported_api_versions(context: RequestContext, request: Message) -> Message:
    """The answer to an unknown version of ApiVersions: the served versions, in v0's layout (KIP-511)."""
    known = [one for one in announced() if one["api_key"] == ApiKey.API_VERSIONS]
    return {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": known}


def encode(header: RequestHeader, message: Message) -> list[Buffer]:
    """An answer as parts to send. Raises ProtocolError if it does not fit its schema."""
    if header.api_version == RAW:
        token = message["auth_bytes"]
        return [] if message["error_code"] else [len(token).to_bytes(4, "big"), token]
    return encode_response(header.api_key, header.api_version, header.correlation_id, message)


@dataclass(frozen=True, slots=True)
class Served:
    """An API as its handler's file declares it."""

    handle: Handler
    access: Check
    """Authorizes a request before `handle` runs."""
    versions: Versions
    named_from: int
    """The lowest version that ApiVersions lists."""


@cache
def served() -> Mapping[ApiKey, Served]:
    """The declarations of the handlers' files, by key. Loaded on first use, so that a start is fast."""
    from eoslog.broker import handlers as room

    declared = sorted(room.ALL, key=lambda module: int(module.KEY))
    return {
        module.KEY: Served(
            module.handle,
            module.access,
            Versions(*module.VERSIONS),
            getattr(module, "NAMED_FROM", module.VERSIONS[0]),
        )
        for module in declared
    }


@cache
def handlers() -> Mapping[ApiKey, Handler]:
    """All handlers, by key."""
    return {key: api.handle for key, api in served().items()}


@cache
def checks() -> Mapping[int, Check]:
    """The access rules of all APIs, by key."""
    return {key: api.access for key, api in served().items()}


def announced() -> list[ApiVersionsResponseApiKeyDraft]:
    """The versions of each API as ApiVersions lists them."""
    return [
        {"api_key": key, "min_version": api.named_from, "max_version": api.versions.last}
        for key, api in served().items()
    ]


logger = logging.getLogger(__name__)


def fault(header: RequestHeader, peer: str, error: BaseException) -> Message | None:
    """The answer after a handler has failed; None: the connection must be closed."""
    what = f"API key {header.api_key} v{header.api_version} from {peer} ({header.client_id})"
    if isinstance(error, CloseConnection):
        logger.info("closing the connection: %s: %s", what, error)
        return None
    logger.error("fault while serving %s", what, exc_info=error)
    # If the API has no field for it, parts that were done before the fault are not answered either.
    return error_of_all(header.api_key, header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)


def encoded(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """The bytes of an answer; None if it does not fit its schema: the connection must be closed."""
    try:
        return encode(header, message)
    except Exception as error:  # of any kind, from a generated writer: the client must not wait for ever
        what = "%s: the answer to API key %d does not fit its schema"
        logger.error(what, peer, header.api_key, exc_info=error)
        return None


def encoded_in_few(header: RequestHeader, peer: str, message: Message) -> list[Buffer] | None:
    """Like `encoded`, with small parts joined: for a long answer, in a thread."""
    parts = encoded(header, peer, message)
    return None if parts is None else list(joined(parts))
