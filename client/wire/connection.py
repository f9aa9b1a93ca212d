"""One connection to one broker: requests out, answers in, in order.

A blocking socket with pipelining: `send` does not wait for earlier answers, `receive` takes the oldest one.
Versions are negotiated by ApiVersions (KIP-35) when the connection is made. Every wait ends after
request_timeout_ms. A connection that failed once is closed for good, because the outcome of its requests in
flight is unknown.
"""

from __future__ import annotations

import math
import select
import socket
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from eoslog.client.wire.config import PROTOCOL_OPTION, ClientConfig
from eoslog.errors import (
    AuthenticationRefused,
    BrokerUnreachable,
    ConnectionLost,
    UnsupportedByBroker,
)
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.errors import ErrorCode, info
from eoslog.protocol.frames import decode_response, encode_request
from eoslog.protocol.schema import Given, ProtocolError
from eoslog.version import __version__

if TYPE_CHECKING:
    from eoslog.protocol.typed import ApiVersionsRequestDraft, ApiVersionsResponse

RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")

_LENGTH = struct.Struct(">i")
_CORRELATION_AND_ERROR = struct.Struct(">ih")
_TLS_ALERT = 0x1503
"""The first two bytes that a peer sends if it expected TLS."""
_TRY_TLS = f"set {PROTOCOL_OPTION} to SSL or SASL_SSL"
_LOOK_S = 0.2  # between two looks at the file of a password that was refused
_MAX_PARTS = 512  # in one sendmsg; systems allow 1,024
_LARGE = 65_536  # bytes; from here on, memory without zero-filling is worth the import of Arrow


class _Pending(NamedTuple):
    correlation_id: int
    api: ApiKey
    version: int


