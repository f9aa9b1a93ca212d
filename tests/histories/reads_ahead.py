"""Stands in for the thread that reads small batches ahead: all of a history runs in one thread.

Whatever a thread does comes somewhere between two moments: when it is asked to begin, and when its result is
asked for. Each of the two is a history of its own.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any


class Job:
    """What was asked for; like a Future."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    @cached_property
    def _done(self) -> Any:
        return self._work()

    def result(self) -> Any:
        """What came of it."""
        return self._done


class Reads:
    """Like an executor of one thread. `at_once`: before whoever asked goes on; else when the result is
    asked for."""

    def __init__(self, *, at_once: bool) -> None:
        self._at_once = at_once

    def submit(self, work: Callable[..., Any], *given: Any) -> Job:
        """Do it now or later."""
        job = Job(lambda: work(*given))
        if self._at_once:
            job.result()
        return job

    def shutdown(self, *, wait: bool) -> None:
        """Nothing is under way."""
