"""Time that passes when somebody waits: a history of hours takes milliseconds."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

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
        """Within it whoever asks for the time, or sleeps, does it by this clock; but not threads that run
        already, which have no part in the history (py4j's sleeps and wakes for as long as a JVM lives)."""
        outside = {*threading.enumerate()} - {threading.current_thread()}  # not by ident: that comes again
        kept = time.time, time.monotonic, time.sleep

        def inside(ours: Callable[P, T], theirs: Callable[P, T]) -> Callable[P, T]:
            def told(*args: P.args, **more: P.kwargs) -> T:
                return (theirs if threading.current_thread() in outside else ours)(*args, **more)

            return told

        time.time = inside(lambda: BEGIN + self.now, kept[0])
        time.monotonic = inside(lambda: self.now, kept[1])
        time.sleep = inside(lambda seconds: self.sleep(float(seconds)), kept[2])
        try:
            yield
        finally:
            time.time, time.monotonic, time.sleep = kept
