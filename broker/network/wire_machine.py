"""One connection's rules as a machine, without sockets, tasks or a clock: bytes and times in, bytes out.

What came is cut into frames, and frames begin in turn; their answers may become known in any order, and leave
in the order of the requests. Who holds the machine tells what happened, and asks what may be done now: see
`next_frame`, `leave`, `has_room`.

| phase | bytes that come | requests begin | answers leave | what is held | goes on to |
|---|---|---|---|---|---|
| OPEN | become frames | as below | in order | all | DRAINING (`drain`), CLOSED (`close`), LOST (`lose`) |
| DRAINING | are dropped | no | in order | what has begun | CLOSED, LOST |
| CLOSED | are dropped | no | no; those written are on their way | what has begun | LOST |
| LOST | | no | no | what has begun | |

What has begun ends in each of them: a half-done EndTxn must not be cut off. A request that could begin waits

| while | until |
|---|---|
| one before it has effects to come (`block`): among them each step of SASL | that one's answer is known |
| `MAX_IN_FLIGHT` requests, or `MAX_HELD_BYTES` of requests and finished answers, are held | some have left |
| the client does not read what it was sent (`writable`) | it reads |
| this connection has answers of its own while those of all are over their limit | some have left |
| the connection is mute | it is not |

While one waits nothing more is read from the client: beside it is held what was read in one piece with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Iterable
from enum import Enum
from itertools import chain
from typing import Protocol

from eoslog.broker.fairness.memory import SMALL
from eoslog.broker.network.pieces import JOIN_BELOW, joined
from eoslog.broker.network.presence import Presence
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.frames import FrameReader, RequestHeader
from eoslog.protocol.schema import Buffer, Message

MAX_IN_FLIGHT = 64
MAX_HELD_BYTES = 16 << 20


class Phase(Enum):
    """How far a connection's life is."""

    OPEN = "open"
    DRAINING = "draining"
    CLOSED = "closed"
    LOST = "lost"


OPEN, DRAINING, CLOSED, LOST = Phase


class Absence(Enum):
    """Why nobody seems to be at the other end."""

    DEAF_TO_THE_REST = "has been closed, and does not read what was sent before"
    DEAF = "does not read its answers while memory is short"
    STUCK = "does not get on with its requests while memory is short"
    IDLE = "neither sends nor reads anything, and waits for nothing"


class Shortage(Protocol):
    """What all connections together hold, as one of them sees it."""

    @property
    def requests_short(self) -> bool:
        """Whether requests are over their limit."""

    @property
    def answers_short(self) -> bool:
        """Whether answers have reached theirs."""


class Slot:
    """A request's place in the line of answers."""

    __slots__ = ("answer", "begun", "beside", "frame_size", "header", "parts", "size")

    def __init__(self, header: RequestHeader, frame_size: int, begun: float) -> None:
        """`begun`: when, in seconds of the caller's clock."""
        self.header = header
        self.begun = begun
        self.frame_size = frame_size
        self.beside = False  # the answer is long, and encoded in a thread
        self.answer: Awaitable[Message | None] | None = None
        """What the caller waits for, as long as it does."""
        self.parts: list[Buffer] | None = None
        """The answer's bytes, empty if there is none (Produce with acks=0); None while it is not known."""
        self.size = 0


