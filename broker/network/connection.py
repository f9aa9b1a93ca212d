"""One client's connection: transport, tasks and threads around a `WireMachine`, which has the rules.

The transport delivers bytes, and each request's handler starts in order. Answers that wait (for the disk, or
for data) queue up: one task awaits them in order, and exists only while there is something to wait for. The
memory of all connections together is limited too: see `fairness`.

The `ClientSession` knows who the client is, and what it may send before it has authenticated. The authorizer
decides what it may do afterwards. An invalid frame, an API or version that is not served, a request before
authentication, or a fault in a handler whose answer has no field for an error: each closes this connection,
and nothing else, with one line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from eoslog.broker.fairness import SMALL
from eoslog.broker.network.dispatch import (
    RAW,
    begin,
    encoded,
    encoded_in_few,
    fault,
    handlers,
    has_many,
    is_large,
    read_and_serve,
    serve,
)
from eoslog.broker.network.wire_machine import OPEN, CloseReason, Slot, WireMachine
from eoslog.broker.requests import RequestContext, Settled
from eoslog.broker.security.session import AuthenticationState, ClientSession, principal_of
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import errors_in
from eoslog.protocol.frames import RequestHeader
from eoslog.protocol.schema import Buffer, Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.authorize.access import Guard
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.fairness import Memory
    from eoslog.broker.metrics.metrics import Metrics
    from eoslog.broker.requests import Handler
    from eoslog.broker.security.listeners import Listener


class FaultDecider(Protocol):
    """Decides what to do with each request that is decoded and not started yet."""

    def around(self, client: object, header: RequestHeader, handler: Handler) -> Handler:
        """The handler to call instead, or `handler` itself for no fault.

        `client` identifies the connection and has no other use. The returned handler may do what any handler
        may (see `requests.context`): a message is the answer, None means that nothing is sent,
        CloseConnection ends the connection.
        """


logger = logging.getLogger(__name__)

WRITE_HIGH_WATER = 1 << 20


class ConnectionHost(Protocol):
    """What a connection shares with all others, and the register of connections."""

    memory: Memory
    metrics: Metrics
    buffer: memoryview
    guard: Guard | None
    faults: FaultDecider | None

    def enter(self, connection: Connection) -> str | None:
        """Register a new connection. Returns why it cannot be served, None if it can."""

    def leave(self, connection: Connection) -> None:
        """Remove a connection that has ended."""


class Connection(asyncio.BufferedProtocol):
    """The server side of one TCP connection."""

    machine: WireMachine
    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop

    def __init__(self, broker: Broker, server: ConnectionHost, listener: Listener) -> None:
        """A connection without a transport yet: see `connection_made`."""
        self._broker = broker
        self._server = server
        self._memory = server.memory
        self._metrics = server.metrics
        self.listener, self._session = listener.name, ClientSession(listener)
        self._writable = asyncio.Event()  # the machine's `writable`, for the task that waits for it
        self._writable.set()
        self._worker: asyncio.Task[None] | None = None
        self.peer = self.client_host = "?"

    # Transport events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note both addresses and enter the server's register, if it has room."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        config, session = self._broker.config, self._session
        most = (
            config.security.sasl_max_receive_size
            if session.listener.sasl
            else config.network.request_max_bytes
        )
        self.machine = WireMachine(most, self._loop.time())
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        host, port = (transport.get_extra_info("peername") or ("?", 0))[:2]
        self.peer, self.client_host = f"{host}:{port}", host
        refusal = self._server.enter(self)
        if refusal is not None:
            self._refuse(refusal)
            return
        self._address = session.listener.address(transport.get_extra_info("sockname"))
        if session.listener.tls and not session.listener.sasl:
            certificate = transport.get_extra_info("peercert")
            session.principal = principal_of(certificate, session.listener, config)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes. All connections share it, as the bytes are copied out at once."""
        buffer = self._server.buffer
        return buffer[:SMALL] if self._memory.requests_short else buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass the bytes to the machine, and start the requests that may start."""
        if not self.machine.sends:
            return
        self._metrics.bytes_in += nbytes
        try:
            self.machine.receive(self._server.buffer[:nbytes], self._loop.time())
        except ProtocolError as error:
            self._refuse(f"{error}")
            return
        self.advance()

    def pause_writing(self) -> None:
        """Hold back further answers and requests: the client does not read."""
        self.machine.writable = False
        self._writable.clear()

    def resume_writing(self) -> None:
        """Continue: the client reads again."""
        self.machine.writable = True
        self._writable.set()
        self.advance()

    def connection_lost(self, error: Exception | None) -> None:
        """Let started requests end (a half-done EndTxn must not be cut off), and drop the others."""
        self.machine.lose()
        self._writable.set()
        self._account()
        self._memory.forget(self)
        self._server.leave(self)
        if self._worker and self.machine.waits_for_data:
            self._worker.cancel()

    # Requests

    def advance(self) -> None:
        """Start requests as long as the rules allow it, then continue or pause reading."""
        machine, memory = self.machine, self._memory
        answers_short = memory.answers_short
        while (frame := machine.next_frame(answers_short)) is not None:
            self._start(frame)
        self._account()
        if machine.phase is not OPEN:
            return
        reads = machine.has_room and memory.may_read(self, machine.held_requests, machine.missing)
        if reads is not machine.reading:
            machine.reading = reads
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _account(self) -> None:
        """Report to the memory how many bytes are held now."""
        requests, answers = self.machine.account(self._transport.get_write_buffer_size())
        if requests:
            self._memory.change_requests(requests)
        if answers:
            self._memory.change_answers(answers)

    def _start(self, frame: memoryview) -> None:
        """Start a request. All requests start here."""
        if self._session.state is AuthenticationState.TOKENS:
            self._token(frame)
            return
        try:
            header, handler, read = begin(frame, handlers(), self._session, self._loop.time())
            large = is_large(header.api_key, len(frame))
            request = {} if large else read()
        except ProtocolError as error:
            self._refuse(f"{error}")
            return
        guard, faults = self._server.guard, self._server.faults
        if guard is not None:
            handler = guard.around(header, handler)
        if faults is not None:
            handler = faults.around(self, header, handler)
        slot = self.machine.begin(header, len(frame), perf_counter())
        if large:
            slot.beside = True
            self._await(slot, read_and_serve(handler, self._context(header), read, self._refuse))
        elif has_many(header.api_key, request):
            slot.beside = True
            self._await(slot, serve(handler, self._context(header), request))
        else:
            self._call(slot, handler, request)

    def _call(self, slot: Slot, handler: Handler, request: Message) -> None:
        try:
            result = handler(self._context(slot.header), request)
        except Exception as error:
            result = self._fault(slot.header, error)
        if isinstance(result, Awaitable):
            self._await(slot, result)
            return
        self._fill(slot, result)
        if self.machine.first is slot:
            self._leave()
            self._send()

    def _token(self, frame: memoryview) -> None:
        """Serve a frame that is a plain SASL token, after SaslHandshake version 0."""
        header = RequestHeader(ApiKey.SASL_AUTHENTICATE, RAW, 0, None)
        slot = self.machine.begin(header, len(frame), perf_counter())
        self._call(slot, handlers()[ApiKey.SASL_AUTHENTICATE], {"auth_bytes": frame})

    def _context(self, header: RequestHeader) -> RequestContext:
        return RequestContext(self._broker, header, self.client_host, *self._address, self._session)

    # Answers

    def _await(self, slot: Slot, answer: Awaitable[Message | None]) -> None:
        slot.answer = answer
        if not isinstance(answer, Settled):
            self.machine.block(slot)
        if self._worker is None:
            self._worker = self._loop.create_task(self._answer_in_order())

    async def _answer_in_order(self) -> None:
        """Await and send the queued answers until none is left, one by one, so that they stay in order."""
        machine = self.machine
        try:
            while (slot := machine.first) is not None:
                if slot.parts is None:
                    if machine.unwritten and not (isinstance(slot.answer, Settled) and slot.answer.ready()):
                        self._send()
                    await self._until_known(slot)
                    self._account()
                if not machine.writable:
                    self._send()
                    await self._writable.wait()
                self._leave()
                self.advance()
        finally:
            self._worker = None
            self._send()

    async def _until_known(self, slot: Slot) -> None:
        answer = slot.answer
        assert answer is not None
        try:
            if isinstance(answer, Settled) and self.machine.waits_for_data and not self.machine.sends:
                answer.abandon()
                message = None
            else:
                message = await answer
        except Exception as error:
            message = self._fault(slot.header, error)
        except asyncio.CancelledError as error:
            message = self._cancelled(slot, error)
        slot.answer = None
        if slot.beside and message is not None:
            await self._fill_beside(slot, message)
        else:
            self._fill(slot, message)

    def _cancelled(self, slot: Slot, error: asyncio.CancelledError) -> Message | None:
        """Handle a cancellation: of this task, at the end; or of what it awaits, which leaves no answer."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return self._fault(slot.header, error)
        if self.machine.waits_for_data and not self.machine.sends:
            return None
        raise error

    def _fault(self, header: RequestHeader, error: BaseException) -> Message | None:
        error_answer = fault(header, self.peer, error)
        if error_answer is None:
            self.close()
        return error_answer

    def _fill(self, slot: Slot, message: Message | None) -> None:
        """Encode the answer of a request, if answers still reach the client."""
        parts: list[Buffer] | None = []
        if self.machine.sends:
            if message is not None:
                parts = encoded(slot.header, self.peer, message)
            if parts is not None:  # an answer that fits its schema: its errors can be counted
                self._count(slot, errors_in(slot.header.api_key, message))
        self._filled(slot, parts)

    async def _fill_beside(self, slot: Slot, message: Message) -> None:
        """Like `_fill`, for a long answer: encodes it and counts its errors in a thread."""
        parts: list[Buffer] | None = []
        if self.machine.sends:
            parts = await asyncio.to_thread(encoded_in_few, slot.header, self.peer, message)
            if parts is not None:
                self._count(slot, await asyncio.to_thread(errors_in, slot.header.api_key, message))
        self._filled(slot, parts)

    def _count(self, slot: Slot, errors: Mapping[int, int]) -> None:
        self._metrics.answered(slot.header.api_key, perf_counter() - slot.begun, errors)

    def _filled(self, slot: Slot, parts: list[Buffer] | None) -> None:
        if parts is None:
            self.close()
        self.machine.fill(slot, parts or [])

    def _leave(self) -> None:
        """Write the first answer in the queue. If the client's authentication has failed, close after it."""
        for piece in self.machine.leave():
            if self._transport.is_closing():
                break
            self._write(piece)
        if self._session.listener.sasl:
            state = self._session.state
            if state is AuthenticationState.FAILED:
                self.close()
            elif state is AuthenticationState.KNOWN:
                self.machine.allow(self._broker.config.network.request_max_bytes)

    def _send(self) -> None:
        """Write the small answers that the machine has kept back to be joined."""
        together = self.machine.flush()
        if together:
            self._write(together)

    def _write(self, data: Buffer) -> None:
        self._metrics.bytes_out += len(data)
        self._transport.write(data)

    # The end

    def _refuse(self, why: str) -> None:
        self._metrics.connections_refused += 1
        logger.warning("closing the connection from %s: %s", self.peer, why)
        self.close()

    def close(self) -> None:
        """Close once all that was written is sent. Requests that have not started are dropped."""
        self._send()
        self.machine.close()
        self._transport.close()

    def abort(self) -> None:
        """Close at once: what has not been sent is lost."""
        self.machine.close()
        self._transport.abort()

    def mute(self, seconds: float) -> None:
        """Start no request for `seconds`."""
        self.machine.muted = True
        self.advance()
        self._loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self.machine.muted = False
        self.advance()

    def look(self, now: float, idle: float, stalled: float) -> None:
        """Close if the client seems to be gone. Called regularly. `idle`, `stalled`: seconds allowed."""
        machine, unsent = self.machine, self._transport.get_write_buffer_size()
        self._account()
        match machine.look(now, unsent, self._memory, idle, stalled):
            case None if machine.has_backlog:
                self.advance()
            case CloseReason.NOT_READING_AFTER_CLOSE:
                self.abort()
            case CloseReason.NOT_READING:
                self._cut(f"does not read its answers ({unsent} bytes) while memory is short")
            case CloseReason.STUCK:
                unbegun = machine.unbegun
                self._cut(f"makes no progress with its requests ({unbegun} bytes) while memory is short")
            case CloseReason.IDLE:
                logger.info("closing the connection from %s: idle for %d s", self.peer, machine.silent(now))
                self.abort() if unsent else self.close()

    def _cut(self, why: str) -> None:
        logger.warning("cutting the connection from %s: it %s", self.peer, why)
        self.abort()

    async def finish(self, grace: float) -> None:
        """Shut down: start nothing more, give started requests `grace` seconds to end, close."""
        self.machine.drain()
        if self.machine.reading:
            self._transport.pause_reading()
        self.machine.reading = False
        worker = self._worker
        if worker is not None:
            if self.machine.waits_for_data:
                self.machine.close()
                worker.cancel()
            await asyncio.wait({worker}, timeout=grace)
            worker.cancel()
        self.close()
