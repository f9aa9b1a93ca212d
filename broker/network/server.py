"""The listeners of a broker: they accept connections, watch over them and, at the end, let them finish."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from eoslog.broker.fairness.memory import Memory
from eoslog.broker.metrics.metrics import Metrics
from eoslog.broker.network.connection import Connection
from eoslog.broker.network.served import announced
from eoslog.broker.network.tls_door import TlsDoor
from eoslog.broker.security.listeners import Listener

if TYPE_CHECKING:
    from eoslog.broker.authorize.guard import Guard
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.network.faults import Faults
    from eoslog.broker.security.tls import Tls

log = logging.getLogger(__name__)

_BACKLOG = 1024
_LOOK_EVERY = 1.0
_LONGEST_WAIT = 60.0


class Server:
    """The listening sockets and the connections they accepted."""

    def __init__(self, faults: Faults | None = None) -> None:
        """`faults` is for tests: see the module `faults`."""
        self.faults = faults
        self.guard: Guard | None = None
        """Judges every request; None: everybody may do everything."""
        self.memory = Memory()
        self.metrics = Metrics()
        self.buffer = memoryview(bytearray(256 << 10))
        """What is read goes through here, for all connections: see Connection.get_buffer."""
        self.tls: dict[str, Tls] = {}
        """The TLS of each listener that has it, by name; given before `bind`."""
        self._broker: Broker
        self._connections: set[Connection] = set()
        self._by_ip: Counter[str] = Counter()
        self._limits: dict[str, int] = {}
        self._next_place = 0.0
        self._listeners: list[asyncio.Server] = []
        self._doors: list[TlsDoor] = []
        self._watch: asyncio.Task[None] | None = None

    async def bind(self, listener: Listener) -> Listener:
        """Take an address without accepting yet; answers the listener with its port. Raises OSError."""

        def accept() -> Connection:
            return Connection(self._broker, self, bound)

        server = await asyncio.get_running_loop().create_server(
            accept,
            listener.host or None,
            family=socket.AF_INET if not listener.host else socket.AF_UNSPEC,
            port=listener.port,
            backlog=_BACKLOG,
            start_serving=False,
        )
        bound = replace(listener, port=server.sockets[0].getsockname()[1])
        if listener.tls:
            sockets = [one.dup() for one in server.sockets]
            server.close()
            context = self.tls[listener.name].context
            self._doors.append(TlsDoor(sockets, context, accept, self._why_full))
        else:
            self._listeners.append(server)
        return bound

    async def serve(self, broker: Broker) -> None:
        """Begin to accept connections, for this broker."""
        assert self._listeners or self._doors, "bind first"
        self._broker = broker
        config = broker.config
        self.memory = broker.memory
        broker.announced = announced
        if broker.authorizer is not None:
            from eoslog.broker.authorize.guard import Guard  # for those who ask for it only

            self.guard = Guard(broker.authorizer)
        self._limits = _overrides(config.network.max_connections_per_ip_overrides)
        self._watch = asyncio.create_task(self._look_after())
        for listener in self._listeners:
            await listener.start_serving()
        for door in self._doors:
            door.open(_BACKLOG)

    # The register of connections

    def _why_full(self) -> str | None:
        """Why no more may come in, those included whose TLS handshake is not done; None if one may."""
        most = self._broker.config.network.max_connections
        if len(self._connections) + sum(map(len, self._doors)) < most:
            return None
        self.metrics.connections_refused += 1
        return f"there are {most} connections already (max.connections)"

    def enter(self, connection: Connection) -> str | None:
        """A new connection; answers why it cannot be served, None if it can."""
        config, host = self._broker.config, connection.client_host
        self._connections.add(connection)
        self.metrics.connections_opened += 1
        self._by_ip[host] += 1
        if len(self._connections) > config.network.max_connections:
            return f"there are {config.network.max_connections} connections already (max.connections)"
        most = self._limits.get(host, config.network.max_connections_per_ip)
        if self._by_ip[host] > most:
            return f"there are {most} connections from {host} already (max.connections.per.ip)"
        wait = self._wait(config.network.max_connection_creation_rate)
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
        idle = config.network.connections_max_idle_ms / 1000
        stalled = config.network.connections_max_stalled_ms / 1000
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
        self._close_listeners()
        self.cut()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        for door in self._doors:
            door.close()

    async def stop(self, grace: float) -> None:
        """Accept no more; let begun requests end within `grace` seconds; close."""
        self._close_listeners()
        if self._watch is not None:
            self._watch.cancel()
        connections: Sequence[Connection] = list(self._connections)
        await asyncio.gather(*(connection.finish(grace) for connection in connections))
        await asyncio.sleep(0)  # the transports tell their connections about the close in the next round


def _overrides(text: str) -> dict[str, int]:
    pairs = (item.strip().rpartition(":") for item in text.split(",") if item.strip())
    return {host.strip("[]"): int(number) for host, _, number in pairs}
