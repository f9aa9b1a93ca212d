"""Any order of batches and markers, against a model that keeps every accepted batch and looks it all up."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eoslog.broker.log.segment import producer_snapshot
from eoslog.broker.rules.producer_state import ProducerStates
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.errors import ErrorCode, KafkaError

WRAP = 2**31
IDLE_MS = 100
PIDS = st.sampled_from([1, 2, 3])


@dataclass
class Line:
    """One thing in the model's log."""

    pid: int
    epoch: int
    first: int  # sequence
    count: int
    offset: int
    transactional: bool = False
    marker: bool | None = None  # commit?
    coordinator_epoch: int = -1
    at: int = 0  # time, ms


class Model:
    """A list of all that was written; every question is answered by reading it from the start."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.end = 0
        self.forgotten: dict[int, int] = {}  # producer id -> end of the log when it was forgotten

    def of(self, pid: int) -> list[Line]:
        since = self.forgotten.get(pid, 0)
        return [line for line in self.lines if line.pid == pid and line.offset >= since]

    def idle(self, now: int) -> set[int]:
        """Who has written nothing for long, and has no open transaction."""
        written = {line.pid for line in self.lines if self.of(line.pid)}
        return {
            pid for pid in written if self.of(pid)[-1].at <= now - IDLE_MS and self.open_since(pid) is None
        }

    def epoch(self, pid: int) -> int:
        return max((line.epoch for line in self.of(pid)), default=-1)

    def open_since(self, pid: int, before: int | None = None) -> int | None:
        since = None
        for line in [line for line in self.lines if line.pid == pid]:
            if before is not None and line.offset >= before:
                break
            if line.marker is not None:
                since = None
            elif line.transactional and since is None:
                since = line.offset
        return since

    def judge(self, new: Line, from_zero: bool) -> ErrorCode | int | None:
        """An error, the offset of the batch sent before, or None for a new batch."""
        mine = self.of(new.pid)
        if not mine:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if from_zero and new.first != 0 else None
        epoch = self.epoch(new.pid)
        same = [line for line in mine if line.epoch == epoch and line.marker is None]
        ended = max((line.offset for line in mine if line.marker is not None), default=-1)
        if new.epoch == epoch:
            for line in [line for line in same if line.offset > ended][-5:]:
                if (line.first, line.count) == (new.first, new.count):
                    return line.offset
        if new.epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        follows = 0
        if new.epoch == epoch and same:
            follows = (same[-1].first + same[-1].count) % WRAP
        if new.first != follows:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(new.pid) is not None and not new.transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def judge_marker(self, new: Line, bumped: bool) -> ErrorCode | None:
        if new.epoch < self.epoch(new.pid):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if bumped and new.epoch == self.epoch(new.pid) and self.open_since(new.pid) is not None:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        written = [line.coordinator_epoch for line in self.of(new.pid) if line.marker is not None]
        if written and new.coordinator_epoch < written[-1]:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return None

    def stable(self, mark: int) -> int:
        """The first offset below `mark` whose transaction has no marker below `mark`."""
        firsts = [self.open_since(line.pid, before=mark) for line in self.lines]
        return min([mark, *(first for first in firsts if first is not None)])

    def add(self, line: Line) -> None:
        self.lines.append(line)
        self.end += line.count


class ProducerRules(RuleBasedStateMachine):
    @initialize(start=st.sampled_from([0, 5, WRAP - 3, WRAP - 1]))
    def begin(self, start: int) -> None:
        self.states = ProducerStates()
        self.model = Model()
        self.start = start
        self.durable = 0
        self.now = 0
        self.aborted: list[tuple[int, int, int]] = []

    def _send(self, line: Line, from_zero: bool = False) -> None:
        line.at = self.now
        attributes = 0x10 if line.transactional else 0
        batch = BatchHeader(
            0, 100, -1, 2, 0, attributes, line.count - 1, 0, 0, line.pid, line.epoch, line.first, line.count
        )
        expected = self.model.judge(line, from_zero)
        try:
            written = self.states.check(batch, from_zero=from_zero)
            answer: ErrorCode | int | None = None if written is None else written.first_offset
        except KafkaError as error:
            answer = error.code
        assert answer == expected
        assert isinstance(answer, ErrorCode) == isinstance(expected, ErrorCode)
        if answer is None:
            self.states.apply(batch, self.model.end, self.now)
            self.model.add(line)

    @rule(pid=PIDS, count=st.integers(1, 4), transactional=st.booleans(), bump=st.sampled_from([0, 0, 0, 1]))
    def well_behaved(self, pid: int, count: int, transactional: bool, bump: int) -> None:
        epoch = max(self.model.epoch(pid), 0) + bump
        same = [x for x in self.model.of(pid) if x.epoch == epoch and x.marker is None]
        first = (same[-1].first + same[-1].count) % WRAP if same else 0
        if not self.model.of(pid):
            first = self.start
        self._send(Line(pid, epoch, first, count, self.model.end, transactional))

    @rule(pid=PIDS, back=st.integers(1, 7), transactional=st.booleans())
    def again(self, pid: int, back: int, transactional: bool) -> None:
        sent = [x for x in self.model.of(pid) if x.marker is None][-back:]
        if sent:
            self._send(Line(pid, sent[0].epoch, sent[0].first, sent[0].count, self.model.end, transactional))

    @rule(
        pid=PIDS,
        epoch=st.integers(0, 3),
        first=st.sampled_from([0, 1, 2, 5, WRAP - 2, WRAP - 1]),
        count=st.integers(1, 4),
        transactional=st.booleans(),
        from_zero=st.booleans(),
    )
    def anything(
        self, pid: int, epoch: int, first: int, count: int, transactional: bool, from_zero: bool
    ) -> None:
        self._send(Line(pid, epoch, first, count, self.model.end, transactional), from_zero)

    @rule(by=st.sampled_from([1, IDLE_MS - 1, IDLE_MS]))
    def time_passes(self, by: int) -> None:
        self.now += by

    @rule()
    def forget(self) -> None:
        """Producer ids that nobody uses expire, by time alone, never inside a transaction."""
        idle = self.model.idle(self.now)
        assert set(self.states.expire(self.now, IDLE_MS)) == idle
        self.model.forgotten |= dict.fromkeys(idle, self.model.end)

    @rule()
    def restart(self) -> None:
        """A snapshot holds all that is known. What was decided before it is durable."""
        self.durable = self.model.end
        data = producer_snapshot.encode(self.states.all())
        self.states = ProducerStates()
        self.states.load(producer_snapshot.decode(data))

    @rule(
        pid=PIDS,
        commit=st.booleans(),
        epoch=st.integers(-1, 1),
        coordinator_epoch=st.integers(0, 2),
        version=st.sampled_from([0, 0, 2]),
    )
    def marker(self, pid: int, commit: bool, epoch: int, coordinator_epoch: int, version: int) -> None:
        line = Line(
            pid,
            max(0, self.model.epoch(pid) + epoch),
            -1,
            1,
            self.model.end,
            marker=commit,
            coordinator_epoch=coordinator_epoch,
            at=self.now,
        )
        expected = self.model.judge_marker(line, version == 2)
        try:
            self.states.check_marker(pid, line.epoch, coordinator_epoch, version)
        except KafkaError as error:
            assert error.code == expected
            return
        assert expected is None
        first = self.model.open_since(pid)
        entry = self.states.apply_marker(pid, line.epoch, coordinator_epoch, commit, line.offset, self.now)
        self.model.add(line)
        if commit or first is None:
            assert entry is None
        else:
            assert entry == (pid, first, line.offset, self.model.stable(self.model.end))

    @rule(step=st.integers(0, 9))
    def sync(self, step: int) -> None:
        """The high watermark never goes back, and sync points are ends of batches."""
        ends = [line.offset + line.count for line in self.model.lines if line.offset >= self.durable]
        if ends:
            self.durable = ends[min(step, len(ends) - 1)]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.states.last_stable_offset(self.durable) == self.model.stable(self.durable)
        opened = {pid: self.model.open_since(pid) for pid in (1, 2, 3)}
        assert {pid: self.states.ongoing(pid) for pid in (1, 2, 3)} == opened
        oldest = sorted((first, pid) for pid, first in opened.items() if first is not None)
        assert self.states.open_transactions() == [(pid, first) for first, pid in oldest]


ProducerRules.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestProducerRules = ProducerRules.TestCase
