"""Follows a log's producers batch by batch, and compares them with its snapshots and transaction indexes.

The broker's own rules update the states. In a log that begins at 0 the batches determine everything. In
another log, and after damage, the states start from the first snapshot at the beginning of a segment.
Transaction indexes from the last snapshot on are no finding: the next start rebuilds them anyway.
"""

from __future__ import annotations

import os
from collections import deque

from eoslog.broker.log.recovery.recovery import replay
from eoslog.broker.log.segment import files, producer_snapshot
from eoslog.broker.rules.producer_state import ProducerState, ProducerStates
from eoslog.commands.log_files import whole
from eoslog.commands.log_report import Fix, Report
from eoslog.commands.log_transactions import Marker, TransactionIndexCheck, Wrong
from eoslog.protocol.batch import BatchHeader, CorruptBatch
from eoslog.protocol.control import ABORT, read_control


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
