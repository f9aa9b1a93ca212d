"""Segments of a log: one with its indexes, all of one log, and those of a broker that are kept open."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Protocol, Self

from eoslog.broker.log import files
from eoslog.broker.log.files import SegmentFiles
from eoslog.broker.log.index import (
    INT32_MAX,
    TIME_ENTRY,
    BadIndex,
    SegmentIndexes,
    TransactionIndex,
    last_entry,
)
from eoslog.broker.log.scan import BODIES_CHUNK, DamagedBatch, batches, check_follows, good, headers
from eoslog.broker.ports import Buffer, File, FileSystem, ShortWrite
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader
from eoslog.protocol.plain_records import iter_records

# -- those that are kept open ----------------------------------------------------------------------
# Keeps the file open and the indexes in memory only for the sealed segments that were read most recently.
#
# So logs of any age and length take a bounded number of open files and a bounded amount of memory. A segment
# that was closed is opened again on its next use. There is one cache for the process, as the bounds are the
# process's.


MOST_SEGMENTS = 256
MOST_BYTES = 48 << 20


class ClosableSegment(Protocol):
    """A segment as the cache sees it."""

    def weight(self) -> int:
        """Bytes of its indexes in memory, about."""

    def cool(self) -> None:
        """Drop the file and the indexes. Code that is using them now may continue to do so."""


class WarmSegments:
    """The cached segments, in the order of their last use."""

    def __init__(self, most_segments: int, most_bytes: int) -> None:
        self._most_segments, self._most_bytes = most_segments, most_bytes
        self._segments: OrderedDict[ClosableSegment, int] = OrderedDict()
        self._bytes = 0
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._segments)

    def used(self, segment: ClosableSegment) -> None:
        """Note that a segment has opened its file, loaded its indexes, or was read again."""
        weight = segment.weight()
        with self._lock:
            self._bytes += weight - self._segments.pop(segment, 0)
            self._segments[segment] = weight
            while len(self._segments) > 1 and (
                len(self._segments) > self._most_segments or self._bytes > self._most_bytes
            ):
                oldest, its_weight = self._segments.popitem(last=False)
                self._bytes -= its_weight
                oldest.cool()

    def gone(self, segment: ClosableSegment) -> None:
        """Drop a segment that was closed."""
        with self._lock:
            self._bytes -= self._segments.pop(segment, 0)


WARM = WarmSegments(MOST_SEGMENTS, MOST_BYTES)


# -- one segment -----------------------------------------------------------------------------------
# One segment of a log: batches in a file, the indexes beside it, and the search for an offset.


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
        self.checked = True  # whether all that was there at opening is checked; see `upkeep`
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
                raise ShortWrite(f"wrote {written} of {header.size} bytes (disk full?)")
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


# -- all of one log --------------------------------------------------------------------------------
# All segments of one log: finding and reading across them. No rules, no durability.


class Segments:
    """Segments by ascending base offset, at least one; the last is the active one.

    All reads raise DamagedBatch for bytes that are not a batch, OSError if the disk fails.
    """

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    def __getitem__(self, number: int) -> Segment:
        return self._segments[number]

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self._segments[-1]

    def add(self, segment: Segment) -> None:
        """Make this empty segment the active one. It begins where the log ends."""
        self._segments.append(segment)

    def holds(self, run: list[Segment]) -> bool:
        """Whether these segments are in the log, next to each other, none of them active."""
        at = self._number(run[0].base_offset)
        return self._segments[at : at + len(run)] == run and self.active not in run

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Replace segments that the log `holds` by a new one."""
        at = self._number(old[0].base_offset)
        self._segments[at : at + len(old)] = [new]

    def drop_first(self, count: int) -> list[Segment]:
        """Take out the `count` oldest segments, never the active one. Returns them, still open."""
        gone = self._segments[:count]
        self._segments = self._segments[count:]
        return gone

    def _number(self, offset: int) -> int:
        """The number of the segment that contains an offset of the log."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1)

    def read(self, offset: int, bound: int, max_bytes: int, min_one: bool, gaps: bool) -> tuple[bytes, int]:
        """Bytes from the batch that contains `offset` on, and an offset above all their records.

        `offset` is below `bound`. At most `max_bytes`, but the whole first batch with `min_one`; from one
        segment; nothing of a batch that begins at `bound` or above. The last batch may be cut. If the segment
        is not checked since it was opened, the bytes read are checked. `gaps`: compaction may have left gaps.
        """
        segment = self._segments[self._number(offset)]
        found = segment.locate(offset)
        if found is None:
            raise self._ends_early(segment, offset)
        start, header = found
        if header.base_offset > offset:
            check_follows(segment.path, start, header, offset, gaps=gaps)
        if header.size > max_bytes and not min_one:
            return b"", bound
        stop = segment.position_of(bound)
        upper = min(bound, segment.next_offset)
        size = min(stop - start, max(max_bytes, header.size))
        if start + size < stop:
            known = segment.upper_offset(start + size)
            upper = upper if known is None else min(upper, known)
        data = segment.file.read(size, start)
        return data if segment.checked else good(data, segment.path, start, gaps=gaps), upper

    def _ends_early(self, segment: Segment, offset: int) -> DamagedBatch:
        return DamagedBatch(
            segment.path, segment.size, f"offset {offset} is missing, the file ends before it"
        )

    def aborted(self, offset: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with their marker at `offset` or above and
        their first record below `upper`.
        """
        found: list[tuple[int, int]] = []
        for segment in self._segments[self._number(offset) :]:
            more, complete = segment.transactions.collect(offset, upper)
            found += more
            if complete:
                break
        return found

    def offset_for(self, timestamp: int, start: int, below: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after `timestamp`, from `start` to below `below`."""
        for segment in self._segments[self._number(start) :]:
            if segment.base_offset >= below:
                return None
            found = first_at_or_after(segment, timestamp, start, below)
            if found is not None:
                return found
        return None

    def max_timestamp(self, start: int, below: int) -> tuple[int, int] | None:
        """Like `offset_for`, for the largest timestamp from offset `start` to below `below`."""
        best: tuple[int, int] | None = None
        for segment in self._segments[self._number(start) :]:
            if segment.base_offset >= below:
                break
            if best is None or segment.newest() > best[0]:
                found = largest(segment, start, below)
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
        return best

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the batch that contains `offset`, or of the next one; None if there is none."""
        for segment in self._segments[self._number(offset) :]:
            found = segment.locate(offset)
            if found is not None:
                return found[1].leader_epoch
        return None

    def first_later(self, epoch: int, start: int) -> int | None:
        """The offset of the first batch of a later leader epoch, from the segment of `start` on."""
        later = None
        for segment in reversed(self._segments[self._number(start) :]):
            first = segment.first()
            if first is None:
                continue
            if first.leader_epoch <= epoch:
                inside = segment.first_later(epoch)
                return later if inside is None else inside
            later = first.base_offset
        return later

    def batches(self, start: int, gaps: bool) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Whole batches from the one that contains `start` to the end, CRC checked. None may be missing."""
        before = start
        for segment in self._segments[self._number(start) :]:
            for position, header, data in segment.batches_from(max(start, segment.base_offset)):
                if header.base_offset >= start:
                    check_follows(segment.path, position, header, before, gaps=gaps)
                yield header, data
                before = header.next_offset
            if segment is not self.active and before < segment.next_offset:
                raise self._ends_early(segment, before)

    def close(self) -> None:
        """Close all files without saving anything."""
        for segment in self._segments:
            segment.close()


def first_at_or_after(segment: Segment, timestamp: int, start: int, below: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record at or after `timestamp`, from `start` to below `below`."""
    if segment.newest() < timestamp:
        return None
    entry = segment.indexes.times.floor(timestamp)
    found = segment.locate(max(start, segment.base_offset + entry[1] if entry else segment.base_offset))
    if found is None:
        return None
    for position, header in headers(segment.file, found[0], segment.size):
        if header.base_offset >= below:
            return None
        if header.max_timestamp >= timestamp:
            record = _record_from(segment, position, header, timestamp, start)
            if record is not None:
                return record
    return None


def _record_from(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start: int
) -> tuple[int, int] | None:
    data = segment.file.read(header.size, position)
    for record in iter_records(data, 0, header):
        if record.timestamp >= timestamp and record.offset >= start:
            return record.timestamp, record.offset
    return None


def largest(segment: Segment, start: int, below: int) -> tuple[int, int] | None:
    """Like `first_at_or_after`, for the largest timestamp from offset `start` to below `below`."""
    best, offset = segment.indexes.largest
    if not start <= offset < below:
        end = segment.position_of(below)
        inside = (h for _, h in headers(segment.file, 0, end) if h.last_offset >= start and h.count)
        best = max((header.max_timestamp for header in inside), default=-1)
    return first_at_or_after(segment, best, start, below) if best >= 0 else None
