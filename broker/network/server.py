"""The listeners: accept connections, count them, and begin TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.config_def import INT32_MAX
from eoslog.broker.config.options import LIMITS
from eoslog.broker.fairness import Memory
from eoslog.broker.metrics.metrics import Metrics
from eoslog.broker.network.connection import Connection
from eoslog.broker.network.dispatch import announced, checks
from eoslog.broker.security.listeners import PREFIX, Listener, own_options

if TYPE_CHECKING:
    from eoslog.broker.authorize.access import Guard
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.network.connection import FaultDecider
    from eoslog.broker.security.tls import ListenerTls

# -- counts of connections -------------------------------------------------------------------------
# How many connections there are, by listener and by address, and which new ones must wait or go away.
#
# The options: `max.connections`, `max.connections.per.ip` and its overrides,
# `max.connection.creation.rate`. A listener may have its own `max.connections` and rate (KIP-402, KIP-612),
# beside those of the whole broker.


logger = logging.getLogger(__name__)

_LONGEST_WAIT = 60.0


class _Pace:
    """Gives new connections their turns: one every 1/rate seconds, but up to `rate` of them at once."""

    def __init__(self) -> None:
        self._next = 0.0

    def wait(self, now: float, rate: int) -> float:
        """Seconds until the turn of a connection that comes now."""
        self._next = max(self._next, now - 1) + 1 / rate
        return min(self._next - now, _LONGEST_WAIT)


class _Place:
    """A listener: its connections, also those whose TLS handshake is not done, and its own limits."""

    def __init__(self, name: str) -> None:
        self.name, self.open, self.pace = name, 0, _Pace()
        self.arriving: Callable[[], int] = int
        self.most = self.rate = INT32_MAX

    @property
    def count(self) -> int:
        return self.open + self.arriving()

    def follow(self, config: BrokerConfig) -> None:
        own = own_options(config, self.name)
        self.most, self.rate = (int(own.get(name, INT32_MAX)) for name in LIMITS)


class ConnectionCounts:
    """The counts of all listeners, and the limits as they are now."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._by_ip: Counter[str] = Counter()
        self._pace = _Pace()
        self._config = BrokerConfig()
        self._overrides: dict[str, int] = {}

    def add_listener(self, name: str) -> None:
        """A listener, before its first connection."""
        self._places[name] = _Place(name)

    def count_arriving(self, name: str, arriving: Callable[[], int]) -> None:
        """Count also the connections of a listener whose handshake is not done."""
        self._places[name].arriving = arriving

    def follow(self, config: BrokerConfig) -> None:
        """Keep to the limits of these options from now on."""
        self._config = config
        self._overrides = _overrides(config.network.max_connections_per_ip_overrides)
        for place in self._places.values():
            place.follow(config)

    def why_full(self, listener: str) -> str | None:
        """Why no further connection may come in by a listener, or None."""
        most, place = self._config.network.max_connections, self._places[listener]
        if sum(one.count for one in self._places.values()) >= most:
            return _too_many(most)
        return _too_many(place.most, listener) if place.count >= place.most else None

    def enter(self, listener: str, host: str) -> str | None:
        """Count a new connection. Returns why it cannot be served, None if it can."""
        place, network = self._places[listener], self._config.network
        place.open += 1
        self._by_ip[host] += 1
        if sum(one.open for one in self._places.values()) > network.max_connections:
            return _too_many(network.max_connections)
        if place.open > place.most:
            return _too_many(place.most, listener)
        most = self._overrides.get(host, network.max_connections_per_ip)
        if self._by_ip[host] > most:
            return f"there are already {most} connections from {host} (max.connections.per.ip)"
        return None

    def wait(self, listener: str, now: float) -> float:
        """Seconds until a new connection's turn; 0 or less: at once."""
        place = self._places[listener]
        rate = self._config.network.max_connection_creation_rate
        return max(self._pace.wait(now, rate), place.pace.wait(now, place.rate))

    def leave(self, listener: str, host: str) -> None:
        """A connection that was counted has ended."""
        self._places[listener].open -= 1
        self._by_ip[host] -= 1
        if not self._by_ip[host]:
            del self._by_ip[host]


def _too_many(most: int, listener: str = "") -> str:
    option = f"{PREFIX}{listener.lower()}.max.connections" if listener else "max.connections"
    return f"there are already {most} connections ({option})"


def _overrides(text: str) -> dict[str, int]:
    """Most connections by address. A name of a machine stands for all its addresses, as they are now."""
    found = dict[str, int]()
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, number = item.rpartition(":")
        found |= dict.fromkeys(_addresses(host.strip("[]")), int(number))
    return found


def _addresses(host: str) -> set[str]:
    try:
        return {str(place[0]) for *_, place in socket.getaddrinfo(host, None)}
    except OSError as error:
        logger.warning("max.connections.per.ip.overrides: %s has no effect: %s", host, error)
        return set()


# -- TLS -------------------------------------------------------------------------------------------
# Accepts the connections of a TLS listener, and counts each one already before its handshake is done.
#
# asyncio's own server reports a connection only after the handshake. Until then the connection would take
# some 300 KiB that nothing counts, for as long as a handshake may last.


BUFFER = 32 << 10
"""Bytes that a TLS connection reads from its socket at once. Each connection has a buffer of this size from
before its handshake on; Python's default is 256 KiB."""

HANDSHAKE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
"""Pause after a failed accept, usually for lack of file descriptors."""


class TlsAcceptor:
    """Accepts connections on the sockets of one listener."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: Callable[[], ssl.SSLContext],
        protocol: Callable[[], asyncio.BaseProtocol],
        why_not: Callable[[], str | None],
    ) -> None:
        """`sockets`: bound; closed by this object. `context`: for a connection that comes now. `why_not`: why
        no connection may come in, or None."""
        self._sockets, self._context, self._protocol, self._why_not = sockets, context, protocol, why_not
        self._tasks: list[asyncio.Task[None]] = []
        self._arriving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """The number of connections whose handshake is not done."""
        return len(self._arriving)

    def open(self, backlog: int) -> None:
        """Start to accept connections."""
        for one in self._sockets:
            one.setblocking(False)
            one.listen(backlog)
            sslproto.SSLProtocol.max_size = BUFFER
            self._tasks.append(asyncio.create_task(self._accept(one)))

    def close(self) -> None:
        """Stop accepting, and drop the connections whose handshake is not done."""
        for task in (*self._tasks, *self._arriving):
            task.cancel()
        for one in self._sockets:
            one.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                raw, address = await loop.sock_accept(listening)
            except OSError as error:
                logger.error("cannot accept a connection, trying again in %.0f s: %s", _AGAIN_SECONDS, error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            refusal = self._why_not()
            if refusal is not None:
                logger.warning(
                    "closing the connection from %s before its TLS handshake: %s", address[0], refusal
                )
                raw.close()
                continue
            task = asyncio.create_task(self._shake_hands(raw, address[0]))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            await asyncio.sleep(0)  # a hundred at once would delay all other work

    async def _shake_hands(self, raw: socket.socket, host: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, raw, ssl=self._context(), ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError as error:
            logger.debug("no TLS handshake with %s: %s", host, error)


# -- server ----------------------------------------------------------------------------------------
# The listeners of a broker: they accept connections, close dead ones, and at the end let requests finish.


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
            from eoslog.broker.authorize.access import Guard  # imported only where it is used

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
