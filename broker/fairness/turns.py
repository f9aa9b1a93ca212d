"""Turns on the event loop: long work of one client is split, so that others do not wait long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
