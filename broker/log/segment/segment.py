"""One segment of a log: batches in a file, the indexes beside it, and the search for an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Self

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.index import (
    INT32_MAX,
    TIME_ENTRY,
    BadIndex,
    SegmentIndexes,
    TransactionIndex,
    last_entry,
)
from eoslog.broker.log.segment.scan import BODIES_CHUNK, DamagedBatch, batches, headers
from eoslog.broker.log.segment.segment_files import SegmentFiles
from eoslog.broker.log.segment.warm_segments import WARM
from eoslog.broker.ports.ports import Buffer, File, FileSystem
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader

MAX_RELATIVE_OFFSET = 2**31 - 1  # the indexes keep offsets relative to the base in int32


class Segment:
    """Batches of ascending offsets from `base_offset` up to `next_offset`, in `size` bytes.

    The sparse indexes of a segment that is not written to are read on first use, and rebuilt from the log if
    they do not fit it.
    """

    def __init__(self, place: SegmentFiles, interval: int, file: File) -> None:
        """`interval`: index.interval.bytes; `file`: the `.log` file. Use `create` or `open`."""
        self._place, self._interval = place, interval
        self.base_offset = place.base_offset
        self._file: File | None = file
        self._indexes: SegmentIndexes | None = None
        self._sealed = False
        self.checked = True  # whether all that was there at opening is checked; see `scrub`
        self.damage: str | None = None  # what the scrub found
        self.size = 0
        self.next_offset = place.base_offset
        self.transactions = TransactionIndex(place.fs, place.path(files.TXN_INDEX))
        self._newest: int | None = None  # largest timestamp, while the indexes are not loaded
        self._stop = (place.base_offset, 0)  # the last result of `position_of`
        self._first_timestamp: int | None = None  # of the first batch, if it is known

    @classmethod
    def create(
        cls, fs: FileSystem, directory: str, base_offset: int, interval: int, *, cleaned: bool = False
    ) -> Self:
        """Create an empty segment. The caller syncs the directory. Raises OSError.

        `cleaned`: written by compaction, not in the log yet; see `take_place`.
        """
        place = SegmentFiles(fs, directory, base_offset, files.CLEANED if cleaned else "")
        segment = cls(place, interval, place.create())
        segment._indexes = segment._empty_indexes()
        return segment

    @classmethod
    def open(cls, fs: FileSystem, directory: str, base_offset: int, interval: int) -> Self:
        """Open a segment that exists. `next_offset` is not known: `resume`, `trust` or the caller sets it."""
        place = SegmentFiles(fs, directory, base_offset)
        file = fs.open(place.path(files.LOG))
        segment = cls(place, interval, file)
        segment.size, segment.checked = file.size(), False
        return segment

    @property
    def file(self) -> File:
        """The `.log` file. A sealed segment opens it when it is needed. Raises OSError."""
        file = self._file
        if file is None:
            file = self._file = self._place.fs.open(self.path)
            WARM.used(self)
        return file

    @property
    def path(self) -> str:
        """The path of the `.log` file."""
        return self._place.path(files.LOG)

    def paths(self) -> list[str]:
        """The paths of all files that a segment may have."""
        return self._place.paths()

    def remove(self) -> None:
        """Remove the files that exist. Raises OSError."""
        self._place.remove()

    def seal(self) -> None:
        """Note that nothing more is written and all is saved: file and indexes may be closed."""
        self._sealed = True
        self.cool()

    def weight(self) -> int:
        """See `warm.Coolable`."""
        indexes = self._indexes
        return 16 * len(indexes) if indexes is not None else 0

    def cool(self) -> None:
        """See `warm.Coolable`. The file closes when its last user drops it."""
        if self._sealed:
            self._file = self._indexes = None

    def take_place(self) -> None:
        """Note that the files of this cleaned segment now have the names of a segment of the log."""
        self._place.renamed()
        self.indexes.renamed(self._place)
        self.transactions.path = self._place.path(files.TXN_INDEX)
        self.seal()

    def retire(self) -> None:
        """Let go of a segment that has left the log. Its `.log` file closes after the last sync of it,
        which may still be due if the segment was rolled a moment ago."""
        self.seal()
        self.close()

    def close(self) -> None:
        """Close the files without saving anything."""
        self.transactions.close()
        if self._sealed:
            WARM.gone(self)
        if self._file is not None:
            self._file.close()

    # -- indexes -------------------------------------------------------------------------------

    @property
    def indexes(self) -> SegmentIndexes:
        """The loaded indexes of offsets and times. Raises DamagedBatch, OSError."""
        indexes = self._indexes
        if indexes is None:
            indexes = self._indexes = self._load_indexes()
        return indexes

    def _empty_indexes(self) -> SegmentIndexes:
        return SegmentIndexes(self._place, self._interval)

    def _load_indexes(self) -> SegmentIndexes:
        indexes = self._empty_indexes()
        try:
            indexes.load(self.size, self.next_offset - self.base_offset)
            if self.size and not indexes.times:
                raise BadIndex(f"{indexes.times.path} is empty, its segment is not")
        except BadIndex:
            indexes = self._rebuilt()
            indexes.note_largest()
        return indexes

    def _rebuilt(self) -> SegmentIndexes:
        indexes = self._empty_indexes()
        for position, header in headers(self.file, 0, self.size):
            indexes.note(header, position)
        return indexes

    def restart(self) -> None:
        """Begin to read the file as if it were new: `adopt` each batch, then `truncate`."""
        self._indexes = self._empty_indexes()
        self.size, self.next_offset = 0, self.base_offset

    def resume(self, point: int, least: int) -> bool:
        """Like `restart`, but continue from a batch below offset `point` that is in the saved index.

        Index entries for batches below the recovery point were synced before the recovery point was written.
        If the index does not fit, or saves reading fewer than `least` bytes, the file is read from its start.
        Returns whether there was a saved index: it must be replaced durably, as it may have entries for
        batches that were cut off.
        """
        saved, end = self._empty_indexes(), self.size
        self.restart()
        try:
            saved.load(end, INT32_MAX)
            if not saved.offsets:
                return False
            entry = saved.cut_at(point)
            if entry is None or entry[0] < least:
                return True
            position, last = entry
            _, header, _ = next(batches(self.file, position, end, HEADER_SIZE))
        except (BadIndex, DamagedBatch):
            return True
        if header.last_offset != last:
            return True
        saved.go_on_at(header.base_offset)
        self._indexes = saved
        self.size, self.next_offset = position, header.base_offset
        return True

    def rewrite_indexes(self) -> None:
        """Make the next `save_indexes` write all entries."""
        self.indexes.rewrite()

    def adopt(self, header: BatchHeader) -> None:
        """Accept the batch that lies in the file at position `size`."""
        self.indexes.note(header, self.size)
        self.size += header.size
        self.next_offset = header.next_offset

    def trust(self) -> None:
        """Find the segment's end from its indexes and the batch headers after their last entry.

        For a log that was closed in order. Raises DamagedBatch.
        """
        if not self.size:
            self._indexes = self._empty_indexes()
            return
        self.next_offset = self.base_offset + MAX_RELATIVE_OFFSET + 1
        indexes = self.indexes
        self.next_offset = self.base_offset
        for _, header in headers(self.file, indexes.begin_tail(), self.size):
            indexes.pass_over(header)
            self.next_offset = header.next_offset
        if indexes.times and self.base_offset + indexes.times.values[-1] >= self.next_offset:
            self._indexes = self._rebuilt()

    def save_indexes(self) -> list[File]:
        """Write the sparse indexes. Returns the files that must be synced and closed. Raises OSError."""
        return self.indexes.save()

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
        first = self.first()
        return first.max_timestamp if first else -1

    def first(self) -> BatchHeader | None:
        """The header of the first batch, None if there is none. Raises DamagedBatch, OSError."""
        return self._header_at(0) if self.size else None

    def _header_at(self, position: int) -> BatchHeader:
        return next(headers(self.file, position, self.size, HEADER_SIZE))[1]

    def append(self, parts: Sequence[Buffer], header: BatchHeader) -> None:
        """Add a batch, its header already as stored, in one write. Raises OSError; then nothing was added.

        Raises LostFile if the failed write could not be undone: then the file's content is not known.
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
        self.indexes.note(header, position)

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
        """Position and header of the batch that contains `offset`, or of the next one if none does."""
        if offset >= self.next_offset:
            return None
        entry = self.indexes.offsets.floor(offset - self.base_offset)
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
        """Position of the first byte that is not below `offset`, which must be the first of a batch."""
        if offset >= self.next_offset:
            return self.size
        if self._stop[0] != offset:
            found = self.locate(offset)
            self._stop = (offset, found[0] if found else self.size)
        return self._stop[1]

    def upper_offset(self, position: int) -> int | None:
        """An offset that no record before file position `position` reaches, None if the index has none."""
        relative = self.indexes.offsets.after_value(position)
        return None if relative is None else self.base_offset + relative

    def first_later(self, epoch: int) -> int | None:
        """The offset of the first batch of a later leader epoch, None if there is none."""
        positions = self.indexes.offsets.values
        known = bisect_right(positions, epoch, key=lambda position: self._header_at(position).leader_epoch)
        start = positions[known - 1] if known else 0
        later = (h for _, h in headers(self.file, start, self.size) if h.leader_epoch > epoch)
        return next((header.base_offset for header in later), None)

    def batches_from(
        self, offset: int, chunk: int = BODIES_CHUNK
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each batch from the one that contains `offset` on, CRC checked.

        Raises DamagedBatch.
        """
        found = self.locate(offset)
        if found is not None:
            yield from batches(self.file, found[0], self.size, chunk)

    # -- times ---------------------------------------------------------------------------------

    def newest(self) -> int:
        """The largest timestamp of any record, -1 if there is none. Raises OSError.

        Loads the indexes only if the saved time index does not fit.
        """
        if self._indexes is None and self._newest is None:
            self._newest = self._saved_newest()
        return self.indexes.largest[0] if self._newest is None else self._newest

    def _saved_newest(self) -> int | None:
        """The largest timestamp, from the last entry of the saved time index; None if that does not fit."""
        last = last_entry(self._place.fs, self._place.path(files.TIME_INDEX), TIME_ENTRY)
        fits = last is not None and last[0] >= 0 and 0 <= last[1] < self.next_offset - self.base_offset
        return last[0] if last is not None and fits else None


class LostFile(OSError):
    """A write failed and could not be undone: the file's content is not known any more."""
