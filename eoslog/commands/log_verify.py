"""Checks the files of one log against each other: batches and their order, indexes, producers."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.index import TXN_ENTRY
from eoslog.broker.log.recovery import below_start, find_valid, first_missing, replay
from eoslog.broker.log.scan import DamagedBatch, batches, check_follows
from eoslog.broker.rules.producer_state import AbortedTransaction, ProducerState, ProducerStates
from eoslog.commands.log_files import (
    COPY,
    Fix,
    LogFinding,
    ReadOnlyFile,
    Report,
    base_offset,
    offset_entries,
    time_entries,
    whole,
    with_suffix,
)
from eoslog.protocol.batch import BatchHeader, CorruptBatch
from eoslog.protocol.control import ABORT, read_control

# -- producers -------------------------------------------------------------------------------------
# Follows a log's producers batch by batch, and compares them with its snapshots and transaction indexes.
#
# A `.txnindex` must have one entry for each aborted transaction of its segment. Without its entry, readers
# see aborted rows. An extra entry, or one that begins too early, hides committed rows. Compaction removes
# aborted rows and leaves their entry, so there an entry may begin before the first row.
#
# The broker's own rules update the states. In a log that begins at 0 the batches determine everything. In
# another log, and after damage, the states start from the first snapshot at the beginning of a segment.
# Transaction indexes from the last snapshot on are no finding: the next start rebuilds them anyway.


class Marker(NamedTuple):
    """An abort marker at `offset`; `after` is the offset of the producer's marker before it, -1 if unknown.

    `entry` is the one that follows from the broker's rules, None if no row of the transaction was read.
    """

    offset: int
    producer_id: int
    after: int
    entry: AbortedTransaction | None


class Wrong(NamedTuple):
    """A finding, and the `offset` of the marker it is about, whether or not that exists."""

    offset: int
    finding: LogFinding


class TransactionIndexCheck:
    """The entries of a segment's index, compared with its abort markers."""

    def __init__(self, segment: str, markers: list[Marker], *, gaps: bool, known_from: int) -> None:
        """`segment`: the path of the `.log`. What was written below offset `known_from` is unknown.

        Raises OSError.
        """
        self._path = with_suffix(segment, files.TXN_INDEX)
        self._markers, self._gaps, self._known_from = markers, gaps, known_from
        try:
            data = whole(self._path)
        except FileNotFoundError:
            data = b""
        self._rest = len(data) % TXN_ENTRY.size
        found = list(TXN_ENTRY.iter_unpack(data[: len(data) - self._rest]))
        self._found = [AbortedTransaction(*values) for _, *values in found]
        self._unlike = [AbortedTransaction(*values) for version, *values in found if version]

    def check(self, end: int | None) -> list[Wrong]:
        """Compare entries and markers both ways. Returns the findings, each with the correct index as its
        fix. `end`: the segment's end offset, None if unknown.
        """
        wrong = list(self._order(end))
        by_marker = {entry.last_offset: entry for entry in self._found}
        wanted: list[AbortedTransaction] = []
        for marker in self._markers:
            entry, text = self._compare(marker, by_marker.pop(marker.offset, None))
            wanted += [entry] if entry is not None else []
            wrong += [(marker.offset, text)] if text else []
        for entry in by_marker.values():
            wrong.append((entry.last_offset, f"{_named(entry)}, but there is no marker that aborts it"))
        fix = Fix(b"".join(TXN_ENTRY.pack(0, *entry) for entry in wanted) if wanted else None)
        return self._findings(wrong, fix)

    def check_alone(self, end: int | None) -> list[Wrong]:
        """As `check`, if the segment's markers are unknown."""
        return self._findings(list(self._order(end)), None)

    def _findings(self, wrong: list[tuple[int, str]], fix: Fix | None) -> list[Wrong]:
        return [Wrong(offset, LogFinding(self._path, 0, text, fix)) for offset, text in sorted(wrong)]

    def _order(self, end: int | None) -> Iterator[tuple[int, str]]:
        for entry in self._unlike:
            yield entry.last_offset, f"{_named(entry)}: the entry's version is not 0"
        before = -1
        for entry in self._found:
            if entry.last_offset <= before:
                yield entry.last_offset, f"{_named(entry)}, which comes after offset {before}"
            before = max(before, entry.last_offset)
        if self._rest and end is not None:
            yield end - 1, f"{self._rest} bytes follow the last entry, which has {TXN_ENTRY.size}"

    def _compare(
        self, marker: Marker, found: AbortedTransaction | None
    ) -> tuple[AbortedTransaction | None, str]:
        """The correct entry for a marker, and what is wrong with the one found."""
        right = marker.entry
        if found is None:
            return right, "" if right is None else f"{_named(right)}: it is missing"
        if found.producer_id != marker.producer_id:
            return right, f"{_named(found)}, but the marker there has producer id {marker.producer_id}"
        fits = right is not None and found.first_offset == right.first_offset
        if not fits and not self._may_be(found, marker):
            truth = "none was open" if right is None else f"it begins at {right.first_offset}"
            return right, f"{_named(found)}, but {truth}"
        if right is not None and found.last_stable_offset > right.last_stable_offset:
            rest = f"with the last stable offset {found.last_stable_offset}, which is too high"
            return found._replace(last_stable_offset=right.last_stable_offset), f"{_named(found)}, {rest}"
        return found, ""

    def _may_be(self, found: AbortedTransaction, marker: Marker) -> bool:
        """Whether the transaction may have had earlier rows that are gone now."""
        end = marker.offset if marker.entry is None else marker.entry.first_offset
        taken = self._gaps or found.first_offset < self._known_from
        return taken and marker.after < found.first_offset < end


