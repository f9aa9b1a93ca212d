"""The door for faults on demand: what a test may do to a request or its answer. Closed in a real broker.

A server is made with `faults=None`, and then nothing of this is in the way of a request. `eoslog.testing`
hands in an object that wraps handlers: it may leave a request out, hold it or its answer back, answer an
error instead, or end the connection. Faults of the disk come by the file system (`ports.FileSystem`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eoslog.protocol.frames import RequestHeader

if TYPE_CHECKING:
    from eoslog.broker.requests.context import Handler


class Faults(Protocol):
    """Decides about every request that has been decoded and not begun."""

    def around(self, client: object, header: RequestHeader, handler: Handler) -> Handler:
        """The handler to call instead, or `handler` itself where nothing is to happen.

        `client` stands for the connection and is good for nothing but telling one from another. The
        handler answered may do what any handler may (see `requests.context`): a message is the answer, None
        means that nothing is sent, CloseConnection ends the connection.
        """
