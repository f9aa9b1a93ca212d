"""Decodes the start of a request and finds its handler; encodes the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct

from eoslog.broker.network.large_requests import most_things
from eoslog.broker.network.served import announced, served
from eoslog.broker.requests.context import Handler, RequestContext
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.frames import RequestHeader, decode_request_header, encode_response
from eoslog.protocol.schema import Buffer, Message, ProtocolError

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
