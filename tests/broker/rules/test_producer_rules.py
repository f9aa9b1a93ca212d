"""The idempotence and transaction rules of a partition, case by case (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import pytest

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
