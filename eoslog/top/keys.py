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
"""Waits so many seconds for a key; an empty string where none was pressed, or one that means nothing here."""

ESCAPE, END = "\x1b", "\x04"
_SOON_S = 0.02  # the bytes of one key come together
_LEADING = ((0xF0, 3), (0xE0, 2), (0xC0, 1))
"""First byte of a character in UTF-8, from which on so many more follow."""


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
    if not _is_ready(place, seconds):
        return ""
    first = os.read(place, 1)
    if not first:
        return END  # the terminal is gone: no one looks
    if first == ESCAPE.encode():
        return _escaped(place)
    more = next((more for most, more in _LEADING if first[0] >= most), 0)
    rest = os.read(place, more) if more and _is_ready(place, _SOON_S) else b""
    return (first + rest).decode(errors="replace")


def _escaped(place: int) -> str:
    """Esc, or nothing for a key of several bytes, such as an arrow."""
    if not _is_ready(place, _SOON_S):
        return ESCAPE
    os.read(place, 64)
    return ""


def _is_ready(place: int, seconds: float) -> bool:
    return bool(select.select([place], [], [], max(seconds, 0))[0])
