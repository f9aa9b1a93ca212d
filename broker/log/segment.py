"""One segment of a log: the `.log` file, its indexes, and where in it an offset or a time lies."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property

from eoslog.broker.log import files
from eoslog.broker.log.index import (
    INT32_MAX,
    OFFSET_ENTRY,
    TIME_ENTRY,
    BadIndex,
    SparseIndex,
    TransactionIndex,
    last_entry,
)
from eoslog.broker.log.scan import BODIES_CHUNK, DamagedBatch, batches, headers
from eoslog.broker.log.warm import WARM
from eoslog.broker.ports import Buffer, File, FileSystem
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader
from eoslog.protocol.plain_records import iter_records

MAX_RELATIVE_OFFSET = 2**31 - 1  # the indexes keep offsets relative to the base in int32


class Segment:
    """Batches of ascending offsets from `base_offset` up to `next_offset`, in `size` bytes.

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
    ) -> Segment:
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
    def open(cls, fs: FileSystem, directory: str, base_offset: int, interval: int) -> Segment:
        """Open what is there. `next_offset` is not known yet: set by `rebuild`, `trust` or the caller."""
        file = fs.open(os.path.join(directory, files.offset_name(base_offset, files.LOG)))
        segment = cls(fs, directory, base_offset, interval, file)
        segment.size = file.size()
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

    # -- writing -------------------------------------------------------------------------------

    def fits(self, size: int, last_offset: int, limit: int) -> bool:
        """Whether a batch may be added, with a segment limit of `limit` bytes."""
        if self.size == 0:
            return True
        return self.size + size <= limit and last_offset - self.base_offset <= MAX_RELATIVE_OFFSET

    def spans(self, timestamp: int, limit: int) -> bool:
        """Whether `timestamp` is more than `limit` ms after that of the first batch. Raises OSError."""
        if self.size == 0:
            return False
        if self._first_timestamp is None:
            self._first_timestamp = self.oldest()
        return 0 <= self._first_timestamp < timestamp - limit

    def oldest(self) -> int:
        """The largest timestamp of the first batch, -1 if there is none. Raises DamagedBatch, OSError."""
        first = next(headers(self.file, 0, self.size, HEADER_SIZE), None)
        return first[1].max_timestamp if first else -1

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
        if not position:
            self._first_timestamp = header.max_timestamp
        self.size = position + header.size
        self.next_offset = header.next_offset
        self._note(header, position)

    def _cut(self, position: int, cause: OSError) -> None:
        try:
            self.file.truncate(position)
        except OSError as error:
            raise LostFile(
                f"{self.path}: writing at position {position} failed ({cause}), and so did "
                f"truncating it back ({error})"
            ) from error

    # -- finding -------------------------------------------------------------------------------

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the batch that holds `offset`, or the next one if none does."""
        if offset >= self.next_offset:
            return None
        entry = self._indexes[0].floor(offset - self.base_offset)
        if self._sealed:
            WARM.used(self)
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

    def newest(self) -> int:
        """The largest timestamp of any record, -1 if there is none. Loads no index for it. Raises OSError."""
        if "_indexes" not in self.__dict__ and self._newest is None:
            self._newest = self._saved_newest()
        return self._load_largest()[0] if self._newest is None else self._newest

    def _saved_newest(self) -> int | None:
        """What the last entry of the time index says, which a sealed segment's index ends with."""
        last = last_entry(self._fs, self._path(files.TIME_INDEX), TIME_ENTRY)
        fits = last is not None and last[0] >= 0 and 0 <= last[1] < self.next_offset - self.base_offset
        return last[0] if last is not None and fits else None

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

    def first_at_or_after(self, timestamp: int, start: int, below: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record of at least `timestamp`, from `start`, under `below`."""
        if self.newest() < timestamp:
            return None
        entry = self._indexes[1].floor(timestamp)
        found = self.locate(max(start, self.base_offset + entry[1] if entry else self.base_offset))
        if found is None:
            return None
        for position, header in headers(self.file, found[0], self.size):
            if header.base_offset >= below:
                return None
            if header.max_timestamp >= timestamp:
                record = self._record_from(position, header, timestamp, start)
                if record is not None:
                    return record
        return None

    def _record_from(
        self, position: int, header: BatchHeader, timestamp: int, start: int
    ) -> tuple[int, int] | None:
        data = self.file.read(header.size, position)
        for record in iter_records(data, 0, header):
            if record.timestamp >= timestamp and record.offset >= start:
                return record.timestamp, record.offset
        return None

    def largest(self, start: int, below: int) -> tuple[int, int] | None:
        """As `first_at_or_after`, of the largest timestamp there is from `start` on, under `below`."""
        best, offset = self._load_largest()
        if not start <= offset < below:
            end = self.position_of(below)
            inside = (h for _, h in headers(self.file, 0, end) if h.last_offset >= start and h.count)
            best = max((header.max_timestamp for header in inside), default=-1)
        return self.first_at_or_after(best, start, below) if best >= 0 else None

    def close(self) -> None:
        """Close the files; nothing is saved."""
        self.transactions.close()
        if self._sealed:
            WARM.gone(self)
        if self._file is not None:
            self._file.close()


class LostFile(OSError):
    """A write failed and could not be taken back: what the file holds is not known any more."""
