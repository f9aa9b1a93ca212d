"""When Python collects the garbage among all objects: not while large requests are among them.

CPython looks at the youngest objects often, and at all objects once in a while. The more objects there are,
the longer that takes: 100 ms with the parts of a few large requests, and nobody is served meanwhile. So the
broker itself decides when to look at all of them. It does so when CPython would have, but not while a large
request is read or served, unless the look is `LATEST_SECONDS` late: other garbage must not pile up.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

LOOK_SECONDS = 1.0
LATEST_SECONDS = 10.0

_NEVER = 1_000_000_000


class GarbageWatch:
    """Decides when to look among all objects."""

    def __init__(self, due_after: int) -> None:
        """`due_after`: so many smaller looks."""
        self._due_after = due_after
        self._due_since: float | None = None

    def is_time(self, now: float, smaller_looks: int, busy: bool) -> bool:
        """Whether to look now (monotonic seconds). `busy`: large requests are being read or served."""
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
    """Look among all objects now and then, until cancelled; Python does not do it by itself any more."""
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
