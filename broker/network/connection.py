"""One client's session: requests in order, answers in order, memory bounded.

Bytes become frames, frames become requests, and each request's handler starts in turn. Answers that
wait (for the disk, for data) line up behind each other: see `answers`.

Bounds, so that neither a fast sender nor a slow reader costs memory:

- reading stops while more than `MAX_IN_FLIGHT` requests or `MAX_HELD_BYTES` of requests and finished
  answers are held; it goes on when they have left;
- no request starts while the client does not read what it was sent (the transport's write buffer is full);
- what all connections hold together is bounded as well: see `fairness.memory`.

Who the client is, and what it may send before that is known, says its `Session`; what it may do then, the
authorizer. A frame that makes no sense, an API or version that is not served, a request before
authentication, or a fault in a handler that has no answer of its own ends this connection with one line in
the log, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from eoslog.broker.fairness.memory import SMALL
from eoslog.broker.network.answers import Answers
from eoslog.broker.network.exchange import RAW, Read, Slot, begin
from eoslog.broker.network.large_requests import has_many, is_large, serve, settled
from eoslog.broker.network.presence import Presence
from eoslog.broker.network.served import handlers
from eoslog.broker.requests.context import RequestContext, Settled
from eoslog.broker.security.principals import principal_of
from eoslog.broker.security.session import State
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import FrameReader, RequestHeader
from eoslog.protocol.schema import Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.authorize.guard import Guard
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.fairness.memory import Memory
    from eoslog.broker.metrics.metrics import Metrics
    from eoslog.broker.network.faults import Faults
    from eoslog.broker.requests.context import Handler
    from eoslog.broker.security.listeners import Listener

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 64
MAX_HELD_BYTES = 16 << 20
WRITE_HIGH_WATER = 1 << 20


class Home(Protocol):
    """What a connection shares with all others, and the register that it enters and leaves by itself."""

    memory: Memory
    metrics: Metrics
    buffer: memoryview
    guard: Guard | None
    faults: Faults | None

    def enter(self, connection: Connection) -> str | None:
        """A new connection; answers why it cannot be served, None if it can."""

    def leave(self, connection: Connection) -> None:
        """A connection has ended."""


class Connection(Answers):
    """The server side of one TCP connection."""

    def __init__(self, broker: Broker, server: Home, listener: Listener) -> None:
        """Nothing has come yet."""
        super().__init__(broker, server.metrics, listener)
        self._server = server
        self._memory = server.memory
        self._backlog: deque[memoryview] = deque()  # frames read, not started
        self._backlog_bytes = 0
        self._held_in = 0  # what the memory knows of us: bytes of requests,
        self._held_out = 0  # and of answers
        self._muted = False  # no request begins for a while
        self._reading = True
        self.client_host = "?"

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note both addresses and join the server's register, if it has a place."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._presence = Presence(self._loop.time())
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer, self.client_host = f"{host}:{port}", host
        refusal = self._server.enter(self)
        if refusal is not None:
            self._refuse(refusal)
            return
        session = self._session
        self._address = session.listener.address(transport.get_extra_info("sockname"))
        if session.listener.tls and not session.listener.sasl:
            session.principal = principal_of(
                transport.get_extra_info("peercert"), session.listener, self._broker.config
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        """The next bytes go into a buffer that all connections share, as they are copied out at once."""
        buffer = self._server.buffer
        return buffer[:SMALL] if self._memory.requests_short else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Cut the bytes into frames and start what may start."""
        if self._closing:
            return
        self._presence.heard(self._loop.time())
        self._metrics.bytes_in += nbytes
        try:
            frames = self._reader.feed(self._server.buffer[:nbytes])
        except ProtocolError as error:
            self._refuse(f"{error}")
            return
        self._backlog.extend(frames)
        self._backlog_bytes += sum(map(len, frames))
        self.advance()

    def pause_writing(self) -> None:
        """The client does not read: hold back further answers and requests."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._writable.set()
        self.advance()

    def connection_lost(self, error: Exception | None) -> None:
        """Let begun requests end (a half-done EndTxn must not be cut off); forget those not begun."""
        self._closing = True
        self._writable.set()
        self._forget_backlog()
        self._reader = FrameReader(0)  # half a frame is held no longer
        self._account()
        self._memory.forget(self)
        self._server.leave(self)
        if self._worker and self._waits_for_data():
            self._worker.cancel()  # nobody waits for this data any more, and reading changes nothing

    def _waits_for_data(self) -> bool:
        """Whether the next answer in line is a fetch's that is still to come."""
        first = self._line[0] if self._line else None
        return first is not None and first.header.api_key == ApiKey.FETCH and first.answer is not None

    # Requests

    def advance(self) -> None:
        """Start requests as long as nothing forbids it, then read on or pause."""
        while self._backlog and self._may_start():
            frame = self._backlog.popleft()
            self._backlog_bytes -= len(frame)
            self._start(frame)
        self._account()
        if self._closing:
            return
        full = bool(self._backlog) or not self._may_hold() or not self._may_read()
        if full == self._reading:
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _may_hold(self) -> bool:
        return (
            len(self._line) < MAX_IN_FLIGHT
            and self._line_requests + self._line_answers < MAX_HELD_BYTES
            and not self._muted
        )

    def _may_read(self) -> bool:
        return self._memory.may_read(self, self._held_in, self._reader.missing)

    def _may_start(self) -> bool:
        return (
            not self._blocked
            and not self._closing
            and self._writable.is_set()
            and self._may_hold()
            and not (self._held_out and self._memory.answers_short)
        )

    @property
    def _unbegun(self) -> int:
        """Bytes of requests that are not whole yet, or have not begun."""
        return self._reader.pending + self._backlog_bytes

    @property
    def _holds_up_others(self) -> bool:
        """Whether it holds much that does not get on, and that is not because we wait for others."""
        return self._unbegun > SMALL and (self._reading or bool(self._backlog))

    def _account(self) -> None:
        """Tell the memory what is held now."""
        held_in = self._unbegun + self._line_requests
        if held_in != self._held_in:
            change, self._held_in = held_in - self._held_in, held_in
            self._memory.change_requests(change)
        held_out = self._line_answers + self._transport.get_write_buffer_size()
        if held_out != self._held_out:
            change, self._held_out = held_out - self._held_out, held_out
            self._memory.change_answers(change)

    def _start(self, frame: memoryview) -> None:
        """The one place where a request begins."""
        if self._session.state is State.TOKENS:
            self._token(frame)
            return
        try:
            header, handler, read = begin(frame, handlers(), self._session, self._loop.time())
            large = is_large(header.api_key, len(frame))
            request = {} if large else read()
        except ProtocolError as error:
            self._refuse(f"{error}")
            return
        guard = self._server.guard
        if guard is not None:
            handler = guard.around(header, handler)
        faults = self._server.faults
        if faults is not None:
            handler = faults.around(self, header, handler)
        slot = Slot(header, len(frame))
        if large or has_many(header.api_key, request):
            slot.beside = self._blocked = True
            slot.answer = self._serve_large(handler, self._context(header), read if large else request)
            self._enter(slot)
            return
        try:
            result = handler(self._context(header), request)
        except Exception as error:
            self._fill(slot, self._fault(header, error))
        else:
            if isinstance(result, Awaitable):
                slot.answer = result
                self._blocked = not isinstance(result, Settled)
            else:
                self._fill(slot, result)
        self._enter(slot)

    async def _serve_large(
        self, handler: Handler, context: RequestContext, request: Message | Read
    ) -> Message | None:
        """`request`: or what is still to read it."""
        if not callable(request):
            return await serve(handler, context, request)
        async with self._broker.turns.large():
            try:
                request = await asyncio.to_thread(request)
            except ProtocolError as error:
                self._refuse(f"{error}")
                return None
            if has_many(context.header.api_key, request):
                return await serve(handler, context, request)
        return await settled(handler(context, request))

    def _token(self, frame: memoryview) -> None:
        """A frame that is a SASL token as it is, after SaslHandshake version 0."""
        header = RequestHeader(ApiKey.SASL_AUTHENTICATE, RAW, 0, None)
        slot = Slot(header, len(frame))
        answer = handlers()[ApiKey.SASL_AUTHENTICATE](self._context(header), {"auth_bytes": frame})
        assert isinstance(answer, Awaitable)
        slot.answer = answer
        self._blocked = True
        self._enter(slot)

    def _context(self, header: RequestHeader) -> RequestContext:
        return RequestContext(self._broker, header, self.client_host, *self._address, self._session)

    # The end

    def _refuse(self, why: str) -> None:
        self._metrics.connections_refused += 1
        log.warning("closing the connection from %s: %s", self.peer, why)
        self.close()

    def _forget_backlog(self) -> None:
        self._backlog.clear()
        self._backlog_bytes = 0

    def close(self) -> None:
        """Close after what has been written is sent; requests not begun are forgotten."""
        self._send()
        self._closing = True
        self._forget_backlog()
        self._transport.close()

    def abort(self) -> None:
        """Cut the connection: what has not been sent is lost."""
        self._closing = True
        self._forget_backlog()
        self._transport.abort()

    def mute(self, seconds: float) -> None:
        """Begin no request for a while."""
        self._muted = True
        self.advance()
        self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        self.advance()

    def look(self, now: float, idle: float, stalled: float) -> None:
        """Once in a while: close if nobody seems to be there. `idle`, `stalled`: seconds allowed."""
        unsent, presence = self._transport.get_write_buffer_size(), self._presence
        presence.look(now, unsent)
        self._account()
        deaf = presence.deaf(now) > stalled
        serving = self._worker is not None and self._writable.is_set()
        if self._closing:
            if deaf:
                self.abort()
        elif self._memory.answers_short and deaf:
            self._cut(f"does not read its answers ({unsent} bytes) while memory is short")
        elif self._memory.requests_short and self._holds_up_others and presence.silent(now) > stalled:
            self._cut(f"does not get on with its requests ({self._unbegun} bytes) while memory is short")
        elif presence.idle(now) > idle and not serving:
            log.info("closing the connection from %s: idle for %d s", self.peer, presence.silent(now))
            self.abort() if unsent else self.close()
        elif self._backlog:
            self.advance()

    def _cut(self, why: str) -> None:
        log.warning("cutting the connection from %s: it %s", self.peer, why)
        self.abort()

    async def finish(self, grace: float) -> None:
        """Shut down: begin nothing more, let begun requests end within `grace` seconds, close."""
        self._forget_backlog()
        self._blocked = True
        self._transport.pause_reading() if self._reading else None
        self._reading = False
        worker = self._worker
        if worker is not None:
            if self._waits_for_data():
                self._closing = True
                worker.cancel()
            await asyncio.wait({worker}, timeout=grace)
            worker.cancel()
        self.close()
