"""Bounds on connections: their number, and how long one may wait to send a request or take its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

MOST_CONNECTIONS = 64
HANDSHAKE_SECONDS = 10.0
"""For the TLS handshake."""
REQUEST_SECONDS = 30.0
"""From a request's last header to the last byte of its answer."""
SILENT_SECONDS = 30.0
"""From a connection's start, or its last answer, to the next request's last header."""

_SLACK = 5.0  # a slow request is first ended by its own time-out


@dataclass
class _State:
    """The state of a connection, `since` when, and how long it may last."""

    since: float
    most: float
    transport: asyncio.Transport | None = None


class ConnectionWatch:
    """Makes the protocols of new connections, and closes those that hang."""

    def __init__(self, make: Callable[[], asyncio.Protocol], clock: Callable[[], float]) -> None:
        """`make` makes the HTTP server's protocol of one connection."""
        self._make, self._clock = make, clock
        self._known: dict[asyncio.Protocol, _State] = {}

    def __len__(self) -> int:
        return len(self._known)

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new connection; if there are too many, one that closes it."""
        if len(self._known) >= MOST_CONNECTIONS:
            return _Refused()
        protocol = self._make()
        self._known[protocol] = _State(self._clock(), HANDSHAKE_SECONDS + _SLACK)
        return _Counted(protocol, self)

    def made(self, protocol: asyncio.Protocol, transport: asyncio.Transport) -> None:
        """A connection is established, after its TLS handshake if there is one."""
        self._known[protocol] = _State(self._clock(), SILENT_SECONDS, transport)

    def lost(self, protocol: asyncio.Protocol) -> None:
        """A connection has ended."""
        self._known.pop(protocol, None)

    def serves(self, protocol: asyncio.Protocol) -> None:
        """From now on the client waits for us, or takes its answer."""
        self._goes_on(protocol, REQUEST_SECONDS + _SLACK)

    def waits(self, protocol: asyncio.Protocol) -> None:
        """From now on we wait for the client's next request."""
        self._goes_on(protocol, SILENT_SECONDS)

    def _goes_on(self, protocol: asyncio.Protocol, most: float) -> None:
        state = self._known.get(protocol)
        if state is not None:
            state.since, state.most = self._clock(), most

    def cut(self) -> None:
        """Close connections that took too long; those that were never established are only forgotten."""
        now = self._clock()
        for protocol, state in list(self._known.items()):
            if now - state.since > state.most:
                del self._known[protocol]
                if state.transport is not None:
                    state.transport.abort()


class _Refused(asyncio.Protocol):
    """A connection over the limit: closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class _Counted(asyncio.Protocol):
    """Passes everything on to the HTTP server's protocol, and reports start and end to the watch."""

    def __init__(self, inner: asyncio.Protocol, watch: ConnectionWatch) -> None:
        self._inner, self._watch = inner, watch

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._watch.made(self._inner, transport)
        self._inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._watch.lost(self._inner)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
