"""Finds the handler of a request, and encodes what the handler returned or raised.

A handler's file declares its API: key, versions, access, function. An error that a handler raises becomes
an error answer, if the API has a field for it. Otherwise the connection is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from struct import Struct
from typing import TYPE_CHECKING

from eoslog.broker.authorize.access_request import Check
from eoslog.broker.network.large_requests import most_things
from eoslog.broker.network.wire_machine import joined
from eoslog.broker.requests.context import CloseConnection, Handler, RequestContext
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.error_places import error_of_all
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.fields import Versions
from eoslog.protocol.frames import RequestHeader, decode_request_header, encode_response
from eoslog.protocol.schema import Buffer, Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.protocol.typed import ApiVersionsResponseApiKeyDraft

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
