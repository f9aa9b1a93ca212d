"""Lets a test inject faults into a request or its answer. Not used in a real broker.

A server with `faults=None` does nothing of this. `eoslog.testing` passes an object that wraps handlers: it
may drop a request, delay it or its answer, return an error instead, or close the connection. Disk faults come
from the file system instead (`ports.FileSystem`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eoslog.protocol.frames import RequestHeader

if TYPE_CHECKING:
    from eoslog.broker.requests.context import Handler


class FaultDecider(Protocol):
    """Decides what to do with each request that is decoded and not started yet."""

    def around(self, client: object, header: RequestHeader, handler: Handler) -> Handler:
        """The handler to call instead, or `handler` itself for no fault.

        `client` identifies the connection and has no other use. The returned handler may do what any handler
        may (see `requests.context`): a message is the answer, None means that nothing is sent,
        CloseConnection ends the connection.
        """
