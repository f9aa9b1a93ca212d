"""A client inside the broker: each request passes authorization and runs its handler, as one from outside.

So the console shows nobody more than the protocol would, and needs no rules of its own. It runs on the
console's event loop. Only the handlers run on the broker's loop, one request at a time and for a bounded
share of its time: see `SHARE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from eoslog.broker.network.dispatch import checks, handlers
from eoslog.broker.requests.context import CloseConnection, RequestContext
from eoslog.broker.rules.acls import Client
from eoslog.broker.security.session import ClientSession
from eoslog.protocol.acls import CLUSTER_NAME, AclOperation, ResourceType
from eoslog.protocol.apis import APIS, Api, ApiKey
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Given, Message

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker

SHARE = 0.1
"""The largest share of the broker's event loop for the console, which waits before it takes more."""

PATIENCE = 10.0
"""Seconds that the broker may take for one answer."""

_CLIENT_ID = "eoslog-console"

Found = TypeVar("Found")
RequestDraft = TypeVar("RequestDraft")
Response = TypeVar("Response")


class BrokerBusy(Exception):
    """The broker did not answer within `PATIENCE`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: `session` has the principal, `host` is the browser's address."""

    session: ClientSession
    host: str

    @property
    def name(self) -> str:
        """The principal, as "User:alice"."""
        return self.session.principal


class Pace:
    """Limits the console's share of the broker's loop by a pause after each piece of work."""

    def __init__(self, share: float = SHARE, clock: Callable[[], float] = perf_counter) -> None:
        self._share, self._clock = share, clock
        self._free_at = 0.0

    def wait(self) -> float:
        """Seconds until the next piece of work may begin."""
        return max(0.0, self._free_at - self._clock())

    def took(self, seconds: float) -> None:
        """Note that a piece of work has just ended."""
        self._free_at = self._clock() + seconds * (1 / self._share - 1)


class BrokerAccess:
    """Calls the broker; made and used on the console's event loop."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        """`loop` is the broker's."""
        self.broker, self._loop = broker, loop
        self._pace, self._turn = Pace(), asyncio.Lock()
        self._guard: Guard | None = None
        if broker.authorizer is not None:
            from eoslog.broker.authorize.guard import Guard  # imported only where it is used

            self._guard = Guard(broker.authorizer, checks())

    async def ask(
        self,
        caller: Caller,
        api: Api[Any, RequestDraft, Response, Any],
        version: int,
        body: Given[RequestDraft],
        first: Callable[[], None] | None = None,
    ) -> Response:
        """Carry out a request. Raises BrokerBusy, and KafkaError where a refusal has no answer.

        `first` runs on the broker's loop, in the turn in which the handler begins, and may raise to stop it.
        """
        request, _ = api.request.read(version, b"".join(api.request.write(version, body)))
        header = RequestHeader(api.key, version, 0, _CLIENT_ID)
        context = RequestContext(self.broker, header, caller.host, session=caller.session)
        encoded = await self._in_turn(lambda took: self._carry_out(context, request, first, took))
        answer, _ = api.response.read(version, encoded)
        return answer

    async def look(self, action: Callable[[], Found]) -> Found:
        """Call a short function on the broker's loop. Raises what it raises, and BrokerBusy."""

        async def timed(took: Callable[[float], None]) -> Found:
            begun = perf_counter()
            try:
                return action()
            finally:
                took(perf_counter() - begun)

        return await self._in_turn(timed)

    async def run(self, work: Coroutine[Any, Any, Found]) -> Found:
        """Run a coroutine on the broker's loop. Raises what it raises, and BrokerBusy."""
        return await self._arrived(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def may(self, caller: Caller, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the caller may do this, by the broker's ACLs."""
        return await self.look(lambda: self.allows(caller, operation, kind, name))

    async def may_see_cluster(self, caller: Caller) -> bool:
        """Whether the caller may see what concerns the whole broker."""
        return await self.may(caller, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows(self, caller: Caller, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """The same, on the broker's loop."""
        authorizer = self.broker.authorizer
        if authorizer is None:
            return True
        client = Client(caller.session.principal, caller.host)
        return authorizer.allows(client, operation, kind, name)

    async def _in_turn(self, make: Callable[[Callable[[float], None]], Coroutine[Any, Any, Found]]) -> Found:
        async with self._turn:
            wait = self._pace.wait()
            if wait > 0:
                await asyncio.sleep(wait)
            spent: list[float] = []
            try:
                return await self.run(make(spent.append))
            finally:
                self._pace.took(sum(spent))

    async def _arrived(self, outcome: Future[Found]) -> Found:
        # Work that has begun continues even if its caller stops waiting: no change may end half-done.
        begun = asyncio.shield(asyncio.wrap_future(outcome))
        try:
            return await asyncio.wait_for(begun, PATIENCE)
        except TimeoutError as error:
            raise BrokerBusy(f"the broker did not answer within {PATIENCE:.0f} s") from error

    async def _carry_out(
        self,
        context: RequestContext,
        request: Message,
        first: Callable[[], None] | None,
        took: Callable[[float], None],
    ) -> bytes:
        """On the broker's loop: authorization, handler, and the answer as bytes (loops share no objects)."""
        header, guard, begun = context.header, self._guard, perf_counter()
        key = ApiKey(header.api_key)
        handler = handlers()[key]
        if guard is not None:
            handler = guard.around(header, handler)
        if first is not None:
            first()
        try:
            answer = handler(context, request)
            if isinstance(answer, Awaitable):
                took(perf_counter() - begun)
                answer, begun = await answer, perf_counter()
        except CloseConnection as refused:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, str(refused)) from refused
        assert answer is not None, f"{key.name} has an answer"
        encoded = b"".join(APIS[key].response.write(header.api_version, answer))
        took(perf_counter() - begun)
        return encoded
