"""The indexes beside a segment, in Kafka's file formats; kept in memory, saved on request.

`.index`      8 bytes an entry: last offset of a batch relative to the segment's base, its byte position
`.timeindex`  12 bytes: largest timestamp so far, relative last offset of the first batch that has it
`.txnindex`   34 bytes: version 0, producer id, first offset, offset of the abort marker, last stable offset

The first two are sparse: about one entry per index.interval.bytes. All three can be rebuilt from the log.
"""

from __future__ import annotations

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import lt

from eoslog.broker.log import files
from eoslog.broker.log.files import SegmentFiles
from eoslog.broker.ports import File, FileSystem, ShortWrite
from eoslog.broker.rules.producer_state import AbortedTransaction
from eoslog.protocol.batch import BatchHeader

INT32_MAX = 2**31 - 1
OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
TXN_ENTRY = struct.Struct(">hqqqq")


class BadIndex(ValueError):
    """An index file is invalid and must be rebuilt."""


def last_entry(fs: FileSystem, path: str, entry: struct.Struct) -> tuple[int, int] | None:
    """The last pair of an index file, read alone; None if the file is missing, empty or torn."""
    if not fs.exists(path):
        return None
    file = fs.open(path)
    try:
        size = file.size()
        if not size or size % entry.size:
            return None
        key, value = entry.unpack(file.read(entry.size, size - entry.size))
    finally:
        file.close()
    return key, value


class SparseIndex:
    """Pairs of (key, value), both ascending: `.index` or `.timeindex`, depending on the entry's layout."""

    def __init__(self, path: str, entry: struct.Struct) -> None:
        self.path = path
        self._entry = entry
        self.keys = array("q")
        self.values = array("q")
        self._saved = 0  # number of entries in the file

    def __len__(self) -> int:
        return len(self.keys)

    def append(self, key: int, value: int) -> None:
        """Add a pair; the key must be above the last one."""
        self.keys.append(key)
        self.values.append(value)

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last pair whose key is not above `key`."""
        slot = bisect_right(self.keys, key) - 1
        return None if slot < 0 else (self.keys[slot], self.values[slot])

    def after_value(self, value: int) -> int | None:
        """The key of the first pair whose value is `value` or above."""
        slot = bisect_left(self.values, value)
        return None if slot == len(self.values) else self.keys[slot]

    def truncate(self, count: int) -> None:
        """Keep only the first `count` pairs."""
        del self.keys[count:]
        del self.values[count:]
        self._saved = min(self._saved, count)

    def rewrite(self) -> None:
        """Make the next `save` write all entries: the file's content is not known."""
        self._saved = -1

    def load(self, fs: FileSystem, value_below: int) -> None:
        """Read the file. Raises BadIndex if it is missing, torn, not ascending, or has a value too high."""
        try:
            file = fs.open(self.path)
        except FileNotFoundError:
            raise BadIndex(f"{self.path} is missing") from None
        try:
            data = file.read(file.size(), 0)
        finally:
            file.close()
        if len(data) % self._entry.size:
            raise BadIndex(f"{self.path} has {len(data)} bytes, not a multiple of {self._entry.size}")
        columns = list(zip(*self._entry.iter_unpack(data), strict=True)) or [(), ()]
        keys, values = array("q", columns[0]), array("q", columns[1])
        fits = all(map(_rises, columns)) and (not values or (values[0] >= 0 and values[-1] < value_below))
        if not fits:
            raise BadIndex(f"{self.path} does not fit its segment")
        self.keys, self.values, self._saved = keys, values, len(keys)

    def save(self, fs: FileSystem) -> File | None:
        """Bring the file up to date. Returns it, open, if it must be synced and closed. Raises OSError."""
        if self._saved == len(self.keys) and fs.exists(self.path):
            return None
        start = max(self._saved, 0)
        data = b"".join(map(self._entry.pack, self.keys[start:], self.values[start:]))
        position = start * self._entry.size
        file = fs.open(self.path, create=True)
        try:
            file.truncate(position)
            if data and file.write([data], position) != len(data):
                raise ShortWrite(f"{self.path}: wrote only part of {len(data)} bytes (disk full?)")
        except BaseException:
            file.close()
            raise
        self._saved = len(self.keys)
        return file


