"""The listeners of a broker: they accept connections, close dead ones, and at the end let requests finish."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.fairness.memory import Memory
from eoslog.broker.metrics.metrics import Metrics
from eoslog.broker.network.connection import Connection
from eoslog.broker.network.connection_counts import ConnectionCounts
from eoslog.broker.network.dispatch import announced, checks
from eoslog.broker.network.tls_acceptor import TlsAcceptor
from eoslog.broker.security.listeners import Listener

if TYPE_CHECKING:
    import ssl

    from eoslog.broker.authorize.guard import Guard
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.network.connection import FaultDecider
    from eoslog.broker.security.tls import ListenerTls

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_LOOK_EVERY = 1.0


class Server:
    """The listening sockets and the connections they accepted."""

    def __init__(self, faults: FaultDecider | None = None) -> None:
        """`faults` is for tests: see the module `faults`."""
        self.faults = faults
        self.guard: Guard | None = None
        """Authorizes every request. None: everybody may do everything."""
        self.memory = Memory()
        self.metrics = Metrics()
        self.buffer = memoryview(bytearray(256 << 10))
        """All connections read into this buffer: see Connection.get_buffer."""
        self.tls: dict[str, ListenerTls] = {}
        """The TLS of each TLS listener, by name. Set it before `serve`."""
        self._broker: Broker
        self._connections: set[Connection] = set()
        self._counts = ConnectionCounts()
        self._listeners: list[asyncio.Server] = []
        self._tls_acceptors: list[TlsAcceptor] = []
        self._watch: asyncio.Task[None] | None = None

    async def bind(self, listener: Listener) -> Listener:
        """Bind an address without accepting yet. Returns the listener with its port. Raises OSError."""

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
        self._counts.add_listener(bound.name)
        if listener.tls:
            sockets = [one.dup() for one in server.sockets]
            server.close()
            acceptor = TlsAcceptor(
                sockets, partial(self._context, bound), accept, partial(self._why_full, bound)
            )
            self._counts.count_arriving(bound.name, acceptor.__len__)
            self._tls_acceptors.append(acceptor)
        else:
            self._listeners.append(server)
        return bound

    async def serve(self, broker: Broker) -> None:
        """Start to accept connections for this broker."""
        assert self._listeners or self._tls_acceptors, "bind first"
        self._broker = broker
        self.memory = broker.memory
        broker.announced = announced
        if broker.authorizer is not None:
            from eoslog.broker.authorize.guard import Guard  # imported only where it is used

            self.guard = Guard(broker.authorizer, checks())
        self.options_changed()
        self._watch = asyncio.create_task(self._look_after())
        for listener in self._listeners:
            await listener.start_serving()
        for acceptor in self._tls_acceptors:
            acceptor.open(_BACKLOG)

    def check_options(self, wanted: BrokerConfig) -> None:
        """Raise ConfigError unless the key stores and trust stores of these options can be used."""
        for tls in self.tls.values():
            tls.check(wanted)

    def options_changed(self) -> None:
        """Keep to the broker's options as they are now: limits, key stores and trust stores."""
        self._counts.follow(self._broker.config)
        for tls in self.tls.values():
            tls.follow()

    def _context(self, listener: Listener) -> ssl.SSLContext:
        return self.tls[listener.name].context

    # The register of connections

    def _why_full(self, listener: Listener) -> str | None:
        """Why no further connection may come in, or None. Unfinished TLS handshakes count."""
        reason = self._counts.why_full(listener.name)
        if reason is not None:
            self.metrics.connections_refused += 1
        return reason

    def enter(self, connection: Connection) -> str | None:
        """Register a new connection. Returns why it cannot be served, None if it can."""
        self._connections.add(connection)
        self.metrics.connections_opened += 1
        refusal = self._counts.enter(connection.listener, connection.client_host)
        if refusal is None:
            wait = self._counts.wait(connection.listener, asyncio.get_running_loop().time())
            if wait > 0:
                connection.mute(wait)
        return refusal

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        if connection in self._connections:
            self._connections.remove(connection)
            self._counts.leave(connection.listener, connection.client_host)

    def __len__(self) -> int:
        return len(self._connections)

    async def _look_after(self) -> None:
        """Close connections whose client seems to be gone."""
        config, loop = self._broker.config, asyncio.get_running_loop()
        idle = config.network.connections_max_idle_ms / 1000
        stalled = config.network.connections_max_stalled_ms / 1000
        while True:
            await asyncio.sleep(min(_LOOK_EVERY, idle, stalled))
            try:
                self._look(loop.time(), idle, stalled)
            except Exception:
                logger.exception("checking the connections failed; the next check comes all the same")

    def _look(self, now: float, idle: float, stalled: float) -> None:
        for tls in self.tls.values():
            tls.follow()
        for connection in list(self._connections):
            connection.look(now, idle, stalled)

    # The end

    def cut(self) -> int:
        """Abort all connections, as a failing network does. Returns how many."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    def abandon(self) -> None:
        """Stop at once, as after SIGKILL: for tests."""
        self._close_listeners()
        self.cut()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        for acceptor in self._tls_acceptors:
            acceptor.close()

    async def stop(self, grace: float) -> None:
        """Stop accepting, give started requests `grace` seconds to end, and close the connections."""
        self._close_listeners()
        if self._watch is not None:
            self._watch.cancel()
        connections: Sequence[Connection] = list(self._connections)
        await asyncio.gather(*(connection.finish(grace) for connection in connections))
        await asyncio.sleep(0)  # transports report the close to their connections in the loop's next turn
