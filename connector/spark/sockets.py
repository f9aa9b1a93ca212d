"""Acknowledges Spark's data at once: no task waits for a delayed acknowledgement.

Spark writes to a Python process in pieces: what to run, then rows, then their end. Its socket keeps a small
piece back until the one before is acknowledged (Nagle), and Linux delays an acknowledgement by 40 ms once a
connection is no longer new. So Spark's processes that run eoslog acknowledge at once (TCP_QUICKACK), and send
their own small pieces at once (TCP_NODELAY). The kernel soon resets the first option: it is set again
whenever Spark calls us, and before we ask Spark for more rows.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from eoslog.connector.spark.gc_freeze import is_sparks

T = TypeVar("T")

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
"""Only Linux has this option; elsewhere nothing is done."""
_TCP = (socket.AF_INET, socket.AF_INET6)


class _Sockets(NamedTuple):
    """Descriptors of the connections to the JVM that this process had at the first call."""

    process: int
    descriptors: tuple[int, ...]


_sockets = _Sockets(-1, ())


def acknowledge() -> None:
    """Acknowledge what Spark has sent, and what it sends next, at once. Call at each call from Spark."""
    global _sockets
    if _QUICKACK is None or not is_sparks():
        return
    if _sockets.process != os.getpid():  # a fork has its own connections
        _sockets = _Sockets(os.getpid(), tuple(_connections()))
    for descriptor in _sockets.descriptors:
        with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def acknowledging(pieces: Iterable[T]) -> Iterator[T]:
    """Yield the same pieces; acknowledge what Spark sends before asking for each piece, and at the end."""
    acknowledge()
    for piece in pieces:
        yield piece
        acknowledge()


def _connections() -> Iterator[int]:
    """Make this process's TCP connections send small pieces at once. None of them is to a broker: there is
    none yet at the first call from Spark."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as connection:
            if connection.family in _TCP and connection.type is socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield int(name)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A descriptor as a socket, which stays open. OSError if it is not a socket."""
    connection = socket.socket(fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()