class WireMachine:
    """The order, the bounds and the life of one connection."""

    __slots__ = (
        "_backlog", "_backlog_bytes", "_blocker", "_line", "_line_answers", "_line_requests", "_presence",
        "_reader", "_small", "_small_bytes", "held_answers", "held_requests", "muted", "phase", "reading",
        "sends", "writable",
    )  # fmt: skip

    def __init__(self, max_size: int, now: float) -> None:
        """`max_size`: of a frame, in bytes. All times are in monotonic seconds."""
        self._reader = FrameReader(max_size)
        self._presence = Presence(now)
        self._backlog: deque[memoryview] = deque()  # frames read, not begun
        self._backlog_bytes = 0
        self._line: deque[Slot] = deque()  # begun, not answered
        self._line_requests = 0  # bytes of their frames
        self._line_answers = 0  # bytes of the answers that are known
        self._small: list[Buffer] = []  # answers that left the line, to be written together
        self._small_bytes = 0
        self._blocker: Slot | None = None  # it must end before the next begins
        self.phase = OPEN
        self.sends = True
        """Whether answers still leave, and reach somebody."""
        self.reading = True
        """Whether bytes are read from the client; set it when that changes."""
        self.writable = True
        """Whether the client reads what it is sent; set it when that changes."""
        self.muted = False
        """Whether no request begins for a while."""
        self.held_requests = 0
        """Bytes of requests that are held, as told by `account`."""
        self.held_answers = 0
        """Bytes of answers, those included that are sent and not taken by the system."""

    # Bytes in, requests out

    def receive(self, data: Buffer, now: float) -> None:
        """Bytes came. Raises FrameError for a frame of a size that is not allowed."""
        self._presence.heard(now)
        if self.phase is not OPEN:
            return
        frames = self._reader.feed(data)
        self._backlog.extend(frames)
        self._backlog_bytes += sum(map(len, frames))

    def allow(self, max_size: int) -> None:
        """From now on frames may be so large."""
        self._reader.max_size = max_size

    def next_frame(self, answers_short: bool) -> memoryview | None:
        """The next request, if it may begin now: `begin` it. `answers_short`: see `Shortage`."""
        if not self._backlog or not self._may_begin(answers_short):
            return None
        frame = self._backlog.popleft()
        self._backlog_bytes -= len(frame)
        return frame

    def begin(self, header: RequestHeader, frame_size: int, begun: float) -> Slot:
        """A request begins, and has its place in the line of answers from now on."""
        slot = Slot(header, frame_size, begun)
        self._line.append(slot)
        self._line_requests += frame_size
        return slot

    def block(self, slot: Slot) -> None:
        """The request that began last has effects to come: the next one begins when its answer is known."""
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
        """The request whose answer leaves next."""
        return self._line[0] if self._line else None

    @property
    def waits_for_data(self) -> bool:
        """Whether that is a fetch's, and awaited: it changes nothing, and who has gone does not need it."""
        first = self.first
        return first is not None and first.header.api_key == ApiKey.FETCH and first.answer is not None

    def fill(self, slot: Slot, parts: list[Buffer]) -> None:
        """A request's answer is known: these bytes; none if it has no answer."""
        slot.parts = parts
        slot.size = sum(map(len, parts))
        self._line_answers += slot.size
        if slot is self._blocker:
            self._blocker = None

    def leave(self) -> Iterable[Buffer]:
        """The first request's answer, which is known, leaves the line; answers what to write now.

        Small answers may stay here until others join them: `flush` before waiting for anything.
        """
        slot = self._line.popleft()
        assert slot.parts is not None, "an answer that is not known cannot leave"
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
        """The small answers that stayed: many that became ready at once (by one sync) cost one write."""
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
        """Whether the connection's own bounds let it read on."""
        return not self._backlog and self._may_hold()

    @property
    def missing(self) -> int:
        """Bytes that the frame in the making still needs."""
        return self._reader.missing

    @property
    def unbegun(self) -> int:
        """Bytes of requests that are not whole yet, or have not begun."""
        return self._reader.pending + self._backlog_bytes

    @property
    def has_backlog(self) -> bool:
        """Whether a whole request waits for its beginning."""
        return bool(self._backlog)

    def account(self, unsent: int) -> tuple[int, int]:
        """By how many bytes more requests and answers are held than at the last time (below 0: less).

        `unsent`: bytes of answers that were written, and not yet taken by the system.
        """
        requests = self._reader.pending + self._backlog_bytes + self._line_requests
        answers = self._line_answers + unsent
        changes = requests - self.held_requests, answers - self.held_answers
        self.held_requests, self.held_answers = requests, answers
        return changes

    # Whether somebody is there

    def look(
        self, now: float, unsent: int, shortage: Shortage, idle: float, stalled: float
    ) -> Absence | None:
        """Once in a while: why the connection should end. `idle`, `stalled`: seconds allowed."""
        presence = self._presence
        presence.look(now, unsent)
        deaf = presence.deaf(now) > stalled
        if self.phase is CLOSED:
            return Absence.DEAF_TO_THE_REST if deaf else None
        if deaf and shortage.answers_short:
            return Absence.DEAF
        if shortage.requests_short and self._holds_up_others and presence.silent(now) > stalled:
            return Absence.STUCK
        waits_for_us = self._line and self.writable
        return Absence.IDLE if presence.idle(now) > idle and not waits_for_us else None

    def silent(self, now: float) -> float:
        """Seconds without a byte."""
        return self._presence.silent(now)

    @property
    def _holds_up_others(self) -> bool:
        """Whether it holds much that does not get on, and that is not because we wait for others."""
        return self.unbegun > SMALL and (self.reading or bool(self._backlog))

    # The end

    def drain(self) -> None:
        """No further request begins, and answers still leave."""
        if self.phase is OPEN:
            self._forget(DRAINING)

    def close(self) -> None:
        """No further answer leaves, and what was not written is forgotten: `flush` before, or cut it."""
        if self.phase is not LOST:
            self._forget(CLOSED)

    def lose(self) -> None:
        """Nobody is at the other end any more."""
        self._forget(LOST)
        self.writable = True  # nothing has to wait for the client

    def _forget(self, phase: Phase) -> None:
        """Go on to a phase in which nothing begins, and hold no request that has not begun."""
        self.phase = phase
        self._reader = FrameReader(0)
        self._backlog.clear()
        self._backlog_bytes = 0
        if phase is not DRAINING:
            self.sends = False
            self._small.clear()
            self._small_bytes = 0
