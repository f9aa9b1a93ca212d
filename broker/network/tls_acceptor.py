"""Accepts the connections of a TLS listener, and counts each one already before its handshake is done.

asyncio's own server reports a connection only after the handshake. Until then the connection would take some
300 KiB that nothing counts, for as long as a handshake may last.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

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
