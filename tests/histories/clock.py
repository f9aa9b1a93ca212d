"""Time that passes when somebody waits: a history of hours takes milliseconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BEGIN = 1_800_000_000.0
"""Seconds since 1970 at which every history begins."""


class Clock:
    """Stands in for `time`. `passed` is called when time has gone by: something may end by time-out."""

    def __init__(self) -> None:
        self.now = 0.0
        self.passed: Callable[[], None] = lambda: None

    @property
    def ms(self) -> int:
        """Milliseconds since 1970."""
        return int((BEGIN + self.now) * 1000)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(seconds, 1e-4)
        self.passed()

    @contextmanager
    def rules(self) -> Iterator[None]:
        """Within it everybody who asks for the time, or sleeps, does it by this clock."""
        kept = time.time, time.monotonic, time.sleep
        time.time = lambda: BEGIN + self.now
        time.monotonic = lambda: self.now
        time.sleep = self.sleep
        try:
            yield
        finally:
            time.time, time.monotonic, time.sleep = kept
