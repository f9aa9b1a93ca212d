"""The two sparse indexes of one segment, kept up to date with the batches that are added to it."""

from __future__ import annotations

from bisect import bisect_left

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from eoslog.broker.log.segment.segment_files import SegmentFiles
from eoslog.broker.ports.ports import File
from eoslog.protocol.batch import BatchHeader


class SegmentIndexes:
    """`offsets`: last offset to position. `times`: timestamp to offset. Offsets are relative to the base.

    `largest`: the largest timestamp, and the last offset of the first batch that has it.
    """

    def __init__(self, place: SegmentFiles, interval: int) -> None:
        """Begin with empty indexes, whatever is in their files. `interval`: index.interval.bytes."""
        self._fs, self._base, self._interval = place.fs, place.base_offset, interval
        self.offsets = SparseIndex(place.path(files.INDEX), OFFSET_ENTRY)
        self.times = SparseIndex(place.path(files.TIME_INDEX), TIME_ENTRY)
        self.largest = (-1, -1)
        self._since_entry = 0  # bytes since the last index entry
        self.rewrite()

    def __len__(self) -> int:
        return len(self.offsets) + len(self.times)

    def note(self, header: BatchHeader, position: int) -> None:
        """Add a batch that was written at `position`, with its offset set."""
        entry_due = self._since_entry > self._interval
        if entry_due:
            self._since_entry = 0
        self.pass_over(header)
        if entry_due:
            self.offsets.append(header.last_offset - self._base, position)
            self.note_largest()

    def pass_over(self, header: BatchHeader) -> None:
        """Count a batch without giving it an entry."""
        if header.max_timestamp > self.largest[0] and header.count:
            self.largest = (header.max_timestamp, header.last_offset)
        self._since_entry += header.size

    def note_largest(self) -> None:
        """Add the largest timestamp to the time index as its last entry, as Kafka does at a roll."""
        timestamp, offset = self.largest
        if timestamp >= 0 and (not self.times or timestamp > self.times.keys[-1]):
            self.times.append(timestamp, offset - self._base)

    def load(self, size: int, offsets: int) -> None:
        """Read the files of a segment of `size` bytes and `offsets` offsets. Raises BadIndex."""
        self.offsets.load(self._fs, size)
        self.times.load(self._fs, offsets)
        self._take_largest()

    def begin_tail(self) -> int:
        """The position of the last entry's batch. After a `load`, `pass_over` it and all later batches."""
        self._since_entry = 0
        return self.offsets.values[-1] if self.offsets else 0

    def cut_at(self, point: int) -> tuple[int, int] | None:
        """Keep the entries of batches that end below offset `point`.

        Returns the position and last offset of the last such batch, None if there is none.
        """
        self.offsets.truncate(bisect_left(self.offsets.keys, point - self._base))
        return (self.offsets.values[-1], self._base + self.offsets.keys[-1]) if self.offsets else None

    def go_on_at(self, base_offset: int) -> None:
        """Drop the last entry, whose batch begins at `base_offset`; `note` adds it again."""
        self.offsets.truncate(len(self.offsets) - 1)
        self.times.truncate(bisect_left(self.times.values, base_offset - self._base))
        self._since_entry = self._interval + 1
        self.largest = (-1, -1)
        self._take_largest()

    def _take_largest(self) -> None:
        if self.times:
            self.largest = (self.times.keys[-1], self._base + self.times.values[-1])

    def renamed(self, place: SegmentFiles) -> None:
        """Note that the files were renamed."""
        self.offsets.path, self.times.path = place.path(files.INDEX), place.path(files.TIME_INDEX)

    def rewrite(self) -> None:
        """Make the next `save` write all: the files' content is not known, or is wrong."""
        self.offsets.rewrite()
        self.times.rewrite()

    def save(self) -> list[File]:
        """Write the files. Returns those that must be synced and closed. Raises OSError."""
        self.note_largest()
        saved = [index.save(self._fs) for index in (self.offsets, self.times)]
        return [file for file in saved if file is not None]