def _named(entry: AbortedTransaction) -> str:
    return (
        f"the transaction of producer id {entry.producer_id} from offset {entry.first_offset}, aborted at "
        f"offset {entry.last_offset}"
    )


class ProducersOfLog:
    """The producers of one partition's log."""

    def __init__(self, directory: str, names: list[str], gaps: bool, report: Report) -> None:
        """`names`: of the files in the partition's directory. `gaps`: compaction may have removed batches."""
        self._directory, self._gaps, self._report = directory, gaps, report
        self._snapshots = deque(files.offsets_of(names, files.SNAPSHOT))
        self._states = ProducerStates()
        self._known = False  # whether the states follow from the log
        self._since = 0  # the states follow from the batches from here on, before it from a snapshot
        self._wrote: set[int] = set()  # producer ids that wrote since then
        self._ended: dict[int, int] = {}  # producer id -> offset of its last marker
        self._markers: list[Marker] = []  # abort markers of the current segment
        self._read_from = 0  # the next start rebuilds the indexes from here on
        self._wrong: list[Wrong] = []

    def begin(self, base: int) -> None:
        """Begin a segment at offset `base`, after all batches before it."""
        self._up_to(base - 1)
        states = self._decoded(base) if self._next_is(base) else None
        if states is not None and self._known:
            self._compare(base, states)
        elif not self._known and (base == 0 or states is not None):
            self._start_from(base, states if base and states else [])
        self._markers = []

    def _next_is(self, offset: int) -> bool:
        if self._snapshots and self._snapshots[0] == offset:
            self._snapshots.popleft()
            return True
        return False

    def _start_from(self, base: int, states: list[ProducerState]) -> None:
        self._states = ProducerStates()
        self._states.load(states)
        self._known, self._since = True, base
        self._wrote.clear()
        self._ended.clear()

    def lost(self) -> None:
        """Batches are missing here: the states are unknown until the next snapshot."""
        self._known = False

    def batch(self, path: str, position: int, header: BatchHeader, data: memoryview) -> None:
        """Follow the next batch, at a position of a segment's file."""
        self._up_to(header.base_offset)
        if not self._known:
            return
        try:
            entry = replay(self._states, header, data, 0)
            if header.is_control and header.count:
                if read_control(data, 0, header).type == ABORT:
                    pid = header.producer_id
                    self._markers.append(Marker(header.base_offset, pid, self._ended.get(pid, -1), entry))
                self._ended[header.producer_id] = header.base_offset
        except CorruptBatch as error:
            self._report.add(path, position, str(error))
            self._known = False
        if not header.is_control:
            self._wrote.add(header.producer_id)

    def end_segment(self, segment: str, end: int | None) -> None:
        """All batches of a segment were read, up to offset `end`; `segment` is the path of its `.log`."""
        index = TransactionIndexCheck(segment, self._markers, gaps=self._gaps, known_from=self._since)
        self._wrong += index.check(end) if self._known else index.check_alone(end)

    def end(self, end: int, *, alone: bool = False) -> None:
        """The log ends at offset `end`. `alone`: only one segment was read."""
        self._up_to(end)
        if alone:
            self._read_from = max([self._read_from, *self._snapshots])
        elif self._known:
            for offset in self._snapshots:
                text = f"it is of offset {offset}, but the log ends at {end}; the next start removes it"
                self._report.add(self._path(offset), 0, text, Fix())
        self._report.findings += [wrong.finding for wrong in self._wrong if wrong.offset < self._read_from]

    # -- snapshots -----------------------------------------------------------------------------

    def _path(self, offset: int) -> str:
        return os.path.join(self._directory, files.offset_name(offset, files.SNAPSHOT))

    def _up_to(self, offset: int) -> None:
        """Compare with the snapshots up to an offset; all batches below it were read."""
        while self._snapshots and self._snapshots[0] <= offset:
            at = self._snapshots.popleft()
            states = self._decoded(at)
            if states is not None and self._known and at >= self._since:
                self._compare(at, states)

    def _decoded(self, offset: int) -> list[ProducerState] | None:
        """The states in a snapshot; None if it is not valid, or was removed in the meantime."""
        path = self._path(offset)
        try:
            states = producer_snapshot.decode(whole(path))
        except FileNotFoundError:
            return None
        except producer_snapshot.BadSnapshot as error:
            self._report.add(path, 0, str(error), Fix())
            return None
        self._read_from = offset
        return states

    def _compare(self, offset: int, states: list[ProducerState]) -> None:
        theirs = {state.producer_id: state for state in states}
        for mine in self._states.all():
            their = theirs.pop(mine.producer_id, None)
            if their is not None:
                self._say(offset, mine, self._difference(mine, their))
            elif mine.transaction_start >= 0:
                text = f"is missing, but has a transaction open from {mine.transaction_start} on"
                self._say(offset, mine, text)
        for their in theirs.values():
            if their.transaction_start >= 0 and not self._gaps:
                text = f"has a transaction open from {their.transaction_start} on, but not in the log"
                self._say(offset, their, text)

    def _say(self, offset: int, state: ProducerState, text: str) -> None:
        if text:
            certain = self._log_decides(state)
            rest = (
                "" if certain else f". The log from {self._since} on does not show which of the two is right"
            )
            text = f"producer id {state.producer_id} {text}{rest}"
            self._report.add(self._path(offset), 0, text, Fix() if certain else None)

    def _log_decides(self, state: ProducerState) -> bool:
        """Whether the log itself shows what is right, not only an earlier snapshot."""
        return not self._since or state.producer_id in self._wrote

    def _difference(self, mine: ProducerState, their: ProducerState) -> str:
        """How a snapshot differs from the log about a producer, "" if it does not. After compaction, the log
        may know less than the snapshot.
        """
        if mine.epoch != their.epoch and not (self._gaps and mine.epoch < their.epoch):
            return f"has epoch {their.epoch}, but {mine.epoch} in the log"
        first, last = mine.transaction_start, their.transaction_start
        if first != last and not (self._gaps and (first < 0 or 0 <= last < first)):
            return f"{_open(last)}, but in the log it {_open(first)}"
        if self._gaps or their.last_sequence < 0 or mine.last_sequence == their.last_sequence:
            return ""
        return f"has last sequence {their.last_sequence}, but {mine.last_sequence} in the log"


def _open(start: int) -> str:
    return "has no open transaction" if start < 0 else f"has a transaction open from {start} on"


# -- the whole log ---------------------------------------------------------------------------------
# Reads every byte of every segment once, and changes nothing. If a log was not closed in order, its indexes
# may lag behind, which is no finding. A wrong entry is one.


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
