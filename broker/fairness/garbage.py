"""Decides when Python runs a full garbage collection: not while large requests are in memory.

CPython collects the youngest objects often and all objects now and then. A full collection takes longer the
more objects there are: 100 ms with the parts of a few large requests, and the broker serves nobody in that
time. So the broker starts full collections itself. It does so when CPython would have, but waits while a
large request is read or served, for at most `LATEST_SECONDS`, so that other garbage does not pile up.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

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


async def watch(busy: Callable[[], bool]) -> None:
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
