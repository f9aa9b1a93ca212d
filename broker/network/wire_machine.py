"""One connection's rules as a state machine without sockets, tasks or a clock: bytes and times in, bytes out.

Received bytes are cut into frames, and each frame is a request. Requests start in order. Their answers may
become known in any order, and are sent in the order of the requests. The caller reports what happened, and
asks what it may do now: see `next_frame`, `leave`, `has_room`.

| phase | received bytes | requests start | answers are sent | requests held | next phases |
|---|---|---|---|---|---|
| OPEN | become frames | as below | in order | all | DRAINING (`drain`), CLOSED (`close`), LOST (`lose`) |
| DRAINING | are dropped | no | in order | started ones | CLOSED, LOST |
| CLOSED | are dropped | no | no; those already written are on their way | started ones | LOST |
| LOST | | no | no | started ones | |

A request that has started runs to its end in every phase: a half-done EndTxn must not be cut off. A request
that has not started waits

| while | until |
|---|---|
| an earlier one still has effects to come (`block`), such as each step of SASL | that one's answer is known |
| `MAX_IN_FLIGHT` requests, or `MAX_HELD_BYTES` of requests and finished answers, are held | some are sent |
| the client does not read its answers (`writable`) | it reads |
| this connection holds answers, while those of all connections are over their limit | some are sent |
| the connection is muted | it is not |

While a request waits, nothing more is read from the client. Only bytes that were read together with it are
held besides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Protocol

from eoslog.broker.fairness import SMALL
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import FrameReader, RequestHeader
from eoslog.protocol.schema import Buffer, Message

MAX_IN_FLIGHT = 64
MAX_HELD_BYTES = 16 << 20


class Phase(Enum):
    """The phase of a connection's life."""

    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"
    LOST = "lost"


OPEN, DRAINING, CLOSED, LOST = Phase


class CloseReason(Enum):
    """Why the client seems to be gone."""

    NOT_READING_AFTER_CLOSE = "has been closed, and does not read what was sent before"
    NOT_READING = "does not read its answers while memory is short"
    STUCK = "makes no progress with its requests while memory is short"
    IDLE = "neither sends nor reads anything, and waits for nothing"


class Shortage(Protocol):
    """The memory of all connections together, as one of them sees it."""

    @property
    def requests_short(self) -> bool:
        """Whether requests are over their limit."""

    @property
    def answers_short(self) -> bool:
        """Whether answers have reached their limit."""


class Slot:
    """A request's place in the queue of answers."""

    __slots__ = ("answer", "begun", "beside", "frame_size", "header", "parts", "size")

    def __init__(self, header: RequestHeader, frame_size: int, begun: float) -> None:
        """`begun`: when the request started, in seconds of the caller's clock."""
        self.header = header
        self.begun = begun
        self.frame_size = frame_size
        self.beside = False  # the answer may be long, and is encoded in a thread
        self.answer: Awaitable[Message | None] | None = None
        """The awaitable that the caller waits for, while it waits."""
        self.parts: list[Buffer] | None = None
        """The answer's bytes; empty if there is none (Produce with acks=0), None while it is not known."""
        self.size = 0


