"""Files that a log no longer needs: renamed to `.deleted`, removed some time later or at the next start."""

from __future__ import annotations

from collections.abc import Iterable

from eoslog.broker.log.partition.log import Log


class DiscardedSegments:
    """The discarded files of one log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._files: list[tuple[int, str]] = []  # when a file may go (broker's clock, ms), and its path

    def add(self, paths: Iterable[str], now_ms: int) -> None:
        """Add files that were renamed now."""
        due = now_ms + self._log.settings.file_delete_delay_ms
        self._files += [(due, path) for path in paths]

    def remove(self, now_ms: int) -> None:
        """Remove the files that were renamed at least file.delete.delay.ms ago. Raises OSError."""
        if self._log.closed:
            return
        while self._files and self._files[0][0] <= now_ms:
            path = self._files[0][1]
            if self._log.fs.exists(path):
                self._log.fs.remove(path)
            del self._files[0]
