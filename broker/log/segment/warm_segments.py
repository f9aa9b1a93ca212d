"""Keeps the file open and the indexes in memory only for the sealed segments that were read most recently.

So logs of any age and length take a bounded number of open files and a bounded amount of memory. A segment
that was closed is opened again on its next use. There is one cache for the process, as the bounds are the
process's.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Protocol

MOST_SEGMENTS = 256
MOST_BYTES = 48 << 20


class ClosableSegment(Protocol):
    """A segment as the cache sees it."""

    def weight(self) -> int:
        """Bytes of its indexes in memory, about."""

    def cool(self) -> None:
        """Drop the file and the indexes. Code that is using them now may continue to do so."""


class WarmSegments:
    """The cached segments, in the order of their last use."""

    def __init__(self, most_segments: int, most_bytes: int) -> None:
        self._most_segments, self._most_bytes = most_segments, most_bytes
        self._segments: OrderedDict[ClosableSegment, int] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._segments)

    def used(self, segment: ClosableSegment) -> None:
        """Note that a segment has opened its file, loaded its indexes, or was read again."""
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

    def gone(self, segment: ClosableSegment) -> None:
        """Drop a segment that was closed."""
        with self._lock:
            self._bytes -= self._segments.pop(segment, 0)


WARM = WarmSegments(MOST_SEGMENTS, MOST_BYTES)
