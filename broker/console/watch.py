"""Bounds on connections: how many, and how long one may keep us waiting with a request or for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

MOST_CONNECTIONS = 64
REQUEST_SECONDS = 30.0
"""From a request's last header to the last byte of its answer."""
SILENT_SECONDS = 30.0
"""From a connection's begin, or its latest answer, to the next request's last header."""

_SLACK = 5.0  # a request that takes too long is first ended by its own time-out


class _Refused(asyncio.Protocol):
    """One connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class Watch:
    """Makes the protocols of new connections, and cuts those that hang."""

    def __init__(
        self, make: Callable[[], asyncio.BaseProtocol], live: Callable[[], Iterable[Any]],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        """`make` makes the HTTP server's protocol of one connection, `live` are those connected now."""
        self._make, self._live, self._clock = make, live, clock
        self._since: dict[Any, float] = {}
        self._busy: dict[Any, bool] = {}

    def accept(self) -> asyncio.BaseProtocol:
        """The protocol of a new connection."""
        if len(list(self._live())) >= MOST_CONNECTIONS:
            return _Refused()
        return self._make()

    def waits(self, protocol: Any) -> None:
        """From now on the connection waits for a request."""
        self._since[protocol], self._busy[protocol] = self._clock(), False

    def serves(self, protocol: Any) -> None:
        """From now on it waits for us, or takes its answer."""
        self._since[protocol], self._busy[protocol] = self._clock(), True

    def overdue(self) -> list[Any]:
        """Connections that took too long."""
        now, live = self._clock(), set(self._live())
        self._since = {protocol: self._since.get(protocol, now) for protocol in live}
        self._busy = {protocol: self._busy.get(protocol, False) for protocol in live}
        most = {True: REQUEST_SECONDS + _SLACK, False: SILENT_SECONDS}
        return [one for one, since in self._since.items() if now - since > most[self._busy[one]]]

    def cut(self) -> None:
        """Cut those."""
        for protocol in self.overdue():
            if protocol.transport is not None:
                protocol.transport.abort()
