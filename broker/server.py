"""The listener: accepts connections and, at the end, lets them finish."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from eoslog.broker.connection import Connection

if TYPE_CHECKING:
    from eoslog.broker.broker import Broker

log = logging.getLogger(__name__)

_BACKLOG = 1024


class Server:
    """A listening socket and the connections it accepted."""

    def __init__(self) -> None:
        self._broker: Broker
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    async def bind(self, host: str, port: int) -> int:
        """Take the address without accepting yet; answers the port, a free one for 0. Raises OSError."""

        def accept() -> Connection:
            return Connection(self._broker, self._connections)

        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(accept, host, port, backlog=_BACKLOG, start_serving=False)
        port_taken: int = self._listener.sockets[0].getsockname()[1]
        return port_taken

    async def serve(self, broker: Broker) -> None:
        """Begin to accept connections, for this broker."""
        assert self._listener is not None, "bind first"
        self._broker = broker
        await self._listener.start_serving()

    def cut(self) -> int:
        """Cut all connections, as a network does that goes away; answers how many."""
        connections = list(self._connections)
        for connection in connections:
            connection.abort()
        return len(connections)

    async def stop(self, grace: float) -> None:
        """Accept no more; let begun requests end within `grace` seconds; close."""
        if self._listener is not None:
            self._listener.close()
        connections = list(self._connections)
        await asyncio.gather(*(connection.finish(grace) for connection in connections))
        await asyncio.sleep(0)  # the transports tell their connections about the close in the next round