class BrokerConnection:
    """A connection, open from its creation. Raises BrokerUnreachable if it cannot be opened.

    `versions`: (lowest, highest) served by the broker, by API key. `features`: finalized feature
    levels, such as transaction.version (KIP-584). `ends_together`: the broker ends several transactions in
    one step (the bundled broker's EndTxn). `waiting`: answers still to come.
    """

    def __init__(self, host: str, port: int, config: ClientConfig, *, timeout_ms: int | None = None) -> None:
        self.host, self.port, self.config = host, port, config
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.ends_together = False
        self._served = False  # whether a request after ApiVersions was answered
        self._pending: deque[_Pending] = deque()
        self._next_id = 0
        self._socket: socket.socket | None = None
        self._tried = ""  # the password of the last login, if it is in a file
        self._renew_at = math.inf  # when to authenticate again, on the monotonic clock
        deadline = time.monotonic() + (timeout_ms or config.request_timeout_ms) / 1000
        while self._socket is None:
            try:
                self._open(deadline)
            except (OSError, ProtocolError, UnsupportedByBroker) as error:
                self.close()
                raise BrokerUnreachable(f"{host}:{port}: {_reason(error)}") from error
            except AuthenticationRefused:
                self.close()
                if not self._has_new_password(deadline):
                    raise
            except BaseException:
                self.close()
                raise

    def _open(self, deadline: float) -> None:
        self._check_tls()
        first = min(_left(deadline), self.config.connect_timeout_ms / 1000)
        self._socket = socket.create_connection((self.host, self.port), timeout=first)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._set_buffers(self._socket)
        self._secure(deadline)
        self._negotiate(deadline)
        self._authenticate(deadline)

    def __repr__(self) -> str:
        return f"<Connection {self.host}:{self.port}{' closed' if self.closed else ''}>"

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self._socket is None

    @property
    def waiting(self) -> int:
        """How many answers are still to come."""
        return len(self._pending)

    @property
    def ended(self) -> bool:
        """Whether the broker has closed an idle connection; checks the socket, without a round trip."""
        if self._socket is None or self._pending:
            return False
        watch = select.poll()
        watch.register(self._socket, select.POLLIN)
        return bool(watch.poll(0))

    def close(self) -> None:
        """Close the socket; may be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def pick(self, api: ApiKey, *, max_version: int | None = None, min_version: int = 0) -> int:
        """The highest version within the bounds that both sides support. UnsupportedByBroker if none."""
        ours = APIS[api]
        lowest, highest = self.versions.get(int(api), (0, -1))
        bound = ours.max_version if max_version is None else min(max_version, ours.max_version)
        version = min(highest, bound)
        if version < max(ours.min_version, lowest, min_version):
            served = f"versions {lowest} to {highest}" if highest >= 0 else "no version"
            raise UnsupportedByBroker(
                f"broker {self.host}:{self.port} serves {served} of {ours.name}; eoslog needs one between "
                f"{max(ours.min_version, min_version)} and {bound}: use a broker that serves it, or leave "
                "out the option that needs it"
            )
        return version

    def send(self, api: ApiKey, body: object, version: int | None = None, *, answered: bool = True) -> int:
        """What `ask` does, of whatever API."""
        version = self.pick(api) if version is None else version
        deadline = time.monotonic() + self.config.request_timeout_ms / 1000
        if time.monotonic() >= self._renew_at and not self._pending:
            self._renew(deadline)
        return self._send(api, version, body, deadline, answered)

    def receive(self, timeout_ms: float | None = None) -> Any:
        """What `answer` does, of whatever API."""
        wait = self.config.request_timeout_ms if timeout_ms is None else timeout_ms
        pending, frame = self._receive(time.monotonic() + wait / 1000)
        self._served = True
        return self._decode(pending, frame)

    def ask(
        self,
        api: Api[Any, RequestDraft, Any, Any],
        body: Given[RequestDraft],
        version: int | None = None,
        *,
        answered: bool = True,
    ) -> int:
        """Send a request; returns its correlation id. `answered=False`: no answer will come (acks=0)."""
        return self.send(api.key, body, version, answered=answered)

    def answer(self, api: Api[Any, Any, Response, Any], timeout_ms: float | None = None) -> Response:
        """Wait for the oldest answer, which is one of `api`. ConnectionLost if it does not come in time or
        the connection breaks."""
        if self._pending and self._pending[0].api is not api.key:
            raise RuntimeError(f"{self!r} has an answer of {self._pending[0].api.name} to come first")
        message: Response = self.receive(timeout_ms)
        return message

    def call(
        self,
        api: Api[Any, RequestDraft, Response, Any],
        body: Given[RequestDraft],
        *,
        max_version: int | None = None,
        version: int | None = None,
    ) -> Response:
        """Send a request and wait for its answer. The connection must have no other answers to come."""
        if self._pending:
            raise RuntimeError(
                f"{self!r} has {len(self._pending)} answers to come: call() would get the wrong one"
            )
        self.ask(api, body, self.pick(api.key, max_version=max_version) if version is None else version)
        return self.answer(api)

    def _set_buffers(self, peer: socket.socket) -> None:
        """Set socket buffers if configured; otherwise the system adapts their sizes itself."""
        for option, size in (
            (socket.SO_SNDBUF, self.config.send_buffer_bytes),
            (socket.SO_RCVBUF, self.config.receive_buffer_bytes),
        ):
            if size > 0:
                peer.setsockopt(socket.SOL_SOCKET, option, size)

    def _check_tls(self) -> None:
        """Read keys and certificates before anything is sent. Raises OptionError."""
        if self.config.security.tls is not None:
            from eoslog.client.wire.tls import context  # slow to import, and rarely used

            context(self.config.security.tls)

    def _secure(self, deadline: float) -> None:
        """Start TLS, if configured. Raises OSError, or AuthenticationRefused if a retry would not help."""
        tls = self.config.security.tls
        if tls is None:
            return
        plain = self._open_socket()
        plain.settimeout(_left(deadline))
        from eoslog.client.wire.tls import secured  # as above

        self._socket = secured(plain, self.host, self.port, tls)

    def _authenticate(self, deadline: float) -> None:
        """Authenticate, if configured, and note when to do so again (KIP-368)."""
        sasl = self.config.security.sasl
        if sasl is None:
            return
        from eoslog.client.wire.sasl import authenticate, password_of  # as with TLS
        from eoslog.client.wire.tokens import REFRESH_AT

        def ask(api: Api[Any, RequestDraft, Response, Any], body: Given[RequestDraft]) -> Response:
            self._send(api.key, self.pick(api.key), body, deadline, True)
            message: Response = self._decode(*self._receive(deadline))
            return message

        self._tried = password_of(sasl) if sasl.password_file else ""
        lifetime_ms = authenticate(ask, sasl, self.host)
        self._renew_at = time.monotonic() + REFRESH_AT * lifetime_ms / 1000 if lifetime_ms else math.inf

    def _renew(self, deadline: float) -> None:
        """Log in again. A password that is in a file may have changed: the next connection waits for it."""
        try:
            self._authenticate(deadline)
        except AuthenticationRefused as error:
            if self.config.security.sasl is None or not self.config.security.sasl.password_file:
                raise
            self._lose("logging in again", error)

    def _has_new_password(self, deadline: float) -> bool:
        """Wait until the file of the password has another one than was refused: whoever changes a password
        changes one of the two first. Each is tried once, so that no account is locked."""
        sasl = self.config.security.sasl
        if sasl is None or not sasl.password_file:
            return False
        from eoslog.client.wire.sasl import password_of

        while time.monotonic() < deadline:
            if password_of(sasl) != self._tried:
                return True
            time.sleep(_LOOK_S)
        return False

    def _negotiate(self, deadline: float) -> None:
        """Get the broker's versions. One that lacks our version of ApiVersions answers in 0 (KIP-511)."""
        version = APIS[ApiKey.API_VERSIONS].max_version
        answer = self._ask_versions(version, deadline)
        if answer["error_code"] == ErrorCode.UNSUPPORTED_VERSION:
            served = {key["api_key"]: key["max_version"] for key in answer["api_keys"]}
            answer = self._ask_versions(min(served.get(int(ApiKey.API_VERSIONS), 0), version - 1), deadline)
        if answer["error_code"]:
            raise UnsupportedByBroker(
                f"ApiVersions refused: {info(answer['error_code']).name}; check that a broker listens there"
            )
        self.versions = {k["api_key"]: (k["min_version"], k["max_version"]) for k in answer["api_keys"]}
        self.features = {f["name"]: f["max_version_level"] for f in answer["finalized_features"]}
        self.ends_together = answer["ends_together"]

    def _ask_versions(self, version: int, deadline: float) -> ApiVersionsResponse:
        named: ApiVersionsRequestDraft = {
            "client_software_name": "eoslog",
            "client_software_version": __version__,
        }
        self._send(ApiKey.API_VERSIONS, version, named if version >= 3 else {}, deadline, True)
        pending, frame = self._receive(deadline)
        if len(frame) >= _CORRELATION_AND_ERROR.size:
            _, code = _CORRELATION_AND_ERROR.unpack_from(frame)
            if code == ErrorCode.UNSUPPORTED_VERSION:
                pending = pending._replace(version=0)
        answer: ApiVersionsResponse = self._decode(pending, frame)
        return answer

    def _send(self, api: ApiKey, version: int, body: object, deadline: float, answered: bool) -> int:
        correlation_id = self._next_id
        parts = encode_request(api, version, correlation_id, self.config.client_id, body)
        self._next_id = (correlation_id + 1) & 0x7FFFFFFF
        if answered:
            self._pending.append(_Pending(correlation_id, api, version))
        try:
            peer, sent = self._open_socket(), [memoryview(part).cast("B") for part in parts if len(part)]
            if self.config.security.tls is None:
                _send_parts(peer, sent, deadline)
            else:  # TLS copies everything anyway
                peer.settimeout(_left(deadline))
                peer.sendall(b"".join(sent))
        except OSError as error:
            self._lose(f"sending {APIS[api].name}", error)
        return correlation_id

    def _receive(self, deadline: float) -> tuple[_Pending, memoryview]:
        if not self._pending:
            raise RuntimeError(f"{self!r} has no answer to come")
        pending = self._pending[0]
        try:
            length = _LENGTH.unpack(self._read(4, deadline))[0]
            if length >> 16 == _TLS_ALERT and self.config.security.tls is None:
                raise ProtocolError(f"the peer answers in TLS: {_TRY_TLS}")
            if not 4 <= length <= self.config.max_response_bytes:
                raise ProtocolError(f"an answer of {length} bytes: the peer does not speak Kafka's protocol")
            frame = self._read(length, deadline)
        except (OSError, ProtocolError) as error:
            self._lose(f"waiting for the answer to {APIS[pending.api].name}", error)
        self._pending.popleft()
        return pending, frame

    def _decode(self, pending: _Pending, frame: memoryview) -> Any:
        try:
            correlation_id, message = decode_response(pending.api, pending.version, frame)
            if correlation_id != pending.correlation_id:
                raise ProtocolError(f"answer {correlation_id} came in place of {pending.correlation_id}")
        except ProtocolError as error:
            self._lose(f"reading the answer to {APIS[pending.api].name} v{pending.version}", error)
        return message

    def _read(self, size: int, deadline: float) -> memoryview:
        """Read exactly `size` bytes, into new memory: Arrow columns may continue to point into it."""
        view = _memory(size)
        peer, filled = self._open_socket(), 0
        while filled < size:
            peer.settimeout(_left(deadline))
            got = peer.recv_into(view[filled:])
            if not got:
                raise ConnectionResetError(self._why_closed())
            filled += got
        return view

    def _why_closed(self) -> str:
        """The reason; before the first answers a guess: a broker that expects TLS cannot read our request,
        one that expects a login answers ApiVersions alone."""
        security, closed = self.config.security, "the broker closed the connection"
        if security.tls is None and not self.versions:
            return f"{closed} without an answer; if it expects TLS, {_TRY_TLS}"
        if security.sasl is None and self.versions and not self._served:
            login = "SASL_PLAINTEXT" if security.tls is None else "SASL_SSL"
            return f"{closed} at the first request; if it expects a login, set {PROTOCOL_OPTION} to {login}"
        return closed

    def _open_socket(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionResetError("the connection is closed")
        return self._socket

    def _lose(self, doing: str, error: Exception) -> NoReturn:
        self.close()
        reason = _reason(error)
        if isinstance(error, TimeoutError):
            reason = f"nothing within {self.config.request_timeout_ms} ms (kafka.request.timeout.ms)"
        raise ConnectionLost(f"connection to {self.host}:{self.port} lost while {doing}: {reason}") from error


def _send_parts(peer: socket.socket, parts: list[memoryview], deadline: float) -> None:
    """Send parts one after another without joining them."""
    first = 0
    while first < len(parts):
        peer.settimeout(_left(deadline))
        sent = peer.sendmsg(parts[first : first + _MAX_PARTS])
        while first < len(parts) and sent >= len(parts[first]):
            sent -= len(parts[first])
            first += 1
        if sent:
            parts[first] = parts[first][sent:]


def _memory(size: int) -> memoryview:
    if size < _LARGE:
        return memoryview(bytearray(size))
    import pyarrow  # not needed by connections with small answers

    return memoryview(pyarrow.allocate_buffer(size)).cast("B")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _reason(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
