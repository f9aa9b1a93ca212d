"""What a handler gets with a request, and what it may return.

Each API key has one handler function (`handlers/`, a file each). Its synchronous part runs in the order in
which the connection's requests arrived. What it returns decides how the connection continues:

| returned | meaning |
|---|---|
| a message | the answer |
| None | there is no answer (Produce with acks=0) |
| `Settled(awaitable)` | all effects are in place, only the answer waits: later requests may begin meanwhile |
| another awaitable | the answer and its effects come later: the next request begins after it |
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from eoslog.broker.security.session import OPEN, ClientSession
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker


class CloseConnection(Exception):
    """Raised by a handler when no answer can express the error: the connection is closed."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler knows besides the request itself.

    `host` and `port` are the broker's address as this client should see it; `session` is the client's.
    """

    broker: Broker
    header: RequestHeader
    client_host: str
    host: str = ""
    port: int = 0
    session: ClientSession = OPEN

    @property
    def principal(self) -> str:
        """The client's principal, such as "User:alice"."""
        return self.session.principal

    @property
    def listener(self) -> str:
        """The name of the listener that the client is connected to."""
        return self.session.listener.name


Answer = TypeVar("Answer")


class Settled(Awaitable[Answer], Generic[Answer]):
    """An answer that only waits (for the disk, or for data to read). Later requests need not wait for it."""

    __slots__ = ("_answer", "ready")

    def __init__(
        self, answer: Coroutine[Any, Any, Answer], ready: Callable[[], bool] = lambda: False
    ) -> None:
        """`ready` says whether the answer is there without waiting; False is always allowed."""
        self._answer = answer
        self.ready = ready

    def __await__(self) -> Generator[Any, Any, Answer]:
        return self._answer.__await__()

    def abandon(self) -> None:
        """Drop the answer: nobody will await it."""
        self._answer.close()


Handler = Callable[[RequestContext, Message], Message | Awaitable[Message | None] | None]
