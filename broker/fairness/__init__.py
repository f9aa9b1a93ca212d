"""Keeps one client from slowing the others down: limits of memory, turns, garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

# -- memory ----------------------------------------------------------------------------------------
# Limits the memory that all clients together can take, and decides which connections wait when it is short.
#
# There are two sums over all connections: bytes of requests (partly received, waiting, or being served) and
# bytes of answers (made, but not yet in the system's socket). Each sum has a limit.
#
# Requests over their limit: a connection that holds more than `SMALL` bytes is read from only if the missing
# bytes of all such connections add up to no more than one largest request. So some connections always finish,
# a few with large requests do not block the many with small ones, and small requests are served all the time.
#
# Answers over their limit: a connection that has not read its last answer gets no further one. Fetches of
# other connections get `SMALL` answers from a reserve beyond the limit; they wait if their batch is larger
# than that or the reserve is used up.
#
# The server closes a connection that makes no progress in such a time (connections.max.stalled.ms), which
# frees its memory. In total the broker holds at most the two limits, the reserve, one largest request, one
# largest answer, and `SMALL` bytes for each connection.


SMALL = 16 << 10
_SHARE = 8
"""Share of the answers' limit: what one answer may take of the free part, and the size of the reserve."""
_NO_LIMIT = 1 << 62


class Reader(Protocol):
    """A connection as the memory sees it."""

    def advance(self) -> None:
        """Check again whether reading or serving may continue."""


class Memory:
    """The two sums, their limits, and who waits."""

    def __init__(self, request_limit: int = -1, answer_limit: int = -1, largest: int = 100 << 20) -> None:
        """Limits in bytes; -1: none. `largest`: of one request."""
        self._largest = largest
        self._granted: dict[Reader, int] = {}  # read from over the limit; bytes still to come
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
        """Whether the reserve is used up as well."""
        return self.answers >= self._answer_limit + self._answer_reserve

    def change_requests(self, by: int) -> None:
        """Count bytes of requests: received (positive) or released (negative)."""
        self.requests += by
        if by < 0 and self._waiting and not self.requests_short:
            self._ask_again()

    def change_answers(self, by: int) -> None:
        """Count bytes of answers: made (positive) or sent (negative)."""
        self.answers += by
        if by < 0:
            self._freed.set()

    def may_read(self, reader: Reader, held: int, wanted: int) -> bool:
        """Whether a connection that holds `held` bytes may read on. If not, `advance` is called later.

        `wanted`: bytes that its current request still needs.
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
        """Wake the waiting connections in order; later, because each may call back into this object."""
        call_soon = asyncio.get_running_loop().call_soon
        for reader in self._waiting:
            call_soon(reader.advance)

    def room(self) -> int:
        """How large an answer may be now: a part of the free bytes, so that several connections get some."""
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


# -- turns -----------------------------------------------------------------------------------------
# Turns on the event loop: long work of one client is split, so that others do not wait long.


LARGE_AT_ONCE = 4
"""How many large requests are read, or served in steps, at the same time. Others wait."""
_READ_AT_ONCE = 4 << 20
"""Bytes that fetches read from disk in one round of the event loop: a few milliseconds."""


class Turns:
    """Decides which request may do long work next."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)
        self._large = 0
        self._step = asyncio.Lock()
        self._read = 0  # bytes, in this round of the event loop

    @asynccontextmanager
    async def large(self) -> AsyncIterator[None]:
        """One of the places for large requests: held while one is read and, if it has many parts, served."""
        async with self._places:
            self._large += 1
            try:
                yield
            finally:
                self._large -= 1

    @property
    def busy(self) -> bool:
        """Whether a large request is being read or served."""
        return self._large > 0

    async def next(self) -> None:
        """Return in a round of the event loop that no other step uses."""
        async with self._step:
            await asyncio.sleep(0)

    def has_read(self, size: int) -> None:
        """Count bytes that were read from disk in this round."""
        if size and not self._read:
            asyncio.get_running_loop().call_soon(self._next_round)
        self._read += size

    def _next_round(self) -> None:
        self._read = 0

    @property
    def has_read_enough(self) -> bool:
        """Whether further disk reads should wait for another round."""
        return self._read >= _READ_AT_ONCE


# -- garbage collection ----------------------------------------------------------------------------
# Decides when Python runs a full garbage collection: not while large requests are in memory.
#
# CPython collects the youngest objects often and all objects now and then. A full collection takes longer the
# more objects there are: 100 ms with the parts of a few large requests, and the broker serves nobody in that
# time. So the broker starts full collections itself. It does so when CPython would have, but waits while a
# large request is read or served, for at most `LATEST_SECONDS`, so that other garbage does not pile up.


LOOK_SECONDS = 1.0
LATEST_SECONDS = 10.0

_NEVER = 1_000_000_000


class GarbageWatch:
    """Decides when to run a full collection."""

    def __init__(self, due_after: int) -> None:
        """A full collection is due after `due_after` smaller ones."""
        self._due_after = due_after
        self._due_since: float | None = None

    def is_time(self, now: float, smaller_looks: int, busy: bool) -> bool:
        """Whether to collect now (monotonic seconds). `busy`: large requests are being read or served."""
        if smaller_looks < self._due_after:
            self._due_since = None
            return False
        if self._due_since is None:
            self._due_since = now
        if busy and now - self._due_since < LATEST_SECONDS:
            return False
        self._due_since = None
        return True


async def watch_garbage(busy: Callable[[], bool]) -> None:
    """Run full collections when they are due, until cancelled. Turns Python's own ones off."""
    youngest, middle, oldest = gc.get_threshold()
    gc.set_threshold(youngest, middle, _NEVER)
    watch = GarbageWatch(oldest)
    loop = asyncio.get_running_loop()
    try:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if watch.is_time(loop.time(), gc.get_count()[2], busy()):
                gc.collect()
    finally:
        gc.set_threshold(youngest, middle, oldest)
