"""One segment of a log: its files, and its indexes, kept up to date with what is in the `.log` file."""

from __future__ import annotations

import os
from bisect import bisect_left
from functools import cached_property
from typing import Self

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.index import (
    INT32_MAX,
    OFFSET_ENTRY,
    TIME_ENTRY,
    BadIndex,
    SparseIndex,
    TransactionIndex,
)
from eoslog.broker.log.segment.scan import DamagedBatch, batches, headers
from eoslog.broker.log.segment.warm import WARM
from eoslog.broker.ports.ports import File, FileSystem
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader

MAX_RELATIVE_OFFSET = 2**31 - 1  # the indexes keep offsets relative to the base in int32


class SegmentBase:
    """What a segment is made of; see `segment.Segment` for what is done with it.

    The sparse indexes of a segment that is not written to are read when first asked for, and made anew
    from the log if they do not fit.
    """

    def __init__(
        self, fs: FileSystem, directory: str, base_offset: int, interval: int, file: File, suffix: str = ""
    ) -> None:
        """`interval`: index.interval.bytes; `suffix`: of its files' names. Use `create` or `open`."""
        self._suffix = suffix
        self._fs = fs
        self._directory = directory
        self._interval = interval
        self.base_offset = base_offset
        self._file: File | None = file
        self._sealed = False
        self.checked = True  # whether what was there when it was opened has been; see `scrub`
        self.damage: str | None = None  # what the scrub found
        self.size = 0
        self.next_offset = base_offset
        self.transactions = TransactionIndex(fs, self._path(files.TXN_INDEX))
        self._since_entry = 0  # bytes since the last index entry
        self._newest: int | None = None  # largest timestamp, while the indexes are not loaded
        self._largest = (-1, -1)  # largest timestamp, last offset of the first batch that has it
        self._stop = (base_offset, 0)  # the last answer of `position_of`
        self._first_timestamp: int | None = None  # of the first batch, if it is known

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, interval: int, *, cleaned: bool = False
    ) -> Self:
        """Make an empty segment; the caller syncs the directory. Raises OSError.

        One that is `cleaned` is not in the log yet: see `take_place`.
        """
        ending = files.CLEANED if cleaned else ""
        names = [
            files.offset_name(base_offset, suffix) + ending
            for suffix in (files.INDEX, files.TIME_INDEX, files.LOG)
        ]
        for name in names:
            file = fs.open(os.path.join(directory, name), create=True)
            try:
                file.truncate(0)
            except BaseException:
                file.close()
                raise
            if name != names[-1]:
                file.close()
        segment = cls(fs, directory, base_offset, interval, file, ending)
        segment._begin()
        return segment

    @property
    def file(self) -> File:
        """The `.log` file; that of a sealed segment is opened when it is needed. Raises OSError."""
        if self._file is None:
            self._file = self._fs.open(self.path)
            WARM.used(self)
        return self._file

    @property
    def path(self) -> str:
        """Of the `.log` file."""
        return self._path(files.LOG)

    def seal(self) -> None:
        """Nothing is written any more and all is saved: open file and indexes may be let go."""
        self._sealed = True
        self.cool()

    def weight(self) -> int:
        """See `warm.Coolable`."""
        pair = self.__dict__.get("_indexes")
        return 16 * (len(pair[0]) + len(pair[1])) if pair else 0

    def cool(self) -> None:
        """See `warm.Coolable`. The file closes when nobody uses it any more."""
        if self._sealed:
            self._file = None
            self.__dict__.pop("_indexes", None)

    def take_place(self) -> None:
        """The files of a cleaned segment were renamed to those of a segment of the log."""
        self._suffix = ""
        for index, suffix in zip(self._indexes, (files.INDEX, files.TIME_INDEX), strict=True):
            index.path = self._path(suffix)
        self.transactions.path = self._path(files.TXN_INDEX)
        self.seal()

    def paths(self) -> list[str]:
        """The files a segment may have."""
        return [self._path(suffix) for suffix in files.OF_SEGMENT]

    @staticmethod
    def remove(fs: FileSystem, directory: str, base_offset: int) -> None:
        """Remove a segment's files, as far as they are there. Raises OSError."""
        for suffix in files.OF_SEGMENT:
            path = os.path.join(directory, files.offset_name(base_offset, suffix))
            if fs.exists(path):
                fs.remove(path)

    @classmethod
    def open(cls, fs: FileSystem, directory: str, base_offset: int, interval: int) -> Self:
        """Open what is there. `next_offset` is not known yet: set by `rebuild`, `trust` or the caller."""
        file = fs.open(os.path.join(directory, files.offset_name(base_offset, files.LOG)))
        segment = cls(fs, directory, base_offset, interval, file)
        segment.size, segment.checked = file.size(), False
        return segment

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, files.offset_name(self.base_offset, suffix) + self._suffix)

    # -- indexes -------------------------------------------------------------------------------

    @cached_property
    def _indexes(self) -> tuple[SparseIndex, SparseIndex]:
        pair = self._empty_indexes()
        try:
            pair[0].load(self._fs, self.size)
            pair[1].load(self._fs, self.next_offset - self.base_offset)
            if self.size and not pair[1]:
                raise BadIndex(f"{pair[1].path} is empty, its segment is not")
        except BadIndex:
            pair = self._empty_indexes()
            self._begin(pair)
            for position, header in headers(self.file, 0, self.size):
                self._note(header, position)
            self._note_largest()
        else:
            if pair[1]:
                self._largest = (pair[1].keys[-1], self.base_offset + pair[1].values[-1])
        return pair

    def _empty_indexes(self) -> tuple[SparseIndex, SparseIndex]:
        return (
            SparseIndex(self._path(files.INDEX), OFFSET_ENTRY),
            SparseIndex(self._path(files.TIME_INDEX), TIME_ENTRY),
        )

    def _begin(self, pair: tuple[SparseIndex, SparseIndex] | None = None) -> None:
        """Start with empty indexes."""
        pair = pair or self._empty_indexes()
        for index in pair:
            index.clear()
        self.__dict__["_indexes"] = pair
        self._since_entry = 0
        self._largest = (-1, -1)

    def _note(self, header: BatchHeader, position: int) -> None:
        """Bring the indexes up to date with a batch, written at `position` under its offset."""
        last = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._largest[0] and header.count:
            self._largest = (header.max_timestamp, last)
        if self._since_entry > self._interval:
            self._indexes[0].append(last - self.base_offset, position)
            self._note_largest()
            self._since_entry = 0
        self._since_entry += header.size

    def _note_largest(self) -> None:
        times = self._indexes[1]
        timestamp, offset = self._largest
        if timestamp >= 0 and (not times or timestamp > times.keys[-1]):
            times.append(timestamp, offset - self.base_offset)

    def restart(self) -> None:
        """Start to take the file as if it were written anew: `adopt` each batch, then `truncate`."""
        self._begin()
        self.size, self.next_offset = 0, self.base_offset

    def resume(self, point: int, least: int) -> bool:
        """As `restart`, but go on from a batch below offset `point` that the saved index names.

        What the index says of batches below the recovery point was synced before that was written. If it
        does not fit, or saves reading fewer than `least` bytes, the file is taken from its start. Answers
        whether an index was saved: it has to be replaced durably, lest it speaks of what was cut off.
        """
        pair, end = self._empty_indexes(), self.size
        self.restart()
        try:
            pair[0].load(self._fs, end)
            pair[1].load(self._fs, INT32_MAX)
            offsets, times = pair
            if not len(offsets):
                return False
            offsets.truncate(bisect_left(offsets.keys, point - self.base_offset))
            if not offsets or offsets.values[-1] < least:
                return True
            position, last = offsets.values[-1], self.base_offset + offsets.keys[-1]
            _, header, _ = next(batches(self.file, position, end, HEADER_SIZE))
        except (BadIndex, DamagedBatch):
            return True
        if header.last_offset != last:
            return True
        offsets.truncate(len(offsets) - 1)  # `adopt` puts it in again
        times.truncate(bisect_left(times.values, header.base_offset - self.base_offset))
        self.__dict__["_indexes"] = pair
        self.size, self.next_offset, self._since_entry = position, header.base_offset, self._interval + 1
        self._largest = (times.keys[-1], self.base_offset + times.values[-1]) if times else (-1, -1)
        return True

    def rewrite_indexes(self) -> None:
        """Have the next `save_indexes` write all of them."""
        for index in self._indexes:
            index.rewrite()

    def adopt(self, header: BatchHeader) -> None:
        """Take over the batch that lies in the file at `size`."""
        self._note(header, self.size)
        self.size += header.size
        self.next_offset = header.next_offset

    def trust(self) -> None:
        """Find the end of the segment from its indexes and the headers after their last entry.

        For a log that was closed in order. Raises DamagedBatch.
        """
        if not self.size:
            self._begin()
            return
        self.next_offset = self.base_offset + MAX_RELATIVE_OFFSET + 1
        offsets, times = self._indexes
        start = offsets.values[-1] if offsets else 0
        self.next_offset, largest = self.base_offset, self._largest
        for _, header in headers(self.file, start, self.size):
            self.next_offset = header.next_offset
            if header.max_timestamp > largest[0] and header.count:
                largest = (header.max_timestamp, header.last_offset)
        self._largest, self._since_entry = largest, self.size - start
        if times and self.base_offset + times.values[-1] >= self.next_offset:
            self._begin()
            for position, header in headers(self.file, 0, self.size):
                self._note(header, position)

    def save_indexes(self) -> list[File]:
        """Write the sparse indexes; answers the files that have to be synced and closed. Raises OSError.

        The time index gets the segment's largest timestamp as its last entry, as Kafka does at a roll.
        """
        self._note_largest()
        saved = [index.save(self._fs) for index in self._indexes]
        return [file for file in saved if file is not None]

    def retire(self) -> None:
        """It is not in the log any more. Its file closes when nobody is to sync it any more: one that was
        rolled a moment ago, and deleted, may have that before it."""
        self.seal()
        self.close()

    def close(self) -> None:
        """Close the files; nothing is saved."""
        self.transactions.close()
        if self._sealed:
            WARM.gone(self)
        if self._file is not None:
            self._file.close()
