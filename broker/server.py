"""The listeners of a broker: they accept connections, watch over them and, at the end, let them finish."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from eoslog.broker.connection import Connection
from eoslog.broker.limits import Memory
from eoslog.broker.metrics import Metrics
from eoslog.broker.security.listeners import Listener

if TYPE_CHECKING:
    from eoslog.broker.broker import Broker
    from eoslog.broker.security.tls import Tls

log = logging.getLogger(__name__)

_BACKLOG = 1024
_HANDSHAKE_TIMEOUT = 10.0  # seconds for a TLS handshake
_LOOK_EVERY = 1.0
_LONGEST_WAIT = 60.0


class Server:
    """The listening sockets and the connections they accepted."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.metrics = Metrics()
        self.buffer = memoryview(bytearray(256 << 10))
        """What is read goes through here, for all connections: see Connection.get_buffer."""
        self.tls: dict[str, Tls] = {}
        """The TLS of each listener that has it, by name; given before `bind`."""
        self._broker: Broker
        self._connections: set[Connection] = set()
        self._arriving: WeakSet[Connection] = WeakSet()
        """Those whose TLS handshake is not done. One that fails is never heard of again, and gone."""
        self._by_ip: Counter[str] = Counter()
        self._limits: dict[str, int] = {}
        self._next_place = 0.0
        self._listeners: list[asyncio.Server] = []
        self._watch: asyncio.Task[None] | None = None

    async def bind(self, listener: Listener) -> Listener:
        """Take an address without accepting yet; answers the listener with its port. Raises OSError."""

        def accept() -> Connection:
            connection = Connection(self._broker, self, bound)
            if bound.tls:
                self._arrive(connection)
            return connection

        options: dict[str, Any] = {}
        if listener.tls:
            options = {"ssl": self.tls[listener.name].context, "ssl_handshake_timeout": _HANDSHAKE_TIMEOUT}
        server = await asyncio.get_running_loop().create_server(
            accept,
            listener.host or None,
            family=socket.AF_INET if not listener.host else socket.AF_UNSPEC,
            port=listener.port,
            backlog=_BACKLOG,
            start_serving=False,
            **options,
        )
        self._listeners.append(server)
        bound = replace(listener, port=server.sockets[0].getsockname()[1])
        return bound

    async def serve(self, broker: Broker) -> None:
        """Begin to accept connections, for this broker."""
        assert self._listeners, "bind first"
        self._broker = broker
        config = broker.config
        self.memory = broker.memory
        self._limits = _overrides(config.max_connections_per_ip_overrides)
        self._watch = asyncio.create_task(self._look_after())
        for listener in self._listeners:
            await listener.start_serving()

    # The register of connections

    def _arrive(self, connection: Connection) -> None:
        """Before a TLS handshake, which costs memory: asyncio closes a connection whose protocol cannot be
        made. Raises ConnectionRefusedError."""
        most = self._broker.config.max_connections
        if len(self._connections) + len(self._arriving) >= most:
            self.metrics.connections_refused += 1
            log.warning("closing a connection before its TLS handshake: there are %d (max.connections)", most)
            raise ConnectionRefusedError
        self._arriving.add(connection)

    def enter(self, connection: Connection) -> str | None:
        """A new connection; answers why it cannot be served, None if it can."""
        config, host = self._broker.config, connection.client_host
        self._arriving.discard(connection)
        self._connections.add(connection)
        self.metrics.connections_opened += 1
        self._by_ip[host] += 1
        if len(self._connections) > config.max_connections:
            return f"there are {config.max_connections} connections already (max.connections)"
        most = self._limits.get(host, config.max_connections_per_ip)
        if self._by_ip[host] > most:
            return f"there are {most} connections from {host} already (max.connections.per.ip)"
        wait = self._wait(config.max_connection_creation_rate)
        if wait > 0:
            connection.mute(wait)
        return None

    def _wait(self, rate: int) -> float:
        """Seconds until a new connection's turn: one each 1/rate, a second's worth of them at once."""
        now = asyncio.get_running_loop().time()
        self._next_place = max(self._next_place, now - 1) + 1 / rate
        return min(self._next_place - now, _LONGEST_WAIT)

    def leave(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._by_ip[connection.client_host] -= 1
            if not self._by_ip[connection.client_host]:
                del self._by_ip[connection.client_host]

    def __len__(self) -> int:
        return len(self._connections)

    async def _look_after(self) -> None:
        """Close connections that nobody seems to be at the other end of."""
        config, loop = self._broker.config, asyncio.get_running_loop()
        idle = config.connections_max_idle_ms / 1000
        stalled = config.connections_max_stalled_ms / 1000
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, idle, stalled))
            try:
                self._look(loop.time(), idle, stalled)
            except Exception:
                log.exception("a look at the connections failed; the next one comes all the same")

    def _look(self, now: float, idle: float, stalled: float) -> None:
        for tls in self.tls.values():
            tls.follow()
        for connection in list(self._connections):
            connection.look(now, idle, stalled)

    # The end

    def cut(self) -> int:
        """Cut all connections, as a network does that goes away; answers how many."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def abandon(self) -> None:
        """Be gone at once, as after SIGKILL: for tests."""
        for listener in self._listeners:
            listener.close()
        self.cut()

    async def stop(self, grace: float) -> None:
        """Accept no more; let begun requests end within `grace` seconds; close."""
        for listener in self._listeners:
            listener.close()
        if self._watch is not None:
            self._watch.cancel()
        connections: Sequence[Connection] = list(self._connections)
        await asyncio.gather(*(connection.finish(grace) for connection in connections))
        await asyncio.sleep(0)  # the transports tell their connections about the close in the next round


def _overrides(text: str) -> dict[str, int]:
    pairs = (item.strip().rpartition(":") for item in text.split(",") if item.strip())
    return {host.strip("[]"): int(number) for host, _, number in pairs}
