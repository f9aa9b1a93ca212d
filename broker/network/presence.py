"""Tracks whether a client is still there: when it last sent something, and whether it reads its answers."""

from __future__ import annotations


class Presence:
    """Times of one connection, in monotonic seconds."""

    __slots__ = ("_heard", "_read", "_unread")

    def __init__(self, now: float) -> None:
        self._heard = self._read = now
        self._unread = 0

    def heard(self, now: float) -> None:
        """Note that bytes were received."""
        self._heard = now

    def look(self, now: float, unread: int) -> None:
        """Note, once in a while, that `unread` bytes of answers wait to be read."""
        if not unread or unread < self._unread:
            self._read = now
        self._unread = unread

    def deaf(self, now: float) -> float:
        """Seconds in which the client has read none of the waiting answers."""
        return now - self._read

    def silent(self, now: float) -> float:
        """Seconds in which no byte was received."""
        return now - self._heard

    def idle(self, now: float) -> float:
        """Seconds in which the client has neither sent nor read anything."""
        return min(self.silent(now), self.deaf(now)) if self._unread else self.silent(now)
