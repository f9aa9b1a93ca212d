"""One segment of a log: the `.log` file, its indexes, and where in it an offset or a time lies."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property

from eoslog.broker.log import files
from eoslog.broker.log.index import OFFSET_ENTRY, TIME_ENTRY, BadIndex, SparseIndex, TransactionIndex
from eoslog.broker.log.scan import BODIES_CHUNK, batches, headers
from eoslog.broker.ports import Buffer, File, FileSystem
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.plain_records import iter_records

MAX_RELATIVE_OFFSET = 2**31 - 1  # the indexes keep offsets relative to the base in int32


class Segment:
    """Batches of ascending offsets from `base_offset` up to `next_offset`, in `size` bytes.

    The sparse indexes of a segment that is not written to are read when first asked for, and made anew
    from the log if they do not fit.
    """

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, interval: int, file: File) -> None:
        """`interval`: index.interval.bytes. Use `create` or `open`."""
        self._fs = fs
        self._directory = directory
        self._interval = interval
        self.base_offset = base_offset
        self.file = file
        self.size = 0
        self.next_offset = base_offset
        self.transactions = TransactionIndex(fs, self._path(files.TXN_INDEX))
        self._since_entry = 0  # bytes since the last index entry
        self._largest = (-1, -1)  # largest timestamp, last offset of the first batch that has it
        self._stop = (base_offset, 0)  # the last answer of `position_of`

    @classmethod
    def create(cls, fs: FileSystem, directory: str, base_offset: int, interval: int) -> Segment:
        """Make an empty segment; the caller syncs the directory. Raises OSError."""
        names = [
            files.offset_name(base_offset, suffix) for suffix in (files.INDEX, files.TIME_INDEX, files.LOG)
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
        segment = cls(fs, directory, base_offset, interval, file)
        segment._begin()
        return segment

    @staticmethod
    def remove(fs: FileSystem, directory: str, base_offset: int) -> None:
        """Remove a segment's files, as far as they are there. Raises OSError."""
        for suffix in (files.LOG, files.INDEX, files.TIME_INDEX, files.TXN_INDEX):
            path = os.path.join(directory, files.offset_name(base_offset, suffix))
            if fs.exists(path):
                fs.remove(path)

    @classmethod
    def open(cls, fs: FileSystem, directory: str, base_offset: int, interval: int) -> Segment:
        """Open what is there. `next_offset` is not known yet: set by `rebuild`, `trust` or the caller."""
        file = fs.open(os.path.join(directory, files.offset_name(base_offset, files.LOG)))
        segment = cls(fs, directory, base_offset, interval, file)
        segment.size = file.size()
        return segment

    def _path(self, suffix: str) -> str:
        return os.path.join(self._directory, files.offset_name(self.base_offset, suffix))

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
        if header.max_timestamp > self._largest[0]:
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

    def adopt(self, header: BatchHeader) -> None:
        """Take over the batch that lies in the file at `size`."""
        self._note(header, self.size)
        self.size += header.size
        self.next_offset = header.next_offset

    def trust(self) -> None:
        """Find the end of the segment from its indexes and the headers after their last entry.

        For a log that was closed in order. Raises DamagedBatch.
        """
        self.next_offset = self.base_offset + MAX_RELATIVE_OFFSET + 1
        offsets, times = self._indexes
        start = offsets.values[-1] if offsets else 0
        self.next_offset, largest = self.base_offset, self._largest
        for _, header in headers(self.file, start, self.size):
            self.next_offset = header.next_offset
            if header.max_timestamp > largest[0]:
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

    # -- writing -------------------------------------------------------------------------------

    def fits(self, size: int, last_offset: int, limit: int) -> bool:
        """Whether a batch may be added, with a segment limit of `limit` bytes."""
        if self.size == 0:
            return True
        return self.size + size <= limit and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def append(self, parts: Sequence[Buffer], header: BatchHeader) -> None:
        """Add a batch, its header already as stored, in one write. Raises OSError; then nothing was added.

        If even that fails, `LostFile` is raised: the file's content is not known any more.
        """
        position = self.size
        try:
            written = self.file.write(parts, position)
            if written != header.size:
                raise OSError(f"wrote {written} of {header.size} bytes (disk full?)")
        except OSError as error:
            self._cut(position, error)
            raise
        self.size = position + header.size
        self.next_offset = header.next_offset
        self._note(header, position)

    def _cut(self, position: int, cause: OSError) -> None:
        try:
            self.file.truncate(position)
        except OSError as error:
            raise LostFile(
                f"{self.file.path}: writing at position {position} failed ({cause}), and so did "
                f"truncating it back ({error})"
            ) from error

    # -- finding -------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that holds `offset`, or the next one if none does."""
        if offset >= self.next_offset:
            return None
        entry = self._indexes[0].floor(offset - self.base_offset)
        start = entry[1] if entry else 0
        if self._stop[0] <= offset and self._stop[1] > start:
            start = self._stop[1]
        for position, header in headers(self.file, start, self.size):
            if header.last_offset >= offset:
                return position, header
        return None

    def position_of(self, offset: int) -> int:
        """Position of the first byte that is not below `offset`, which has to be a batch's first."""
        if offset >= self.next_offset:
            return self.size
        if self._stop[0] != offset:
            found = self.locate(offset)
            self._stop = (offset, found[0] if found else self.size)
        return self._stop[1]

    def upper_offset(self, position: int) -> int | None:
        """An offset that no record before file position `position` reaches, None if the index has none."""
        relative = self._indexes[0].after_value(position)
        return None if relative is None else self.base_offset + relative

    # -- times ---------------------------------------------------------------------------------

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of any record, -1 if there is none."""
        return self._load_largest()[0]

    def _load_largest(self) -> tuple[int, int]:
        self._indexes  # noqa: B018  loading sets what a sealed segment knows
        return self._largest

    def batches_from(
        self, offset: int, chunk: int = BODIES_CHUNK
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches from the one that holds `offset`, CRC checked. Raises DamagedBatch."""
        found = self.locate(offset)
        if found is not None:
            for _, header, data in batches(self.file, found[0], self.size, chunk):
                yield header, data

    def first_at_or_after(self, timestamp: int, below: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record of at least `timestamp` and an offset under `below`."""
        if self.largest_timestamp < timestamp:
            return None
        entry = self._indexes[1].floor(timestamp)
        found = self.locate(self.base_offset + entry[1]) if entry else (0, None)
        if found is None:
            return None
        for position, header in headers(self.file, found[0], self.size):
            if header.base_offset >= below:
                return None
            if header.max_timestamp >= timestamp:
                record = self._record_from(position, header, timestamp)
                if record is not None:
                    return record
        return None

    def _record_from(self, position: int, header: BatchHeader, timestamp: int) -> tuple[int, int] | None:
        data = self.file.read(header.size, position)
        for record in iter_records(data, 0, header):
            if record.timestamp >= timestamp:
                return record.timestamp, record.offset
        return None

    def largest(self, below: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp among those under `below`."""
        timestamp, offset = self._load_largest()
        if offset < below:
            return self.first_at_or_after(timestamp, below) if timestamp >= 0 else None
        best = max((h.max_timestamp for _, h in headers(self.file, 0, self.position_of(below))), default=-1)
        return self.first_at_or_after(best, below) if best >= 0 else None

    def close(self) -> None:
        """Close the files; nothing is saved."""
        self.transactions.close()
        self.file.close()


class LostFile(OSError):
    """A write failed and could not be taken back: what the file holds is not known any more."""
