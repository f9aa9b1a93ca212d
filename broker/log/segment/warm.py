"""Which sealed segments have their file open and their indexes in memory: the ones read most recently.

A log of any age and length so takes a bounded number of open files and a bounded amount of memory. What is
let go is opened again when it is asked for. One for the process: that is what the bounds are about.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Protocol

MOST_SEGMENTS = 256
MOST_BYTES = 48 << 20


class Coolable(Protocol):
    """What is kept of a segment."""

    def weight(self) -> int:
        """Bytes of its indexes in memory, about."""

    def cool(self) -> None:
        """Let go of file and indexes; whoever uses them at this moment may go on."""


class Warm:
    """The segments in the order of their last use."""

    def __init__(self, most_segments: int, most_bytes: int) -> None:
        self._most_segments, self._most_bytes = most_segments, most_bytes
        self._segments: OrderedDict[Coolable, int] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._segments)

    def used(self, segment: Coolable) -> None:
        """A segment has opened its file, or loaded its indexes, or is read again."""
        weight = segment.weight()
        with self._lock:
            self._bytes += weight - self._segments.pop(segment, 0)
            self._segments[segment] = weight
            while len(self._segments) > 1 and (
                len(self._segments) > self._most_segments or self._bytes > self._most_bytes
            ):
                oldest, its_weight = self._segments.popitem(last=False)
                self._bytes -= its_weight
                oldest.cool()

    def gone(self, segment: Coolable) -> None:
        """A segment was closed."""
        with self._lock:
            self._bytes -= self._segments.pop(segment, 0)


WARM = Warm(MOST_SEGMENTS, MOST_BYTES)
