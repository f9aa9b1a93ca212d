"""Follows a log's producers batch by batch, and compares them with its snapshots and transaction indexes.

A `.txnindex` must have one entry for each aborted transaction of its segment. Without its entry, readers see
aborted rows. An extra entry, or one that begins too early, hides committed rows. Compaction removes aborted
rows and leaves their entry, so there an entry may begin before the first row.

The broker's own rules update the states. In a log that begins at 0 the batches determine everything. In
another log, and after damage, the states start from the first snapshot at the beginning of a segment.
Transaction indexes from the last snapshot on are no finding: the next start rebuilds them anyway.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.index import TXN_ENTRY
from eoslog.broker.log.recovery import replay
from eoslog.broker.rules.producer_state import AbortedTransaction, ProducerState, ProducerStates
from eoslog.commands.log_files import Fix, LogFinding, Report, whole, with_suffix
from eoslog.protocol.batch import BatchHeader, CorruptBatch
from eoslog.protocol.control import ABORT, read_control


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
