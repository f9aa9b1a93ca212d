"""Checks the files of one log against each other: batches and their order, indexes, producers.

Reads every byte of every segment once, and changes nothing. If a log was not closed in order, its indexes may
lag behind, which is no finding. A wrong entry is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from eoslog.broker.log import files
from eoslog.broker.log.recovery import below_start, find_valid, first_missing
from eoslog.broker.log.scan import DamagedBatch, batches, check_follows
from eoslog.commands.log_files import (
    COPY,
    Fix,
    ReadOnlyFile,
    Report,
    base_offset,
    offset_entries,
    time_entries,
    with_suffix,
)
from eoslog.commands.log_producers import ProducersOfLog
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


@dataclass(frozen=True)
class DirectoryFacts:
    """What a data directory says about a log. The defaults are for a log outside of one."""

    start: int | None = None  # offset at which it begins
    point: int = 0  # all below was durable
    gaps: bool = True  # compaction may have removed batches
    joined: bool = False  # segments follow each other without a gap even so, as eoslog's do


class PartitionDirectory:
    """One partition's directory, its segments in order."""

    def __init__(self, directory: str, known: DirectoryFacts, report: Report) -> None:
        self._directory, self._known, self._report = directory, known, report
        self._end: int | None = None  # offset after the last batch so far; None if unknown
        self._names: list[str] = os.listdir(directory)
        self._producers = ProducersOfLog(directory, self._names, known.gaps, report)
        self._whole = True  # the current segment is undamaged so far
        self._damaged_before = False  # the next start leaves the log alone, and the partition offline
        self._torn = False  # cut off by a crash: the next start removes any later segments
        self.has_gaps = False  # between batches of a segment

    def run(self) -> None:
        """Verify all segments and snapshots. Raises OSError."""
        self._report.counts["partitions"] += 1
        swapped = sorted({name[:20] for name in self._names if name.endswith(files.SWAP)})
        if swapped:
            text = f"a crash interrupted a compaction, at {', '.join(swapped)}: the next start finishes it"
            self._report.add(self._directory, 0, f"{text}. Verify again after that")
            return
        start, bases = self._known.start or 0, files.offsets_of(self._names, files.LOG)
        bases = bases[below_start(bases, start) :]
        if self._known.start is not None and bases and bases[0] > start:
            self._report.add(self._directory, 0, first_missing(bases[0], start))
        for base, after in zip_longest(bases, bases[1:]):
            if self._torn or self._is_left_over(base):
                break
            self._segment(base, after)
        self._ends(bool(bases))

    def alone(self, path: str) -> None:
        """Verify one segment with its indexes. Raises OSError."""
        self._report.counts["partitions"] += 1
        try:
            base = base_offset(path)
        except ValueError as error:
            self._report.add(path, 0, str(error))
            return
        self._segment(base, None)
        self._producers.end(self._end or base, alone=True)

    def _is_left_over(self, base: int) -> bool:
        """Whether a crash has lost what was before this segment, which has no valid batch itself."""
        end, apart = self._end, self._known.gaps and not self._known.joined
        if end is None or base == end or apart or end < self._known.point or self._any_batch(base, end):
            return False
        path = os.path.join(self._directory, files.offset_name(base, files.LOG))
        text = f"the segment before it ends at {end}, and no valid batch follows: the next start removes it"
        self._report.add(path, 0, text)
        self._producers.lost()
        return True

    def _ends(self, any_segment: bool) -> None:
        known = self._known
        written = max(known.point, known.start or 0)
        if not any_segment and written:
            text = f"no segment is left, but offsets up to {written} were written. {COPY}"
            self._report.add(self._directory, 0, text)
        elif any_segment and self._end is not None:
            if (known.start or 0) < known.point > self._end:
                self._producers.lost()
                text = f"the log ends at {self._end}, but all up to {known.point} was durable once. {COPY}"
                self._report.add(self._directory, 0, text)
            self._producers.end(self._end)

    # -- a segment -----------------------------------------------------------------------------

    def _segment(self, base: int, after: int | None) -> None:
        """`after`: the base offset of the next segment."""
        path = os.path.join(self._directory, files.offset_name(base, files.LOG))
        checks = list(self._sparse(path))
        try:
            file = ReadOnlyFile(path)
        except FileNotFoundError:  # a broker has removed it in the meantime
            self._end = None
            self._producers.lost()
            return
        self._report.counts["segments"] += 1
        self._begins(path, base)
        try:
            self._read(file, after, checks)
        finally:
            file.close()
        self._producers.end_segment(path, self._end)

    def _sparse(self, path: str) -> Iterator[OffsetIndex | TimeIndex]:
        for kind, suffix in ((OffsetIndex, files.INDEX), (TimeIndex, files.TIME_INDEX)):
            try:
                yield kind(path)
            except ValueError as error:
                self._report.add(path.removesuffix(files.LOG) + suffix, 0, str(error), Fix())

    def _begins(self, path: str, base: int) -> None:
        """Check that a segment begins where the one before it ends."""
        end, self._end = self._end, base
        if end is None or base == end:
            self._producers.begin(base)
            return
        missing = f": offsets {end} to {base - 1} are missing" if base > end else ""
        if base < end or self._known.joined or not self._known.gaps:
            text = f"begins at offset {base}, but the segment before it ends at {end}{missing}. {COPY}"
            self._report.add(path, 0, text)
            self._producers.lost()
        self._producers.begin(base)

    def _read(self, file: ReadOnlyFile, after: int | None, checks: list[OffsetIndex | TimeIndex]) -> None:
        size, done = file.size(), 0
        self._whole, said = True, list[tuple[str, str]]()
        try:
            for position, header, data in batches(file, 0, size):
                self._batch(file.path, position, header)
                self._producers.batch(file.path, position, header, data)
                said += [(check.path, text) for check in checks for text in check.batch(position, header)]
                done = position + header.size
                self._report.progress(header.size)
            trusted = after is not None and after <= self._known.point
            said += [(check.path, text) for check in checks for text in check.rest(complete=trusted)]
        except DamagedBatch as damage:
            self._damaged(file, damage, size)
        self._report.counts["bytes"] += done
        fix = Fix() if self._whole and not self._ends_early(after) else None
        for path, text in said if self._whole else ():  # otherwise the finding is about the log
            self._report.add(path, 0, text, fix)

    def _ends_early(self, after: int | None) -> bool:
        """Whether the segment has lost its end: then its indexes may be right."""
        if after is None:
            return self._end is None or self._end < self._known.point
        return self._end != after and (self._known.joined or not self._known.gaps)

    def _batch(self, path: str, position: int, header: BatchHeader) -> None:
        self._report.counts["batches"] += 1
        before = header.base_offset if self._end is None else self._end
        try:
            check_follows(path, position, header, before, gaps=self._known.gaps)
        except DamagedBatch as damage:
            self._report.add(path, position, f"{damage.reason}. {COPY}")
            self._producers.lost()
            self._whole = False
            before = header.base_offset  # later batches are reported only if they do not follow this one
        self.has_gaps |= header.base_offset > before
        if header.count > header.last_offset_delta + 1:
            self._report.add(
                path, position,
                f"batch of offset {header.base_offset} has {header.count} records for "
                f"{header.last_offset_delta + 1} offsets. {COPY}",
            )  # fmt: skip
        self._end = max(before, header.next_offset)

    def _damaged(self, file: ReadOnlyFile, damage: DamagedBatch, size: int) -> None:
        """Report damage. The rest of the segment cannot be split into batches: checks resume with the next
        one.
        """
        last = None if self._damaged_before else self._end
        self._torn = last is not None and self._is_torn(file, damage.position, size, last)
        rest = "A crash interrupted the last write: the next start cuts off this tail"
        rest = rest if self._torn else COPY
        self._report.add(file.path, damage.position, f"{damage.reason}. {rest}")
        self._producers.lost()
        self._whole = False
        if not self._torn:
            self._damaged_before = True
            self._end = None

    def _is_torn(self, file: ReadOnlyFile, position: int, size: int, offset: int) -> bool:
        """Whether a start takes it for a torn tail: what is after it was never acknowledged as durable."""
        if offset < self._known.point or find_valid(file, position, size, offset) is not None:
            return False
        return not self._any_batch(base_offset(file.path) + 1, offset)

    def _any_batch(self, base: int, offset: int) -> bool:
        """Whether a segment from `base` on has a valid batch of at least `offset`."""
        later = [one for one in files.offsets_of(self._names, files.LOG) if one >= base]
        return any(self._holds_a_batch(one, offset) for one in later)

    def _holds_a_batch(self, base: int, offset: int) -> bool:
        try:
            file = ReadOnlyFile(os.path.join(self._directory, files.offset_name(base, files.LOG)))
        except FileNotFoundError:  # a broker has removed it in the meantime
            return False
        try:
            return find_valid(file, 0, file.size(), offset) is not None
        finally:
            file.close()
