"""The idempotence and transaction rules of a partition (KIP-98, KIP-360, KIP-890): case by case, and any
order.
"""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from eoslog.broker.log import producer_snapshot
from eoslog.broker.rules.producer_state import AbortedTransaction, ProducerStates, Written
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.errors import ErrorCode, KafkaError

NOW = 1_000_000
TOP = 2**31 - 1


def header(
    sequence: int, count: int = 1, *, pid: int = 7, epoch: int = 0, transactional: bool = False
) -> BatchHeader:
    attributes = 0x10 if transactional else 0
    return BatchHeader(0, 100, -1, 2, 0, attributes, count - 1, NOW, NOW, pid, epoch, sequence, count)


class Log:
    """Applies what is accepted, as a partition does."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def write(self, batch: BatchHeader, *, coordinator: bool = False) -> int:
        """Its first offset, new or old."""
        written = self.states.check(batch, coordinator=coordinator)
        if written is not None:
            return written.first_offset
        base, self.end = self.end, self.end + batch.count
        self.states.apply(batch, base, NOW)
        return base

    def mark(
        self, commit: bool, *, pid: int = 7, epoch: int = 0, coordinator_epoch: int = 0
    ) -> AbortedTransaction | None:
        self.states.check_marker(pid, epoch, coordinator_epoch)
        self.end += 1
        return self.states.apply_marker(pid, epoch, coordinator_epoch, commit, self.end - 1, NOW)

    def refuses(self, batch: BatchHeader) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.states.check(batch)
        return caught.value.code


@pytest.fixture
def log() -> Log:
    return Log()


def test_an_unknown_producer_may_begin_with_any_sequence(log: Log) -> None:
    assert log.write(header(4711)) == 0
    assert log.write(header(4712)) == 1


def test_an_unknown_producer_may_have_to_begin_at_zero(log: Log) -> None:
    with pytest.raises(KafkaError) as caught:
        log.states.check(header(1), from_zero=True)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.states.check(header(0), from_zero=True) is None
    log.write(header(5))
    assert log.states.check(header(6), from_zero=True) is None


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset(log: Log) -> None:
    for sequence in range(0, 14, 2):
        log.write(header(sequence, 2))
    for sequence in range(4, 14, 2):
        assert log.states.check(header(sequence, 2)) == Written(
            sequence, sequence + 1, sequence, sequence + 1
        )
    assert log.refuses(header(2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_same_first_sequence_with_another_length_is_no_repetition(log: Log) -> None:
    log.write(header(0, 2))
    assert log.refuses(header(0, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(header(1, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 1, 3, 4, TOP])
def test_anything_but_the_next_sequence_is_out_of_order(log: Log, sequence: int) -> None:
    log.write(header(1))
    if sequence == 1:
        assert log.write(header(1)) == 0
    else:
        assert log.refuses(header(sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_largest_sequence_is_followed_by_zero(log: Log) -> None:
    log.write(header(TOP - 1, 2))
    assert log.refuses(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(header(0)) == 2
    assert log.write(header(TOP - 1, 2)) == 0


def test_a_batch_over_the_wrap_is_known_again(log: Log) -> None:
    log.write(header(TOP, 3))  # TOP, 0, 1
    assert log.write(header(TOP, 3)) == 0
    assert log.write(header(2)) == 3


def test_epochs(log: Log) -> None:
    log.write(header(0, epoch=3))
    assert log.refuses(header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuses(header(0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH, "not even as a repetition"
    assert log.refuses(header(1, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(header(0, epoch=4)) == 1, "a new batch, though sequence 0 was seen in epoch 3"
    assert log.refuses(header(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_epoch_alone_can_be_asked_for(log: Log) -> None:
    """As the coordinator does for a producer id that it has replaced since (its epochs were used up)."""
    log.states.check_epoch(7, 0)
    log.write(header(0, epoch=3))
    for epoch in (3, 4):
        log.states.check_epoch(7, epoch)
    log.states.check_epoch(8, 0)
    with pytest.raises(KafkaError) as caught:
        log.states.check_epoch(7, 2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_refused_batch_changes_nothing(log: Log) -> None:
    log.write(header(0))
    log.refuses(header(5, epoch=1))
    assert log.write(header(1)) == 1


def test_a_plain_write_inside_a_transaction_is_refused(log: Log) -> None:
    log.write(header(0, transactional=True))
    assert log.refuses(header(1)) is ErrorCode.INVALID_TXN_STATE
    log.mark(True)
    assert log.write(header(1)) == 2


def test_a_stale_epoch_comes_before_the_transaction_state(log: Log) -> None:
    log.write(header(0, transactional=True, epoch=1))
    assert log.refuses(header(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_repetitions_inside_a_transaction(log: Log) -> None:
    log.write(header(0, transactional=True))
    assert log.write(header(0, transactional=True)) == 0
    assert log.states.ongoing(7) == 0


@pytest.mark.parametrize("commit", [True, False])
def test_a_batch_of_an_ended_transaction_is_no_repetition(log: Log, commit: bool) -> None:
    """A client that dropped a batch it was not told of may use its sequences again in the next transaction.

    librdkafka does so after an abort. Told that it is a repetition, it would commit a transaction whose
    records are not in the log.
    """
    log.write(header(0, 2, transactional=True))
    log.write(header(2, 3, transactional=True))
    log.mark(commit)
    assert log.refuses(header(2, 3, transactional=True)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(header(0, 2, transactional=True)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.write(header(5, transactional=True)) == 6
    assert log.write(header(5, transactional=True)) == 6


def test_sequences_go_on_after_a_marker_of_the_same_epoch_and_restart_in_a_new_one(log: Log) -> None:
    log.write(header(0, transactional=True))
    log.mark(True)
    assert log.write(header(1, transactional=True)) == 2
    log.mark(True, epoch=1)
    assert log.refuses(header(2, transactional=True, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refuses(header(2, transactional=True, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.write(header(0, transactional=True, epoch=1)) == 4


def test_markers_of_old_epochs_and_old_coordinators_are_refused(log: Log) -> None:
    log.write(header(0, transactional=True, epoch=2))
    log.mark(True, epoch=2, coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        log.mark(True, epoch=1, coordinator_epoch=5)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as caught:
        log.mark(True, epoch=2, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.mark(False, epoch=2, coordinator_epoch=5) is None, "a repeated marker ends nothing"


@pytest.mark.parametrize(("epoch", "late"), [(3, True), (32766, True), (32767, False)])
def test_a_marker_of_tv2_is_above_the_epoch_of_its_records(log: Log, epoch: int, late: bool) -> None:
    """KIP-1228; the very last epoch, which no client is given, can be ended at itself."""
    log.states.check_marker(7, epoch, 0, 2)
    log.write(header(0, transactional=True, epoch=epoch))
    log.states.check_marker(7, epoch, 0, 0)
    log.states.check_marker(7, epoch + 1, 0, 2)
    if late:
        with pytest.raises(KafkaError, match="belongs to an earlier transaction") as caught:
            log.states.check_marker(7, epoch, 0, 2)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    else:
        log.states.check_marker(7, epoch, 0, 2)
    log.mark(True, epoch=epoch)
    log.states.check_marker(7, epoch, 0, 2)


def test_coordinator_batches_need_no_sequence_but_the_epoch(log: Log) -> None:
    log.write(header(-1, transactional=True), coordinator=True)
    log.write(header(-1, transactional=True), coordinator=True)
    assert log.states.ongoing(7) == 0
    assert log.end == 2, "two batches without sequence are two batches"
    log.mark(True, epoch=1)
    with pytest.raises(KafkaError) as caught:
        log.states.check(header(-1, transactional=True), coordinator=True)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_last_stable_offset(log: Log) -> None:
    log.write(header(0, 3, pid=1))
    assert log.states.last_stable_offset(3) == 3
    log.write(header(0, pid=1 + 1, transactional=True))  # offset 3
    log.write(header(0, pid=3, transactional=True))  # offset 4
    assert log.states.last_stable_offset(5) == 3
    assert log.states.last_stable_offset(2) == 2, "never above the high watermark"
    assert log.mark(False, pid=2) == AbortedTransaction(2, 3, 5, 4), "producer 3 is still open at 4"
    assert log.states.last_stable_offset(5) == 3, "the marker at 5 is not durable yet"
    assert log.states.last_stable_offset(6) == 4
    assert log.mark(True, pid=3) is None
    assert log.states.last_stable_offset(7) == 7
    assert log.states.open_transactions() == []


def test_an_abort_without_another_open_transaction_is_stable_after_its_marker(log: Log) -> None:
    log.write(header(0, 2, transactional=True))
    assert log.mark(False) == AbortedTransaction(7, 0, 2, 3)


def test_a_marker_without_records_leaves_no_aborted_entry(log: Log) -> None:
    assert log.mark(False) is None
    assert log.refuses(header(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "its epoch is known now"
    assert log.write(header(0)) == 1


def test_idle_producers_are_forgotten_but_not_inside_a_transaction(log: Log) -> None:
    log.write(header(0, pid=1))
    log.write(header(0, pid=2, transactional=True))
    assert log.states.expire(NOW + 9, 10) == []
    assert log.states.expire(NOW + 10, 10) == [1]
    assert log.states.get(1) is None
    assert log.write(header(77, pid=1)) == 2
    assert [state.producer_id for state in log.states.all()] == [2, 1]


# -- any order -----------------------------------------------------------------------------------
# Any order of batches and markers, against a model that keeps every accepted batch and looks it all up.

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
