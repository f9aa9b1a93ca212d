"""Waiting for what others bring about."""

import time
from collections.abc import Callable
from typing import Any


def until(condition: Callable[[], Any], what: str = "it", seconds: float = 60.0) -> Any:
    """What the condition answers, once it is true. Raises AssertionError if it is not in time."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.01)
    return found