class WireMachine:
    """The order, the limits and the phases of one connection."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_blocker",
        "_idle_timer",
        "_line",
        "_line_answers",
        "_line_requests",
        "_reader",
        "_small",
        "_small_bytes",
        "held_answers",
        "held_requests",
        "muted",
        "phase",
        "reading",
        "sends",
        "writable",
    )  # fmt: skip

    def __init__(self, max_size: int, now: float) -> None:
        """`max_size`: of a frame, in bytes. All times are in monotonic seconds."""
        self._reader = FrameReader(max_size)
        self._idle_timer = IdleTimer(now)
        self._backlog: deque[memoryview] = deque()  # requests read, not started
        self._backlog_bytes = 0
        self._line: deque[Slot] = deque()  # requests started, not answered
        self._line_requests = 0  # bytes of their frames
        self._line_answers = 0  # bytes of the answers that are known
        self._small: list[Buffer] = []  # answers that left the line, to be written together
        self._small_bytes = 0
        self._blocker: Slot | None = None  # its answer must be known before the next request starts
        self.phase = OPEN
        self.sends = True
        """Whether answers can still be sent to the client."""
        self.reading = True
        """Whether bytes are read from the client. The caller sets it."""
        self.writable = True
        """Whether the client reads its answers. The caller sets it."""
        self.muted = False
        """Whether no request may start for a while. The caller sets it."""
        self.held_requests = 0
        """Bytes of requests that are held, as of the last `account`."""
        self.held_answers = 0
        """Bytes of answers, also those that are written and not yet taken by the system."""

    # Bytes in, requests out

    def receive(self, data: Buffer, now: float) -> None:
        """Take received bytes. Raises FrameError for a frame of a size that is not allowed."""
        self._idle_timer.received(now)
        if self.phase is not OPEN:
            return
        frames = self._reader.feed(data)
        self._backlog.extend(frames)
        self._backlog_bytes += sum(map(len, frames))

    def allow(self, max_size: int) -> None:
        """Allow frames up to `max_size` bytes from now on."""
        self._reader.max_size = max_size

    def next_frame(self, answers_short: bool) -> memoryview | None:
        """The next request, if it may start now; then call `begin`. `answers_short`: see `Shortage`."""
        if not self._backlog or not self._may_begin(answers_short):
            return None
        frame = self._backlog.popleft()
        self._backlog_bytes -= len(frame)
        return frame

    def begin(self, header: RequestHeader, frame_size: int, begun: float) -> Slot:
        """Start a request, and give it its place in the queue of answers."""
        slot = Slot(header, frame_size, begun)
        self._line.append(slot)
        self._line_requests += frame_size
        return slot

    def block(self, slot: Slot) -> None:
        """Hold back the next request until the answer of this one, the last started, is known."""
        self._blocker = slot

    def _may_begin(self, answers_short: bool) -> bool:
        return (
            self._blocker is None
            and self.writable
            and self._may_hold()
            and not (answers_short and self.held_answers)
        )

    def _may_hold(self) -> bool:
        return (
            len(self._line) < MAX_IN_FLIGHT
            and self._line_requests + self._line_answers < MAX_HELD_BYTES
            and not self.muted
        )

    # Answers in, bytes out

    @property
    def first(self) -> Slot | None:
        """The request whose answer is sent next."""
        return self._line[0] if self._line else None

    @property
    def waits_for_data(self) -> bool:
        """Whether the first one is a Fetch that is awaited: it changes nothing, and can be dropped."""
        first = self.first
        return first is not None and first.header.api_key == ApiKey.FETCH and first.answer is not None

    def fill(self, slot: Slot, parts: list[Buffer]) -> None:
        """Set the bytes of a request's answer; none if it has no answer."""
        slot.parts = parts
        slot.size = sum(map(len, parts))
        self._line_answers += slot.size
        if slot is self._blocker:
            self._blocker = None

    def leave(self) -> Iterable[Buffer]:
        """Take the first request's answer, which must be known, out of the queue. Returns what to write now.

        Small answers may be kept to be joined with others: call `flush` before waiting for anything.
        """
        slot = self._line.popleft()
        assert slot.parts is not None, "an answer that is not known cannot be sent"
        self._line_requests -= slot.frame_size
        self._line_answers -= slot.size
        if not self.sends:
            return ()
        if slot.size > JOIN_BELOW:
            return chain((self.flush(),) if self._small else (), joined(slot.parts))
        self._small += slot.parts
        self._small_bytes += slot.size
        return (self.flush(),) if self._small_bytes > JOIN_BELOW else ()

    def flush(self) -> bytes:
        """The small answers that were kept: many that became ready at once (by one sync) cost one write."""
        together = b"".join(self._small)
        self._small.clear()
        self._small_bytes = 0
        return together

    @property
    def unwritten(self) -> bool:
        """Whether there is something to `flush`."""
        return bool(self._small)

    # How much is held

    @property
    def has_room(self) -> bool:
        """Whether the connection's own limits allow it to read more."""
        return not self._backlog and self._may_hold()

    @property
    def missing(self) -> int:
        """Bytes still to come of a partly received frame."""
        return self._reader.missing

    @property
    def unbegun(self) -> int:
        """Bytes of requests that are partly received, or have not started."""
        return self._reader.pending + self._backlog_bytes

    @property
    def has_backlog(self) -> bool:
        """Whether a complete request waits to start."""
        return bool(self._backlog)

    def account(self, unsent: int) -> tuple[int, int]:
        """The change since the last call, in bytes of requests and of answers held.

        `unsent`: bytes of answers that are written and not yet taken by the system.
        """
        requests = self._reader.pending + self._backlog_bytes + self._line_requests
        answers = self._line_answers + unsent
        changes = requests - self.held_requests, answers - self.held_answers
        self.held_requests, self.held_answers = requests, answers
        return changes

    # Whether the client is still there

    def look(
        self, now: float, unsent: int, shortage: Shortage, idle: float, stalled: float
    ) -> CloseReason | None:
        """Why the connection should end, or None. Called regularly. `idle`, `stalled`: seconds allowed."""
        timer = self._idle_timer
        timer.look(now, unsent)
        not_reading = timer.since_read(now) > stalled
        if self.phase is CLOSED:
            return CloseReason.NOT_READING_AFTER_CLOSE if not_reading else None
        if not_reading and shortage.answers_short:
            return CloseReason.NOT_READING
        if shortage.requests_short and self._holds_up_others and timer.since_received(now) > stalled:
            return CloseReason.STUCK
        waits_for_us = self._line and self.writable
        return CloseReason.IDLE if timer.idle(now) > idle and not waits_for_us else None

    def silent(self, now: float) -> float:
        """Seconds in which no byte was received."""
        return self._idle_timer.since_received(now)

    @property
    def _holds_up_others(self) -> bool:
        """Whether it holds large requests without progress, and not because it waits for other clients."""
        return self.unbegun > SMALL and (self.reading or bool(self._backlog))

    # The end

    def drain(self) -> None:
        """Start no further request. Answers are still sent."""
        if self.phase is OPEN:
            self._forget(DRAINING)

    def close(self) -> None:
        """Send no further answer, and drop those not written: call `flush` before, or lose them."""
        if self.phase is not LOST:
            self._forget(CLOSED)

    def lose(self) -> None:
        """Note that the client is gone."""
        self._forget(LOST)
        self.writable = True  # nothing has to wait for the client

    def _forget(self, phase: Phase) -> None:
        """Enter a phase in which nothing starts, and drop the requests that have not started."""
        self.phase = phase
        self._reader = FrameReader(0)
        self._backlog.clear()
        self._backlog_bytes = 0
        if phase is not DRAINING:
            self.sends = False
            self._small.clear()
            self._small_bytes = 0


