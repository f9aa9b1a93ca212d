"""EndTxn, InitProducerId, AddPartitionsToTxn and their like over the wire: each cell of the tables.

Cells of PrepareCommit and PrepareAbort, which pass in a moment, are in `test_prepared_wire`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from eoslog.protocol.errors import ErrorCode as E
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer
from tests.kit.program import until

STATES = ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"]
OK, BUMP = 0, "bump"
INVALID, FENCED, BUSY, MAPPING = (
    E.INVALID_TXN_STATE, E.PRODUCER_FENCED, E.CONCURRENT_TRANSACTIONS, E.INVALID_PRODUCER_ID_MAPPING,
)  # fmt: skip


def fenced(version: int, since: int) -> E:
    """PRODUCER_FENCED as a client of this version knows it (KIP-588)."""
    return E.PRODUCER_FENCED if version >= since else E.INVALID_PRODUCER_EPOCH


# EndTxn


@pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", [1, 3, 4])
def test_end_txn_of_tv1(producer: Producer, state: str, version: int, commit: bool) -> None:
    producer.begin(state, tv2=False)
    for wrong in (-1, +1):
        assert producer.end(commit, version, epoch=producer.epoch + wrong) == fenced(version, 2)
    assert producer.end(commit, version, pid=producer.pid + 10_000) == MAPPING
    same = state == ("CompleteCommit" if commit else "CompleteAbort")
    expected = OK if same or state == "Ongoing" else INVALID
    assert producer.end(commit, version) == expected
    if state == "Ongoing":
        assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert producer.end(commit, version) == OK, "however often it is asked"
        assert producer.end(not commit, version) == INVALID
    assert producer.describe()["producer_epoch"] == producer.epoch, "TV1 keeps the epoch"


# (state, commit): (retry, current)
TV2_TABLE: dict[tuple[str, bool], tuple[object, object]] = {
    ("Empty", False): (FENCED, BUMP),
    ("Empty", True): (FENCED, INVALID),
    ("Ongoing", False): (FENCED, BUMP),
    ("Ongoing", True): (FENCED, BUMP),
    ("CompleteAbort", False): (OK, BUMP),
    ("CompleteAbort", True): (INVALID, INVALID),
    ("CompleteCommit", False): (INVALID, BUMP),
    ("CompleteCommit", True): (OK, INVALID),
}


@pytest.mark.parametrize("retry", [True, False], ids=["retry", "current"])
@pytest.mark.parametrize(("state", "commit"), TV2_TABLE)
def test_end_txn_of_tv2(producer: Producer, state: str, commit: bool, retry: bool) -> None:
    producer.begin(state, tv2=True)
    pid, epoch = producer.pid, producer.epoch
    assert producer.end(commit, 5, epoch=epoch + 1) == FENCED
    assert producer.end(commit, 5, pid=pid + 10_000) == MAPPING
    expected = TV2_TABLE[state, commit][0 if retry else 1]
    code = producer.end(commit, 5, epoch=epoch - 1 if retry else epoch)
    if expected == BUMP:
        assert (code, producer.pid, producer.epoch) == (0, pid, epoch + 1)
        assert producer.state() == ("CompleteCommit" if commit else "CompleteAbort")
        assert producer.end(commit, 5, epoch=epoch) == 0, "a retry"
    else:
        assert code == expected
    if expected == OK:
        assert (producer.pid, producer.epoch) == (pid, epoch)


@pytest.mark.parametrize("version", [1, 2, 4, 5])
def test_end_txn_of_nobody(producer: Producer, version: int) -> None:
    assert producer.end(True, version, pid=1, epoch=0) == MAPPING
    assert producer.end(True, version, pid=1, epoch=0, name="") == E.INVALID_REQUEST


# InitProducerId


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", range(7))
def test_init_producer_id_in_every_state(producer: Producer, state: str, version: int, tv2: bool) -> None:
    producer.begin(state, tv2)
    pid, epoch = producer.pid, producer.epoch
    code = producer.init(version)
    if state == "Ongoing":
        assert code == BUSY
        producer.settle()
        assert producer.state() == "CompleteAbort"
        assert producer.describe()["producer_epoch"] == epoch + 1
        assert producer.init(version) == 0
        epoch += 1
    assert (producer.pid, producer.epoch) == (pid, epoch + 1)
    assert producer.state() == "Empty"
    assert producer.add(epoch=epoch) == FENCED


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("state", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_going_on_after_an_error(producer: Producer, state: str, version: int) -> None:
    """KIP-360: the current epoch is bumped, the last one answered again, all others are fenced."""
    producer.begin(state, tv2=False)
    pid, epoch = producer.pid, producer.epoch

    def ask(pid: int, epoch: int) -> object:
        code = producer.init(version, producer_id=pid, producer_epoch=epoch)
        return code or (producer.pid, producer.epoch)

    for wrong in [(pid, epoch + 1), (pid, epoch - 1), (pid + 10_000, epoch)]:
        assert ask(*wrong) == fenced(version, 4)
    assert ask(pid, epoch) == (pid, epoch + 1)
    assert ask(pid, epoch) == (pid, epoch + 1), "the answer was lost"
    assert ask(pid, epoch + 1) == (pid, epoch + 2)
    assert ask(pid, epoch) == fenced(version, 4), "two epochs ago"
    assert producer.init(version) == 0
    assert ask(pid, epoch + 1) == fenced(version, 4), "a new user ends the retries of the old one"


def test_going_on_after_an_end_of_tv2(producer: Producer) -> None:
    producer.begin("CompleteCommit", tv2=True)
    epoch = producer.epoch
    assert producer.init(5, producer_id=producer.pid, producer_epoch=epoch - 1) == 0
    assert producer.epoch == epoch, "who missed the answer of EndTxn gets the epoch that it gave"


@pytest.mark.parametrize("version", [3, 4])
def test_going_on_with_an_open_transaction(producer: Producer, version: int) -> None:
    producer.begin("Ongoing", tv2=False)
    assert producer.init(version, producer_id=producer.pid, producer_epoch=producer.epoch) == BUSY
    producer.settle()
    assert producer.state() == "CompleteAbort"
    assert producer.init(version, producer_id=producer.pid, producer_epoch=producer.epoch) == 0


@pytest.mark.parametrize("timeout", [0, -1, 900_001, -(2**31)])
@pytest.mark.parametrize("version", [0, 3, 5])
def test_time_outs_out_of_range(producer: Producer, version: int, timeout: int) -> None:
    assert producer.init(version, timeout) == E.INVALID_TRANSACTION_TIMEOUT
    assert producer.init(version, 900_000) == producer.init(version, 1) == 0


def test_empty_ids_and_half_a_producer(producer: Producer) -> None:
    assert Producer(producer.cluster, "").init() == E.INVALID_REQUEST
    assert producer.init(4, producer_id=1) == E.INVALID_REQUEST
    assert producer.init(4, producer_epoch=1) == E.INVALID_REQUEST


def test_without_a_transactional_id_each_gets_a_producer_id(cluster: Cluster) -> None:
    ids = set()
    for version in range(7):
        plain = Producer(cluster, None)  # type: ignore[arg-type]
        assert (plain.init(version, timeout_ms=0), plain.epoch) == (0, 0)
        ids.add(plain.pid)
    assert len(ids) == 7


# Joining a transaction


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_add_partitions(producer: Producer, version: int) -> None:
    assert producer.add(version=version, pid=1, epoch=0) == MAPPING
    assert producer.init() == producer.init() == 0
    for wrong in (-1, 1):
        assert producer.add(version=version, epoch=producer.epoch + wrong) == fenced(version, 2)
    assert producer.add(version=version, pid=producer.pid + 10_000) == MAPPING
    unknown = producer.add((0, 0), (-1, 0), version=version)
    assert unknown == [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.state() == "Empty", "all or nothing"
    assert producer.add((0, 0), (0, 1), version=version) == 0
    assert producer.add((0, 0), version=version) == 0
    assert producer.state() == "Ongoing"
    assert [sorted(topic["partitions"]) for topic in producer.describe()["topics"]] == [[0, 1]]


@pytest.mark.parametrize("version", [4, 5])
def test_verify_only(producer: Producer, version: int) -> None:
    """As brokers ask each other: AddPartitionsToTxn that adds nothing (KIP-890)."""
    # The message says that the code is known since version 5; Kafka answers it in version 4, too.
    abortable = E.TRANSACTION_ABORTABLE if version >= 5 or producer.cluster.kafka else INVALID
    assert producer.add(version=version, pid=1, epoch=0, verify=True) == MAPPING
    producer.begin("Empty", tv2=False)
    assert producer.add(version=version, verify=True) == abortable
    assert producer.add((0, 0)) == 0
    assert producer.add((0, 0), version=version, verify=True) == 0
    assert producer.add((0, 0), (0, 1), version=version, verify=True) == [0, abortable]
    assert producer.add(version=version, verify=True, epoch=producer.epoch - 1) == FENCED
    assert producer.state() == "Ongoing"
    assert len(producer.describe()["topics"]) == 1


@pytest.mark.parametrize("version", range(5))
def test_add_offsets(producer: Producer, version: int) -> None:
    assert producer.add_offsets(version, pid=1, epoch=0) == MAPPING
    assert producer.init() == producer.init() == 0
    for wrong in (-1, 1):
        assert producer.add_offsets(version, epoch=producer.epoch + wrong) == fenced(version, 2)
    assert producer.add_offsets(version) == 0
    assert producer.describe()["topics"][0]["topic"] == "__consumer_offsets"


@pytest.mark.parametrize(
    ("version", "outside"),
    [(0, INVALID), (3, INVALID), (4, E.TRANSACTION_ABORTABLE), (5, 0)],
)
def test_offsets_in_a_transaction(producer: Producer, version: int, outside: int) -> None:
    assert producer.init() == producer.init() == 0
    assert producer.offsets(version) == outside
    if version < 5:
        assert producer.add_offsets() == 0
        assert producer.offsets(version) == 0
    assert producer.offsets(version, epoch=producer.epoch - 1) == E.INVALID_PRODUCER_EPOCH
    assert producer.end(True, 5) == 0


@pytest.mark.parametrize(
    ("version", "outside"),
    [(3, INVALID), (9, INVALID), (10, INVALID), (11, E.TRANSACTION_ABORTABLE), (12, 0)],
)
def test_writing_outside_of_the_transaction(producer: Producer, version: int, outside: int) -> None:
    """KIP-890: up to version 11 the partition has to be in the transaction, 12 adds it."""
    assert producer.init() == producer.init() == 0
    assert producer.produce(version=version) == outside
    if version < 12:
        assert producer.add() == 0
        assert producer.produce(version=version) == 0
    assert producer.state() == "Ongoing"
    assert producer.end(True, 5 if version == 12 else 3) == 0
    assert producer.produce(sequence=1 if version < 12 else 0, version=version) == outside


@pytest.mark.parametrize("version", [9, 11, 12])
def test_writing_as_somebody_else(producer: Producer, version: int) -> None:
    assert producer.init() == producer.init() == 0
    assert producer.add() == producer.produce() == 0
    assert producer.produce(1, version, epoch=producer.epoch - 1) == E.INVALID_PRODUCER_EPOCH
    assert producer.produce(1, version, transactional=False) == INVALID
    if not producer.cluster.kafka:  # which asks for the id only where the first batch opens the transaction
        assert producer.produce(1, version, name="somebody") == MAPPING
    assert producer.produce(1, version) == 0


def test_a_new_producer_of_tv2_begins_with_sequence_0(producer: Producer) -> None:
    assert producer.init() == 0
    assert producer.produce(3, version=12) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(0, version=12) == 0


@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_a_late_batch_of_an_ended_transaction(producer: Producer, tv2: bool) -> None:
    producer.begin("CompleteCommit", tv2)
    before = producer.epoch - 1 if tv2 else producer.epoch
    expected = E.INVALID_PRODUCER_EPOCH if tv2 else INVALID
    assert producer.produce(1, version=12 if tv2 else 9, epoch=before) == expected
    view = producer.partition_view()
    assert view is not None
    assert (view["producer_epoch"], view["current_txn_start_offset"]) == (producer.epoch, -1)


# Time-outs (KIP-588)


@pytest.fixture
def timed_out(producer: Producer) -> Producer:
    assert producer.init() == producer.init(timeout_ms=100) == 0
    assert producer.produce(version=12) == 0
    until(lambda: producer.state() == "CompleteAbort")
    assert producer.describe()["producer_epoch"] == producer.epoch + 1
    return producer


def test_after_a_time_out(timed_out: Producer) -> None:
    answers: dict[str, Any] = {
        "commit 5": timed_out.end(True, 5, through=False),
        "commit 4": timed_out.end(True, 4),
        "commit 1": timed_out.end(True, 1),
        "abort 4": timed_out.end(False, 4),
        "abort 5": timed_out.end(False, 5, through=False),
        "produce 12": timed_out.produce(1, version=12),
        "produce 9": timed_out.produce(1, version=9),
        "add 3": timed_out.add(),
        "add 1": timed_out.add(version=1),
        "add offsets": timed_out.add_offsets(),
        "offsets 5": timed_out.offsets(5),
    }
    assert answers == {
        "commit 5": INVALID, "commit 4": FENCED, "commit 1": E.INVALID_PRODUCER_EPOCH,
        "abort 4": FENCED, "abort 5": OK,
        "produce 12": E.INVALID_PRODUCER_EPOCH, "produce 9": E.INVALID_PRODUCER_EPOCH,
        "add 3": FENCED, "add 1": E.INVALID_PRODUCER_EPOCH, "add offsets": FENCED,
        "offsets 5": E.INVALID_PRODUCER_EPOCH,
    }  # fmt: skip


def test_going_on_after_a_time_out(timed_out: Producer) -> None:
    epoch = timed_out.epoch
    assert timed_out.init(5, producer_id=timed_out.pid, producer_epoch=epoch) == 0
    assert timed_out.epoch == epoch + 1, "the epoch that the abort left, not one more"
    assert timed_out.produce(0, version=12) == 0


def test_an_empty_transaction_does_not_time_out(producer: Producer) -> None:
    assert producer.init(timeout_ms=1) == 0
    time.sleep(0.5)
    assert producer.state() == "Empty"


# Two-phase commit (KIP-939)


def test_two_phase_commit_does_not_time_out(producer: Producer) -> None:
    assert producer.init(6, 1, enable2_pc=True) == 0
    assert producer.produce(version=12) == 0
    time.sleep(0.6)
    assert producer.state() == "Ongoing"
    assert producer.describe()["transaction_timeout_ms"] == 2**31 - 1
    assert producer.init(6, 1, enable2_pc=True) == BUSY, "a new user aborts it all the same"
    producer.settle()
    assert producer.end(False, 5, through=False) == 0


@pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])
def test_a_prepared_transaction_survives_its_producer(producer: Producer, commit: bool) -> None:
    if producer.cluster.kafka:
        assert producer.init(6, 1, keep_prepared_txn=True) == E.UNSUPPORTED_VERSION, "not in Kafka 4.3"
        return
    assert producer.init(6, 1, enable2_pc=True) == 0
    assert producer.produce(version=12) == 0
    pid, epoch = producer.pid, producer.epoch
    new = Producer(producer.cluster, producer.name)
    assert new.init(6, 1, enable2_pc=True, keep_prepared_txn=True) == 0
    assert (new.last["ongoing_txn_producer_id"], new.last["ongoing_txn_producer_epoch"]) == (pid, epoch)
    assert (new.pid, new.epoch) == (pid, epoch + 1)
    assert producer.produce(1, version=12) == E.INVALID_PRODUCER_EPOCH
    assert producer.end(True, 5) == FENCED
    assert new.add() == INVALID
    assert new.produce(version=12) == INVALID
    assert new.offsets(5) == E.TRANSACTION_ABORTABLE
    assert new.end(commit, 5) == 0
    assert (new.pid, new.epoch) == (pid, epoch + 2)
    view = new.partition_view()
    assert view is not None
    assert (view["producer_epoch"], view["current_txn_start_offset"]) == (epoch + 1, -1)
    assert new.produce(version=12) == 0
    assert new.end(True, 5) == 0


def test_keeping_where_nothing_is_open(producer: Producer) -> None:
    if producer.cluster.kafka:
        pytest.skip("Kafka 4.3 has no keepPreparedTxn")
    for state in ("Empty", "CompleteCommit", "CompleteAbort"):
        mine = Producer(producer.cluster, f"{producer.name}-{state}")
        mine.begin(state, tv2=True)
        epoch = mine.epoch
        assert mine.init(6, 1, keep_prepared_txn=True, enable2_pc=True) == 0
        assert (mine.epoch, mine.last["ongoing_txn_producer_id"]) == (epoch + 1, -1)


# -- a stranger's epoch --------------------------------------------------------------------------
# A plain idempotent producer that uses the producer id of somebody else's transactional id.
#
# Apache Kafka 4.3.1 takes such a batch whatever its epoch. With epoch 32767 the rightful producer cannot
# write to the partition any more, and under transaction.version 1 its id stays in PrepareAbort for ever.


def stranger(victim: Producer) -> Producer:
    """Who knows the producer id, which is no secret: DescribeProducers and the log tell it."""
    other = Producer(victim.cluster, "stranger")
    other.pid = victim.pid
    return other


@pytest.mark.parametrize("ahead", [1, 1000, 32767])
@pytest.mark.parametrize("tv2", [False, True], ids=["TV1", "TV2"])
def test_an_epoch_that_was_never_given_out_is_refused(producer: Producer, tv2: bool, ahead: int) -> None:
    assert producer.init() == 0
    other = stranger(producer)
    other.epoch = min(producer.epoch + ahead, 32767)
    assert other.produce(transactional=False, version=12 if tv2 else 9) == E.INVALID_PRODUCER_EPOCH
    if not tv2:
        assert producer.add() == 0
    assert producer.produce(version=12 if tv2 else 9) == 0
    assert producer.end(True, 5 if tv2 else 3) == 0 and producer.state() == "CompleteCommit"
    assert producer.init() == 0


def test_its_own_epoch_may_be_used_plainly(producer: Producer) -> None:
    """As by Apache Kafka, whose transactional producers never do so."""
    assert producer.init() == 0
    assert producer.produce(transactional=False) == 0


def test_producer_ids_without_a_transactional_id_are_free(producer: Producer, cluster: Cluster) -> None:
    producer.pid, producer.epoch = 10**12, 5
    assert producer.produce(transactional=False) == 0