def _rises(column: Sequence[int]) -> bool:
    """Whether each number is above the one before. Few calls, as an index may have a million entries."""
    return all(map(lt, column, column[1:]))


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, by offset of the marker.

    Each entry is written to the file when it is added; the first one creates the file, as in Kafka. Entries
    must be synced before a snapshot of the producers is written: the log before a snapshot is not read again.
    """

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        self._fs = fs
        self._file: File | None = None
        self._dirty = False
        self.entries: list[AbortedTransaction] = []

    @property
    def size(self) -> int:
        """Bytes of the entries."""
        return len(self.entries) * TXN_ENTRY.size

    def append(self, entry: AbortedTransaction) -> None:
        """Add an entry to file and memory. Raises OSError."""
        if self._file is None:
            self._file = self._fs.open(self.path, create=True)
        self._dirty = True
        if self._file.write([TXN_ENTRY.pack(0, *entry)], self.size) != TXN_ENTRY.size:
            raise ShortWrite(f"{self.path}: wrote only part of an entry (disk full?)")
        self.entries.append(entry)

    def sync(self) -> None:
        """Make the file and its name in the directory durable, if anything has changed. Raises OSError."""
        if self._dirty and self._file is not None:
            self._dirty = False  # before the sync, as the event loop may add more during it
            try:
                self._file.sync()
                self._fs.sync_dir(os.path.dirname(self.path))
            except OSError:
                self._dirty = True
                raise

    def load(self, below: int, ended: bool) -> None:
        """Read the entries whose marker is below offset `below` and cut off the others.

        The process before this one may have been killed: what it has written is not on the disk until `sync`.
        `ended`: the segment ends at `below` or before, so no crash explains other entries. Raises BadIndex.
        """
        self.entries = []
        if not self._fs.exists(self.path):
            return
        file = self._file = self._file or self._fs.open(self.path)
        self._dirty = True
        data = file.read(file.size(), 0)
        whole = len(data) - len(data) % TXN_ENTRY.size
        for version, *values in TXN_ENTRY.iter_unpack(data[:whole]):
            entry = AbortedTransaction(*values)
            if entry.last_offset >= below:
                break
            if (
                version
                or entry.first_offset >= entry.last_offset  # last: the marker; both 0 if a page was lost
                or (self.entries and entry.last_offset <= self.entries[-1].last_offset)
            ):
                raise BadIndex(f"{self.path} has a wrong entry: {entry}")
            self.entries.append(entry)
        if self.size < len(data):
            if ended:
                raise BadIndex(f"{self.path} has more than the aborts of its segment")
            file.truncate(self.size)

    def clear(self) -> None:
        """Forget all entries, in memory and in the file. Raises OSError."""
        self.entries = []
        if self._file is not None or self._fs.exists(self.path):
            self._file = self._file or self._fs.open(self.path)
            self._file.truncate(0)
            self._dirty = True

    def collect(self, offset: int, upper: int) -> tuple[list[tuple[int, int]], bool]:
        """(producer id, first offset) of the aborted transactions with last >= `offset` and first < `upper`.

        And whether these are all: False if later segments may have more.
        """
        found = []
        start = bisect_left(self.entries, offset, key=lambda entry: entry.last_offset)
        for entry in self.entries[start:]:
            if entry.first_offset < upper:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= upper:
                return found, True
        return found, False

    def close(self) -> None:
        """Close the file, if one is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


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
        try:
            saved = [index.save(self._fs) for index in (self.offsets, self.times)]
        except OSError:
            self.rewrite()  # what was written is not synced
            raise
        return [file for file in saved if file is not None]
