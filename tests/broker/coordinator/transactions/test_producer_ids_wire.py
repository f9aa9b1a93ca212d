"""Producer ids over the wire: the end of their epochs, the turn of their sequences, the last five batches."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.transactions.transaction_journal import TransactionJournal
from eoslog.broker.coordinator.transactions.transaction_state import TransactionMetadata
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import QUICK, Cluster, Producer, cluster_under_test
from tests.kit.program import until

# -- the end of epochs, the turn of sequences ----------------------------------------------------
# The end of a producer id's epochs, and the turn of its sequences, over the wire.

LAST = 32766
"""The last epoch that a client is given; 32767 is left for fencing."""
BEFORE = LAST - 2
NAMES = [f"worn-{os.getpid()}-{number}" for number in range(12)]
_FREE = iter(NAMES)
PIDS = count(5_000_000)


def wear(directory: Path) -> None:
    """Fill a data directory with ids that have used up almost all of their epochs."""
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), str(directory), BrokerConfig(), clock, GroupFlush())
    journal = TransactionJournal(topics, clock)
    for name in NAMES:
        pid = next(PIDS)
        journal.append(TransactionMetadata(name, pid, 60_000, clock.now_ms(), producer_epoch=BEFORE))
    topics.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_under_test(QUICK, tmp_path_factory.mktemp("worn"), wear) as opened:
        yield opened


@pytest.fixture
def worn(cluster: Cluster) -> Producer:
    """A producer at epoch 32765; on Kafka it takes as many requests to get there."""
    producer = Producer(cluster, next(_FREE))
    assert producer.init() == 0
    while producer.epoch < LAST - 1:
        assert producer.init() == 0
    assert producer.epoch == LAST - 1
    return producer


def ask(producer: Producer, pid: int, epoch: int) -> object:
    code = producer.init(5, producer_id=pid, producer_epoch=epoch)
    return code or (producer.pid, producer.epoch)


def test_init_goes_over_to_a_new_producer_id(worn: Producer) -> None:
    pid = worn.pid
    assert worn.init() == 0
    assert (worn.pid, worn.epoch) == (pid, LAST)
    assert worn.init() == 0
    assert worn.pid != pid
    assert worn.epoch == 0
    assert worn.add(pid=pid, epoch=LAST) == E.INVALID_PRODUCER_ID_MAPPING


def test_going_on_at_the_last_epoch(worn: Producer) -> None:
    pid = worn.pid
    assert ask(worn, pid, LAST - 1) == (pid, LAST)
    assert ask(worn, pid, LAST) == (worn.pid, 0)
    new = worn.pid
    assert new != pid
    assert ask(worn, pid, LAST) == (new, 0), "the answer was lost"
    assert ask(worn, pid, LAST - 1) == E.PRODUCER_FENCED
    assert ask(worn, new, 0) == (new, 1)
    assert ask(worn, pid, LAST) == E.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [False, True], ids=["abort", "commit"])
def test_an_end_of_tv2_at_the_last_epoch(worn: Producer, commit: bool) -> None:
    pid = worn.pid
    assert worn.init() == 0
    assert worn.epoch == LAST
    assert worn.produce(version=12) == 0
    end = worn.log_end()
    assert worn.end(commit, 5) == 0
    new = worn.pid
    assert new != pid
    assert worn.epoch == 0
    assert worn.log_end(committed=True) == end + 1, "its marker is written, and read past"
    assert worn.end(commit, 5, pid=pid, epoch=LAST) == 0, "a retry under the old producer id"
    assert (worn.pid, worn.epoch) == (new, 0)
    assert worn.end(not commit, 5, pid=pid, epoch=LAST) == E.INVALID_TXN_STATE
    assert worn.end(commit, 5, pid=pid, epoch=LAST - 1) == E.INVALID_PRODUCER_ID_MAPPING
    assert worn.produce(1, 12, pid=pid, epoch=LAST) == E.INVALID_PRODUCER_EPOCH
    assert worn.produce(version=12) == 0
    assert worn.end(commit, 5) == 0
    assert (worn.pid, worn.epoch) == (new, 1)


def test_tv1_stays_at_the_last_epoch(worn: Producer) -> None:
    pid = worn.pid
    assert worn.init() == 0
    for sequence in range(3):
        assert worn.add() == worn.produce(sequence) == worn.end(True) == 0
    assert (worn.pid, worn.describe()["producer_epoch"]) == (pid, LAST)


def test_fencing_at_the_last_epoch(worn: Producer) -> None:
    pid = worn.pid
    assert worn.init() == 0
    assert worn.produce(version=12) == 0
    end = worn.log_end()
    assert worn.init() == E.CONCURRENT_TRANSACTIONS
    worn.settle()
    assert worn.log_end(committed=True) == end + 1
    assert worn.produce(1, 12, pid=pid, epoch=LAST) == E.INVALID_PRODUCER_EPOCH
    assert worn.init() == 0
    assert worn.pid != pid
    assert worn.epoch == 1, "epoch 0 was the aborted one's"


def test_keeping_at_the_last_epoch(worn: Producer) -> None:
    """KIP-939: the holder goes over to a new producer id, the markers carry the old one."""
    if worn.cluster.kafka:
        pytest.skip("Kafka 4.3 has no keepPreparedTxn")
    pid = worn.pid
    assert worn.init(6, enable2_pc=True) == 0
    assert worn.produce(version=12) == 0
    end = worn.log_end()
    assert worn.init(6, 1, enable2_pc=True, keep_prepared_txn=True) == 0
    new = worn.pid
    assert (worn.last["ongoing_txn_producer_id"], worn.last["ongoing_txn_producer_epoch"]) == (pid, LAST)
    assert new != pid
    assert worn.epoch == 0
    assert worn.end(True, 5, pid=pid, epoch=LAST) == E.PRODUCER_FENCED
    assert worn.log_end(committed=True) == end - 1
    assert worn.end(True, 5) == 0
    assert (worn.pid, worn.epoch) == (new, 1)
    assert worn.log_end(committed=True) == end + 1


def test_a_time_out_at_the_last_epoch(worn: Producer) -> None:
    pid = worn.pid
    assert worn.init(timeout_ms=100) == 0
    assert worn.produce(version=12) == 0
    until(lambda: worn.state() == "CompleteAbort", "it is aborted", 10)
    described = worn.describe()
    assert described["producer_id"] != pid
    assert described["producer_epoch"] == 0
    assert worn.end(True, 5, through=False) == E.INVALID_TXN_STATE
    assert worn.end(False, 5) == 0
    assert (worn.pid, worn.epoch) == (described["producer_id"], 0)


# Sequences


TOP = 2**31 - 1


def test_the_largest_sequence_is_followed_by_0(cluster: Cluster) -> None:
    """A batch across the turn, and its repetition: the first batch may have any sequence."""
    plain = Producer(cluster, None)  # type: ignore[arg-type]
    assert plain.init() == 0
    assert plain.produce(TOP - 1, transactional=False) == 0

    assert plain.produce(TOP, transactional=False, count=3) == 0, "largest, 0, 1"
    offset = plain.last["base_offset"]
    assert plain.produce(0, transactional=False) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert plain.produce(TOP, transactional=False, count=3) == 0
    assert plain.last["base_offset"] == offset, "it was not written again"
    assert plain.produce(2, transactional=False) == 0
    assert plain.last["base_offset"] == offset + 3


# -- the last five batches -----------------------------------------------------------------------
# The last five batches of a producer are known again after any end of the broker, over the wire.
#
# Kafka keeps one across a restart: there a batch sent again after a crash may be written twice, or refused.

SIZES = [1, 3, 2, 1, 4, 1, 2]
"""Records of the batches sent; the last five are remembered."""


def reopen(cluster: Cluster, broker: EmbeddedBroker, end: str) -> None:
    """End the broker in an orderly way, by SIGKILL, or by both in turn, and start it again."""
    for way in {"clean": ["clean"], "kill": ["kill"], "both": ["clean", "kill", "clean"]}[end]:
        broker.stop() if way == "clean" else broker.kill()
        broker.start()
    cluster.reconnect()


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker is restarted")
@pytest.mark.parametrize(
    ("transactional", "end", "flush"),
    [(False, "clean", "fsync"), (False, "kill", "os"), (True, "both", "fsync")],
)
def test_repetitions_after_a_restart(tmp_path: Path, end: str, flush: str, transactional: bool) -> None:
    with EmbeddedBroker(tmp_path, flush=flush) as broker, Cluster(broker.host, broker.port) as cluster:
        producer = Producer(cluster, "p" if transactional else None)  # type: ignore[arg-type]
        assert producer.init() == 0
        version = 12 if transactional else 9
        sent: list[tuple[int, int, int]] = []
        sequence = 2**31 - 5
        if transactional:
            sequence = 0
        for size in SIZES:
            assert producer.produce(sequence, version, count=size, transactional=transactional) == 0
            sent.append((sequence, size, producer.last["base_offset"]))
            sequence = (sequence + size) % 2**31
        length = producer.log_end()
        reopen(cluster, broker, end)

        def again(first: int, size: int) -> int:
            return producer.produce(first, version, count=size, transactional=transactional)

        for first, size, offset in sent[-5:]:
            assert again(first, size) == 0
            assert producer.last["base_offset"] == offset
        for first, size, _ in sent[:-5]:
            assert again(first, size) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert again(sequence + 1, 1) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert producer.log_end() == length, "nothing was written again"
        assert again(sequence, 1) == 0
        assert producer.last["base_offset"] == length
        if transactional:
            assert producer.end(True, 5) == 0
            assert producer.log_end(committed=True) == length + 2


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker is restarted")
@pytest.mark.parametrize(("tv2", "end"), [(False, "kill"), (False, "clean"), (True, "kill")])
def test_a_batch_of_an_ended_transaction_after_a_restart(tmp_path: Path, end: str, tv2: bool) -> None:
    """It is no repetition, whatever its sequence: librdkafka uses those of dropped batches once more."""
    with EmbeddedBroker(tmp_path) as broker, Cluster(broker.host, broker.port) as cluster:
        producer = Producer(cluster, "p")
        producer.begin("CompleteAbort", tv2)
        length = producer.log_end()
        reopen(cluster, broker, end)
        if tv2:
            stale = producer.produce(0, 12, epoch=producer.epoch - 1)
            assert stale == E.INVALID_PRODUCER_EPOCH
            assert producer.produce(0, 12) == 0
        else:
            assert producer.add() == 0
            assert producer.produce(0) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert producer.produce(1) == 0
        assert producer.last["base_offset"] == length


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker is restarted")
def test_a_kept_transaction_survives_the_broker(tmp_path: Path) -> None:
    """KIP-939: both pairs of producer id and epoch are in the log."""
    with EmbeddedBroker(tmp_path) as broker, Cluster(broker.host, broker.port) as cluster:
        old = Producer(cluster, "p")
        assert old.init(6, enable2_pc=True) == old.produce(version=12) == 0
        new = Producer(cluster, "p")
        for times, end in ((1, "kill"), (2, "clean")):
            assert new.init(6, enable2_pc=True, keep_prepared_txn=True) == 0
            assert (new.pid, new.epoch) == (old.pid, old.epoch + times)
            ongoing = (new.last["ongoing_txn_producer_id"], new.last["ongoing_txn_producer_epoch"])
            assert ongoing == (old.pid, old.epoch)
            reopen(cluster, broker, end)
            assert old.end(True, 5) == E.PRODUCER_FENCED
            assert new.add() == E.INVALID_TXN_STATE
        assert new.end(True, 5) == 0
        epoch = new.epoch
        reopen(cluster, broker, "kill")
        assert new.end(True, 5, epoch=epoch - 1) == 0, "a retry"
        assert new.epoch == epoch
        assert new.produce(version=12) == new.end(True, 5) == 0
