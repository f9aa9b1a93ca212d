"""Compares a segment's sparse indexes with its batches as these are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from eoslog.broker.log.segment import files
from eoslog.commands.log_files import offset_entries, time_entries, with_suffix
from eoslog.protocol.batch import BatchHeader

Entries = list[tuple[int, int]]


class OffsetIndex:
    """An `.index`: each entry is a batch's position and an offset in it."""

    def __init__(self, segment: str) -> None:
        """`segment`: the path of the `.log`. Raises ValueError if the index is not valid, OSError."""
        self.path = with_suffix(segment, files.INDEX)
        self._entries = _read(self.path, offset_entries)
        self._next = 0

    def batch(self, position: int, header: BatchHeader) -> Iterator[str]:
        """Compare with the segment's next batch. Yields what is wrong."""
        while self._next < len(self._entries) and self._entries[self._next][1] <= position:
            offset, at = self._entries[self._next]
            self._next += 1
            if at != position:
                yield f"offset {offset} is listed at position {at}, where no batch begins"
            elif not header.base_offset <= offset <= header.last_offset:
                yield (
                    f"offset {offset} is listed at position {at}, where the batch of offset "
                    f"{header.base_offset} is"
                )

    def rest(self, *, complete: bool) -> Iterator[str]:
        """Entries left when the segment has ended. Missing entries only make reads slower."""
        for offset, at in self._entries[self._next :]:
            yield f"offset {offset} is listed at position {at}, after the segment's end"


class TimeIndex:
    """A `.timeindex`: each entry is the largest time so far, and an offset of the first batch that has it."""

    def __init__(self, segment: str) -> None:
        """See `OffsetIndex`."""
        self.path = with_suffix(segment, files.TIME_INDEX)
        self._entries = _read(self.path, time_entries)
        self._next = 0
        self._largest = -1

    def batch(self, position: int, header: BatchHeader) -> Iterator[str]:
        """Compare with the segment's next batch. Yields what is wrong."""
        before = self._largest
        if header.count:
            self._largest = max(before, header.max_timestamp)
        while self._next < len(self._entries) and self._entries[self._next][1] <= header.last_offset:
            timestamp, offset = self._entries[self._next]
            self._next += 1
            if timestamp > self._largest:
                yield f"time {timestamp} is listed at offset {offset}, whose batch is older"
            elif timestamp <= before:
                yield f"time {timestamp} is listed as first at offset {offset}, but {before} came before"

    def rest(self, *, complete: bool) -> Iterator[str]:
        """Entries left when the segment has ended. `complete`: the last entry must have the largest time,
        which retention relies on.
        """
        for timestamp, offset in self._entries[self._next :]:
            yield f"time {timestamp} is listed at offset {offset}, after the segment's end"
        if complete and self._entries and self._entries[-1][0] < self._largest:
            yield f"it ends with time {self._entries[-1][0]}, but the segment has {self._largest}"


def _read(path: str, read: Callable[[str], Iterable[tuple[int, int]]]) -> Entries:
    """The entries; none if the file is missing: the broker makes it again."""
    try:
        return list(read(path))
    except FileNotFoundError:
        return []
