"""A connection's answers: they leave in the order of their requests, one task carries out those that wait.

The task is alive only while there is something to wait for. What a handler raises ends here: in an answer
that says so where the API has a place for it, else in the end of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from eoslog.broker.network.exchange import Slot, encode
from eoslog.broker.requests.context import CloseConnection, Settled
from eoslog.broker.security.session import Session, State
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.error_places import error_of_all, errors_in
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.frames import FrameReader, RequestHeader
from eoslog.protocol.schema import Buffer, Message, ProtocolError

if TYPE_CHECKING:
    from eoslog.broker.core.broker import Broker
    from eoslog.broker.metrics.metrics import Metrics
    from eoslog.broker.security.listeners import Listener

log = logging.getLogger(__name__)

JOIN_BELOW = (
    16 << 10
)  # bytes: smaller answers and parts are joined into one write, larger ones are not copied
WRITE_AT_ONCE = 1 << 20  # bytes of small parts


class Answers(asyncio.BufferedProtocol):
    """The part of a connection that answers."""

    _transport: asyncio.Transport
    _loop: asyncio.AbstractEventLoop

    def __init__(self, broker: Broker, metrics: Metrics, listener: Listener) -> None:
        """Nothing is to be answered yet."""
        config = broker.config
        self._broker = broker
        self._metrics = metrics
        self._session = Session(listener)
        self._reader = FrameReader(
            config.security.sasl_max_receive_size if listener.sasl else config.network.request_max_bytes
        )
        self._line: deque[Slot] = deque()  # started, not answered
        self._line_requests = 0  # bytes of their frames
        self._line_answers = 0  # bytes of the answers that are ready
        self._unsent: list[Buffer] = []  # small answers to leave with one write; empty whenever we wait
        self._unsent_bytes = 0
        self._blocked = False  # a started request must end before the next begins
        self._writable = asyncio.Event()
        self._writable.set()
        self._worker: asyncio.Task[None] | None = None
        self._closing = False
        self.peer = "?"

    @abstractmethod
    def advance(self) -> None:
        """Start requests as long as nothing forbids it."""

    @abstractmethod
    def close(self) -> None:
        """Close after what has been written is sent."""

    @abstractmethod
    def _account(self) -> None:
        """Tell the memory what is held now."""

    def _enter(self, slot: Slot) -> None:
        """Write the answer now if it is its turn, else let it wait in line."""
        if slot.answer is None and not self._line:
            self._write(slot.parts)
            self._send()
            return
        self._line.append(slot)
        self._line_requests += slot.frame_size
        self._line_answers += slot.size
        if self._worker is None:
            self._worker = self._loop.create_task(self._answer_in_order())

    async def _answer_in_order(self) -> None:
        """Carry out the line of answers until it is empty. One at a time: no answer overtakes another."""
        try:
            while self._line:
                slot = self._line[0]
                if slot.answer is not None:
                    if self._unsent and not (isinstance(slot.answer, Settled) and slot.answer.ready()):
                        self._send()
                    await self._await_answer(slot)
                    self._line_answers += slot.size
                    self._account()
                if not self._writable.is_set():
                    self._send()
                    await self._writable.wait()
                self._write(slot.parts)
                self._line.popleft()
                self._line_requests -= slot.frame_size
                self._line_answers -= slot.size
                self.advance()
        finally:
            self._worker = None
            self._send()

    async def _await_answer(self, slot: Slot) -> None:
        answer = slot.answer
        assert answer is not None
        abandonable = slot.header.api_key == ApiKey.FETCH
        try:
            if self._closing and abandonable and isinstance(answer, Settled):
                answer.abandon()
                message = None
            else:
                message = await answer
        except Exception as error:
            message = self._fault(slot.header, error)
        except asyncio.CancelledError as error:
            message = self._cancelled(slot, error, abandonable)
        slot.answer = None
        if len(self._line) == 1:
            self._blocked = False  # only the last one begun can be the one that blocks
        if slot.beside and message is not None:
            await self._fill_beside(slot, message)
        else:
            self._fill(slot, message)

    def _cancelled(self, slot: Slot, error: asyncio.CancelledError, abandonable: bool) -> Message | None:
        """Someone was cancelled: we ourselves at the end, or what we waited for, which leaves no answer."""
        task = asyncio.current_task()
        if task is None or not task.cancelling():
            return self._fault(slot.header, error)
        if self._closing and abandonable:
            return None
        raise error

    def _fill(self, slot: Slot, message: Message | None) -> None:
        told = self._counted(slot, message, errors_in(slot.header.api_key, message))
        if told is not None:
            try:
                slot.parts = encode(slot.header, told)
            except ProtocolError as error:
                self._misfit(slot, error)

    async def _fill_beside(self, slot: Slot, message: Message) -> None:
        """As `_fill`; what takes the longer the longer the answer is, is done in a thread."""
        errors = await asyncio.to_thread(errors_in, slot.header.api_key, message)
        told = self._counted(slot, message, errors)
        if told is not None:
            try:
                slot.parts = await asyncio.to_thread(_in_few_parts, slot.header, told)
            except ProtocolError as error:
                self._misfit(slot, error)

    def _counted(self, slot: Slot, message: Message | None, errors: Mapping[int, int]) -> Message | None:
        """The message to send, if there is one and somebody to send it to."""
        if self._closing:
            return None
        self._metrics.answered(slot.header.api_key, perf_counter() - slot.begun, errors)
        return message

    def _misfit(self, slot: Slot, error: ProtocolError) -> None:
        what = "%s: the answer to API key %d does not fit its schema"
        log.error(what, self.peer, slot.header.api_key, exc_info=error)
        self.close()

    def _write(self, parts: list[Buffer]) -> None:
        """Put an answer into line for the transport: small ones leave together, large parts as they are."""
        if self._closing:
            return
        size = sum(map(len, parts))
        self._metrics.bytes_out += size
        if size <= JOIN_BELOW:
            self._unsent += parts
            self._unsent_bytes += size
            if self._unsent_bytes > JOIN_BELOW:
                self._send()
        else:
            self._send()
            for part in joined(parts):
                if self._transport.is_closing():
                    return
                self._transport.write(part)
        if self._session.listener.sasl:
            self._authenticating()

    def _send(self) -> None:
        """Hand over the small answers: many that became ready at once (by one sync) cost one call."""
        if self._unsent:
            joined = b"".join(self._unsent)
            self._unsent.clear()
            self._unsent_bytes = 0
            if not self._closing:
                self._transport.write(joined)

    def _authenticating(self) -> None:
        """After an answer: a failure was the last one, a success lets larger frames in."""
        state = self._session.state
        if state is State.FAILED:
            self.close()
        elif state is State.KNOWN:
            self._reader.max_size = self._broker.config.network.request_max_bytes

    def _fault(self, header: RequestHeader, error: BaseException) -> Message | None:
        """A handler failed. Tell the client if the API has a place for it, else end the connection."""
        what = f"API key {header.api_key} v{header.api_version} from {self.peer} ({header.client_id})"
        if isinstance(error, CloseConnection):
            log.info("closing the connection: %s: %s", what, error)
            self.close()
            return None
        log.error("fault while serving %s", what, exc_info=error)
        told = error_of_all(header.api_key, header.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
        if told is None:  # its parts may have been carried out before the fault, so none of them is answered
            self.close()
        return told


def _in_few_parts(header: RequestHeader, message: Message) -> list[Buffer]:
    return list(joined(encode(header, message)))


def joined(parts: list[Buffer]) -> Iterator[Buffer]:
    """The same bytes, small neighbours in one piece: each piece costs a system call."""
    small: list[Buffer] = []
    size = 0
    for part in parts:
        if len(part) > JOIN_BELOW:
            yield b"".join(small)
            yield part
            small, size = [], 0
            continue
        small.append(part)
        size += len(part)
        if size > WRITE_AT_ONCE:
            yield b"".join(small)
            small, size = [], 0
    yield b"".join(small)
