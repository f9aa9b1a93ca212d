"""Frames and headers: what surrounds a message on a connection. Sans-I/O: bytes in, frames out.

A frame is an int32 size and that many bytes: a header, then the message. The header's version follows from
the API (KIP-482): in flexible versions a request header has tagged fields (v2), and a response header too
(v1). The exception is ApiVersions, whose response must be readable before any version is agreed on (KIP-511).
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.primitives import read_uvarint
from eoslog.protocol.schema import Buffer, ProtocolError

_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, size of the client id
_CORRELATION_ID = struct.Struct(">i")


class FrameError(ProtocolError):
    """A frame whose size is negative or above the limit. The connection is of no further use."""


class FrameReader:
    """Cuts a stream of bytes into frames.

    Frames are writable views of their own memory, so the buffer given to `feed` may be used again. An
    incomplete frame takes no more memory than has arrived, whatever size it claims.
    """

    def __init__(self, max_size: int) -> None:
        """`max_size`: the most bytes a frame may have, without its size prefix; it may be changed later."""
        self.max_size = max_size
        self._buffer = bytearray()
        self._need = _SIZE.size

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take the next bytes. Returns the frames that they complete. Raises FrameError."""
        self._buffer += data
        if len(self._buffer) < self._need:
            return []
        return self._cut(memoryview(self._buffer))

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame; if above 0 at the end of a connection, the frame was cut off."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """Bytes that the incomplete frame still needs; if its size is still unknown, those of the size."""
        return self._need - len(self._buffer)

    def _cut(self, view: memoryview) -> list[memoryview]:
        """Return the frames as views of the buffer, and start a new buffer with the rest."""
        frames: list[memoryview] = []
        pos, self._need = 0, _SIZE.size
        while len(view) - pos >= _SIZE.size:
            size = self._checked(_SIZE.unpack_from(view, pos)[0])
            end = pos + _SIZE.size + size
            if end > len(view):
                self._need = end - pos
                break
            frames.append(view[pos + _SIZE.size : end])
            pos = end
        self._buffer = bytearray(view[pos:])
        return frames

    def _checked(self, size: int) -> int:
        if not 0 <= size <= self.max_size:
            raise FrameError(f"a frame claims {size} bytes, allowed are 0 to {self.max_size}")
        return size


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def api_of(api_key: int) -> Api:
    """The API of a key; ProtocolError for a key that is not served."""
    api = _BY_NUMBER.get(api_key)
    if api is None:
        raise ProtocolError(f"API key {api_key} is not known")
    return api


_BY_NUMBER: dict[int, Api] = {int(key): api for key, api in APIS.items()}


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: object
) -> list[Buffer]:
    """A whole request frame as parts, size prefix included. ProtocolError for values that do not fit."""
    api = api_of(api_key)
    name = b"" if client_id is None else client_id.encode("utf-8", "replace")
    name_size = -1 if client_id is None else len(name)
    try:
        header = _REQUEST_HEADER.pack(api_key, version, correlation_id, name_size) + name
    except struct.error as error:
        what = f"version {version}, correlation id {correlation_id} and a client id of {name_size} bytes"
        raise ProtocolError(f"{what} do not fit a request header") from error
    if api.request.is_flexible(version):
        header += b"\0"
    return _framed(header, api.request.write(version, body))


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header of a request frame (without size prefix). Returns it and where the message starts.

    The version may be one that is not served: the caller must answer that. ProtocolError for an unknown API
    key, since then the layout of the header is unknown too.
    """
    try:
        api_key, version, correlation_id, size = _REQUEST_HEADER.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError(f"a request of {len(frame)} bytes is too short for its header") from error
    api = api_of(api_key)
    pos = _REQUEST_HEADER.size
    client_id = None
    if size != -1:
        client_id, pos = _client_id(frame, pos, size)
    if api.request.is_flexible(version):
        pos = _skip_tags(memoryview(frame), pos)
    return RequestHeader(api_key, version, correlation_id, client_id), pos


def _client_id(frame: Buffer, pos: int, size: int) -> tuple[str, int]:
    end = pos + size
    if size < 0 or end > len(frame):
        raise ProtocolError(f"a client id of {size} bytes does not fit a request of {len(frame)} bytes")
    try:
        return str(frame[pos:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise ProtocolError("the client id is not UTF-8") from error


def _skip_tags(frame: memoryview, pos: int) -> int:
    """Skip the tagged fields of a header; no tag defined so far matters to either side."""
    try:
        count, pos = read_uvarint(frame, pos)
        for _ in range(count):
            _, pos = read_uvarint(frame, pos)
            size, pos = read_uvarint(frame, pos)
            pos += size
    except IndexError as error:
        raise ProtocolError("the header is cut short within its tagged fields") from error
    if pos > len(frame):
        raise ProtocolError("a tagged field of the header extends beyond the frame")
    return pos


def encode_response(api_key: int, version: int, correlation_id: int, body: object) -> list[Buffer]:
    """A whole response frame as parts, size prefix included."""
    api = api_of(api_key)
    header = _CORRELATION_ID.pack(correlation_id)
    if _response_has_tags(api, version):
        header += b"\0"
    return _framed(header, api.response.write(version, body))


def decode_response(api_key: int, version: int, frame: Buffer) -> tuple[int, Any]:
    """Read a response frame (without size prefix): correlation id and message. No byte may be left over."""
    api = api_of(api_key)
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError(f"a response of {len(frame)} bytes is too short for its header")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    pos = _CORRELATION_ID.size
    if _response_has_tags(api, version):
        pos = _skip_tags(memoryview(frame), pos)
    message, end = api.response.read(version, frame, pos)
    if end != len(frame):
        left = len(frame) - end
        raise ProtocolError(f"{api.response.name} v{version} leaves {left} bytes of its frame unread")
    return correlation_id, message


def _response_has_tags(api: Api, version: int) -> bool:
    return api.key != ApiKey.API_VERSIONS and api.response.is_flexible(version)


def _framed(header: bytes, body: list[Buffer]) -> list[Buffer]:
    """Put size and header before the parts of a message."""
    size = len(header) + sum(memoryview(part).nbytes for part in body)
    if size > 0x7FFFFFFF:
        raise ProtocolError(f"a frame of {size} bytes is above the protocol's limit of 2 GiB")
    return [_SIZE.pack(size) + header, *body]
