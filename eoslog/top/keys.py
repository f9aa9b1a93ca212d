"""Single keys from a terminal, without waiting for the end of a line."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Pressed = Callable[[float], str]
"""Waits so many seconds for a key; an empty string where none was pressed."""


@contextmanager
def pressed_keys() -> Iterator[Pressed]:
    """Keys of standard input, if that is a terminal, as long as the context lasts; else only the wait."""
    if not sys.stdin.isatty():
        yield _wait
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    try:
        tty.setcbreak(place)
        yield lambda seconds: _key(place, seconds)
    finally:
        termios.tcsetattr(place, termios.TCSADRAIN, before)


def _wait(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(place: int, seconds: float) -> str:
    ready, _, _ = select.select([place], [], [], max(seconds, 0))
    if not ready:
        return ""
    return os.read(place, 1).decode("ascii", "replace") or "q"  # the terminal is gone: no one looks
