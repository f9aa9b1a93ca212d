"""How much memory all clients together may make the broker hold, and who waits when it is short.

Two sums over all connections: bytes of requests (half frames, frames not begun, frames being served) and
bytes of answers (made, not yet taken by the system's socket). Each has a limit.

While requests are over their limit, connections that hold more than `SMALL` of them are read from only as
far as the rest of their requests, together, is no more than one largest request. So some always get on, a
few that want much do not hold up the many that want little, and small requests are served all the while.
While answers are over their limit, who has not read its last answer gets no further one. Fetches of others
get `SMALL` answers from a reserve beyond the limit, and wait if a batch is larger or the reserve used up.
Who makes no way at all in such a time is cut off by the server (connections.max.stalled.ms), which frees
what it held. The most that is held is the limits, the reserve, one largest request and answer, and `SMALL` a
connection.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

SMALL = 16 << 10
_SHARE = 8
"""Of the limit of answers: the most that one may take of what is left, and the size of the reserve."""
_NO_LIMIT = 1 << 62


class Reader(Protocol):
    """A connection as the memory sees it."""

    def advance(self) -> None:
        """Look again whether reading or serving may go on."""


class Memory:
    """The two sums, their limits, and who waits."""

    def __init__(self, request_limit: int = -1, answer_limit: int = -1, largest: int = 100 << 20) -> None:
        """Limits in bytes; -1: none. `largest`: of one request."""
        self._largest = largest
        self._granted: dict[Reader, int] = {}  # who reads on over the limit, and how much
        self._request_limit = _NO_LIMIT if request_limit < 0 else request_limit
        self._answer_limit = _NO_LIMIT if answer_limit < 0 else answer_limit
        self._answer_reserve = self._answer_limit // _SHARE
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

    @property
    def no_room(self) -> bool:
        """Whether the reserve is used up, too."""
        return self.answers >= self._answer_limit + self._answer_reserve

    def change_requests(self, by: int) -> None:
        """Bytes of requests came (above 0) or are done with (below)."""
        self.requests += by
        if by < 0 and self._waiting and not self.requests_short:
            self._ask_again()

    def change_answers(self, by: int) -> None:
        """Bytes of answers were made (above 0) or have left (below)."""
        self.answers += by
        if by < 0:
            self._freed.set()

    def may_read(self, reader: Reader, held: int, wanted: int) -> bool:
        """Whether a connection may read on that holds `held` bytes of requests; else it is called later.

        `wanted`: bytes that its present request still needs.
        """
        if held <= SMALL or not self.requests_short:
            self.forget(reader)
            return True
        others = sum(self._granted.values()) - self._granted.get(reader, 0)
        if others and others + wanted > self._largest:
            self._granted.pop(reader, None)
            self._waiting.setdefault(reader)
            return False
        self._waiting.pop(reader, None)
        self._granted[reader] = wanted
        return True

    def forget(self, reader: Reader) -> None:
        """A connection has ended, or holds little."""
        self._waiting.pop(reader, None)
        if self._granted.pop(reader, None) is not None:
            self._ask_again()

    def _ask_again(self) -> None:
        """Let those who wait look again, in their order; not at once, as each may call us back."""
        call_soon = asyncio.get_running_loop().call_soon
        for reader in self._waiting:
            call_soon(reader.advance)

    def room(self) -> int:
        """How large an answer may be now: a part of what is left, so that many get some of it."""
        return max(SMALL, (self._answer_limit - self.answers) // _SHARE)

    async def until_room(self) -> None:
        """Return when there is room for a small answer."""
        while self.no_room:
            await self._until_freed()

    async def until_below_limit(self) -> None:
        """Return when there is room for a large one."""
        while self.answers_short:
            await self._until_freed()

    async def _until_freed(self) -> None:
        self._freed.clear()
        await self._freed.wait()
