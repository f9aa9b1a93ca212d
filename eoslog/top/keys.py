"""Reads single keys from a terminal, without waiting for the end of a line."""

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
"""Waits this many seconds for a key. Returns "" if none was pressed, or one without a meaning here."""

ESCAPE, END = "\x1b", "\x04"
_SOON_S = 0.02  # the bytes of one key arrive together
_LEADING = ((0xF0, 3), (0xE0, 2), (0xC0, 1))
"""The least first byte of a character in UTF-8, and how many more bytes follow."""


@contextmanager
def pressed_keys() -> Iterator[Pressed]:
    """Reads keys of standard input while the context lasts; without a terminal it only waits."""
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
        return END  # the terminal is gone: nobody is watching
    if first == ESCAPE.encode():
        return _escaped(place)
    more = next((more for most, more in _LEADING if first[0] >= most), 0)
    rest = os.read(place, more) if more and _is_ready(place, _SOON_S) else b""
    return (first + rest).decode(errors="replace")


def _escaped(place: int) -> str:
    """Esc, or "" for a key of several bytes, such as an arrow."""
    if not _is_ready(place, _SOON_S):
        return ESCAPE
    os.read(place, 64)
    return ""


def _is_ready(place: int, seconds: float) -> bool:
    return bool(select.select([place], [], [], max(seconds, 0))[0])
