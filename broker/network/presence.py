"""Whether somebody is at the other end of a connection: when it was heard, and whether it reads."""

from __future__ import annotations


class Presence:
    """Times of one connection, in monotonic seconds."""

    __slots__ = ("_heard", "_read", "_unread")

    def __init__(self, now: float) -> None:
        self._heard = self._read = now
        self._unread = 0

    def heard(self, now: float) -> None:
        """Bytes came."""
        self._heard = now

    def look(self, now: float, unread: int) -> None:
        """Once in a while: so many bytes of answers wait to be read."""
        if not unread or unread < self._unread:
            self._read = now
        self._unread = unread

    def deaf(self, now: float) -> float:
        """Seconds without any of the answers read that wait."""
        return now - self._read

    def silent(self, now: float) -> float:
        """Seconds without a byte."""
        return now - self._heard

    def idle(self, now: float) -> float:
        """Seconds without either."""
        return min(self.silent(now), self.deaf(now)) if self._unread else self.silent(now)
