"""All segments of one log: finding and reading across them. No rules, no durability."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from eoslog.broker.log.segment.scan import DamagedBatch, check_follows, good, headers
from eoslog.broker.log.segment.segment import Segment
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.plain_records import iter_records


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
