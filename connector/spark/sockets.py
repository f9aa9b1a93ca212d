"""Acknowledges Spark's data at once: no task waits for a delayed acknowledgement.

Spark writes to a Python process in pieces: what to run, then rows, then the end of them. Its socket waits
with a small piece until the one before is acknowledged (Nagle), and Linux delays an acknowledgement by 40 ms
once a connection is no longer new. So the processes of Spark's in which we run acknowledge at once
(TCP_QUICKACK), and send their own small pieces at once (TCP_NODELAY). The kernel forgets the first soon: it
is set again whenever Spark calls us, and before we ask Spark for more rows.
"""

import contextlib
import os
import socket
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from eoslog.connector.spark.longlived import is_sparks

T = TypeVar("T")

_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it; elsewhere nothing is done."""
_TCP = (socket.AF_INET, socket.AF_INET6)


class _Sockets(NamedTuple):
    """Descriptors of the connections to the JVM that this process had when it was first asked."""

    process: int
    descriptors: tuple[int, ...]


_sockets = _Sockets(-1, ())


def acknowledge() -> None:
    """For where Spark calls in: what has come is acknowledged now, and what comes next."""
    global _sockets
    if _QUICKACK is None or not is_sparks():
        return
    if _sockets.process != os.getpid():  # a fork has connections of its own
        _sockets = _Sockets(os.getpid(), tuple(_connections()))
    for descriptor in _sockets.descriptors:
        with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)


def acknowledging(pieces: Iterable[T]) -> Iterator[T]:
    """The same pieces; what Spark sends is acknowledged before each is asked for, and the end of them."""
    acknowledge()
    for piece in pieces:
        yield piece
        acknowledge()


def _connections() -> Iterator[int]:
    """TCP connections of this process, which from now on send small pieces at once. None of ours is among
    them: whoever is first called by Spark has not met a broker yet."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), _borrowed(int(name)) as connection:
            if connection.family in _TCP and connection.type is socket.SOCK_STREAM:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield int(name)


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A descriptor as a socket, which stays open. OSError: it is none."""
    connection = socket.socket(fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()
