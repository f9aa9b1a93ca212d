"""From an API key to the handler that serves it.

A handler is one function a key (`handlers/`, one file each). Its synchronous part runs in the order in
which a connection's requests arrived; what it returns says how the connection goes on:

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

from eoslog.broker.security.session import OPEN, Session
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Message

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker


class CloseConnection(Exception):
    """A handler's way to say: no answer can tell the client, so close its connection; the text says why."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler knows beside the request itself.

    `host` and `port` are the broker's address as this client should see it, `session` says who it is.
    """

    broker: Broker
    header: RequestHeader
    client_host: str
    host: str = ""
    port: int = 0
    session: Session = OPEN

    @property
    def principal(self) -> str:
        """Who asks, as "User:alice"."""
        return self.session.principal

    @property
    def listener(self) -> str:
        """The name of the listener by which the client came."""
        return self.session.listener.name


Answer = TypeVar("Answer")


class Settled(Awaitable[Answer], Generic[Answer]):
    """An answer that only waits (for the disk, for data to read), so that it holds up no later request."""

    __slots__ = ("_answer", "ready")

    def __init__(
        self, answer: Coroutine[Any, Any, Answer], ready: Callable[[], bool] = lambda: False
    ) -> None:
        """`ready` says whether the answer would come without any waiting; "no" is never wrong."""
        self._answer = answer
        self.ready = ready

    def __await__(self) -> Generator[Any, Any, Answer]:
        return self._answer.__await__()

    def abandon(self) -> None:
        """Nobody will await this."""
        self._answer.close()


Handler = Callable[[RequestContext, Message], Message | Awaitable[Message | None] | None]
