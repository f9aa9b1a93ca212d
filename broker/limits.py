"""How much memory all clients together may make the broker hold, and who waits when it is short.

Two sums over all connections: bytes of requests (half frames, frames not begun, frames being served) and
bytes of answers (made, not yet taken by the system's socket). Each has a limit.

While requests are over their limit, connections that hold more than `SMALL` of them are not read from, but
for the first in line: so one of them always gets on, and small requests are served all the while. While
answers are over theirs, fetches wait, and who has not read its last answer gets no further one. Who makes
no way at all in such a time is closed by the server (connections.max.stalled.ms), which frees what it held.
So the most that is held is the limits, one largest request and one largest answer, and `SMALL` a connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

SMALL = 16 << 10
_NO_LIMIT = 1 << 62


class Reader(Protocol):
    """A connection as the memory sees it."""

    def advance(self) -> None:
        """Look again whether reading or serving may go on."""


class Memory:
    """The two sums, their limits, and who waits."""

    def __init__(self, request_limit: int = -1, answer_limit: int = -1) -> None:
        """Limits in bytes; -1: none."""
        self._request_limit = _NO_LIMIT if request_limit < 0 else request_limit
        self._answer_limit = _NO_LIMIT if answer_limit < 0 else answer_limit
        self.requests = 0
        self.answers = 0
        self._waiting: dict[Reader, None] = {}  # in the order in which they came
        self._freed = asyncio.Event()

    @property
    def requests_short(self) -> bool:
        """Whether requests are over their limit."""
        return self.requests > self._request_limit

    @property
    def answers_short(self) -> bool:
        """Whether answers have reached their limit."""
        return self.answers >= self._answer_limit

    def change_requests(self, by: int) -> None:
        """Bytes of requests came (above 0) or are done with (below)."""
        self.requests += by
        if by < 0 and self._waiting and not self.requests_short:
            waiting, self._waiting = self._waiting, {}
            for reader in waiting:
                reader.advance()

    def change_answers(self, by: int) -> None:
        """Bytes of answers were made (above 0) or have left (below)."""
        self.answers += by
        if by < 0 and not self.answers_short:
            self._freed.set()

    def may_read(self, reader: Reader, held: int) -> bool:
        """Whether a connection that holds so many bytes of requests may read on; else it is called later."""
        if held <= SMALL or not self.requests_short:
            self._leave(reader)
            return True
        self._waiting.setdefault(reader)
        return next(iter(self._waiting)) is reader

    def forget(self, reader: Reader) -> None:
        """A connection has ended."""
        self._leave(reader)

    def _leave(self, reader: Reader) -> None:
        if reader not in self._waiting:
            return
        first = next(iter(self._waiting)) is reader
        del self._waiting[reader]
        if first and self._waiting:
            next(iter(self._waiting)).advance()

    def room(self) -> int:
        """How large an answer may be now."""
        return max(0, self._answer_limit - self.answers)

    async def until_room(self) -> None:
        """Return when answers are below their limit."""
        while self.answers_short:
            self._freed.clear()
            await self._freed.wait()
