"""One segment of a log: writing batches to it, and finding where in it an offset or a time lies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.index import TIME_ENTRY, last_entry
from eoslog.broker.log.segment.scan import BODIES_CHUNK, batches, headers
from eoslog.broker.log.segment.segment_base import MAX_RELATIVE_OFFSET, SegmentBase
from eoslog.broker.log.segment.warm import WARM
from eoslog.broker.ports.ports import Buffer
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader
from eoslog.protocol.plain_records import iter_records


class Segment(SegmentBase):
    """Batches of ascending offsets from `base_offset` up to `next_offset`, in `size` bytes."""

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

    def first_later(self, epoch: int) -> int | None:
        """The offset of the first batch of a later leader epoch, None if there is none."""
        positions = self._indexes[0].values
        known = bisect_right(positions, epoch, key=lambda position: self._header_at(position).leader_epoch)
        start = positions[known - 1] if known else 0
        later = (h for _, h in headers(self.file, start, self.size) if h.leader_epoch > epoch)
        return next((header.base_offset for header in later), None)

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
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each batch from the one that holds `offset` on, CRC checked.

        Raises DamagedBatch.
        """
        found = self.locate(offset)
        if found is not None:
            yield from batches(self.file, found[0], self.size, chunk)

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


class LostFile(OSError):
    """A write failed and could not be taken back: what the file holds is not known any more."""
