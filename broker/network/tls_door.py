"""Accepts connections of a listener with TLS, and knows of each before its handshake is done.

asyncio's own server tells of a connection when the handshake is over; until then it would cost some 300 KiB
that nobody counts, for as long as a handshake may take.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

BUFFER = 32 << 10
"""Bytes that a connection by TLS takes from its socket at once. Each connection holds such a buffer from
before its handshake on; Python's own has 256 KiB."""

HANDSHAKE_SECONDS = 10.0
_AGAIN_SECONDS = 1.0
"""After an accept that failed: out of file descriptors, as a rule."""


class TlsDoor:
    """Of the sockets of one listener."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
        why_not: Callable[[], str | None],
    ) -> None:
        """`sockets`: bound, ours from now on. `why_not` says why no more may come in, None if one may."""
        self._sockets, self._context, self._protocol, self._why_not = sockets, context, protocol, why_not
        self._tasks: list[asyncio.Task[None]] = []
        self._arriving: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Connections whose handshake is not done."""
        return len(self._arriving)

    def open(self, backlog: int) -> None:
        """Begin to accept."""
        for one in self._sockets:
            one.setblocking(False)
            one.listen(backlog)
            sslproto.SSLProtocol.max_size = BUFFER
            self._tasks.append(asyncio.create_task(self._accept(one)))

    def close(self) -> None:
        """Accept no more, and let those go that are arriving."""
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
                log.error("no connection can be accepted, trying again in %.0f s: %s", _AGAIN_SECONDS, error)
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            refusal = self._why_not()
            if refusal is not None:
                log.warning(
                    "closing the connection from %s before its TLS handshake: %s", address[0], refusal
                )
                raw.close()
                continue
            task = asyncio.create_task(self._shake_hands(raw, address[0]))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)
            await asyncio.sleep(0)  # a hundred at once would hold up all others

    async def _shake_hands(self, raw: socket.socket, host: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol, raw, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
            )
        except OSError as error:
            log.debug("no TLS handshake with %s: %s", host, error)