class IdleTimer:
    """Tracks, in monotonic seconds, when a client last sent something, and whether it reads its answers."""

    __slots__ = ("_read", "_received", "_unread")

    def __init__(self, now: float) -> None:
        self._received = self._read = now
        self._unread = 0

    def received(self, now: float) -> None:
        """Note that bytes were received."""
        self._received = now

    def look(self, now: float, unread: int) -> None:
        """Note, once in a while, that `unread` bytes of answers wait to be read."""
        if not unread or unread < self._unread:
            self._read = now
        self._unread = unread

    def since_read(self, now: float) -> float:
        """Seconds in which the client has read none of the waiting answers."""
        return now - self._read

    def since_received(self, now: float) -> float:
        """Seconds in which no byte was received."""
        return now - self._received

    def idle(self, now: float) -> float:
        """Seconds in which the client has neither sent nor read anything."""
        return (
            min(self.since_received(now), self.since_read(now)) if self._unread else self.since_received(now)
        )


JOIN_BELOW = 16 << 10
"""Answers and parts up to this many bytes are joined. Larger ones are not copied."""
WRITE_AT_ONCE = 1 << 20  # bytes of small parts


def joined(parts: list[Buffer]) -> Iterator[Buffer]:
    """The same bytes, with small neighbouring parts joined, as each write costs a system call."""
    small: list[Buffer] = []
    size = 0
    for part in parts:
        if len(part) > JOIN_BELOW:
            if small:
                yield b"".join(small)
            yield part
            small, size = [], 0
            continue
        small.append(part)
        size += len(part)
        if size > WRITE_AT_ONCE:
            yield b"".join(small)
            small, size = [], 0
    if small:
        yield b"".join(small)
