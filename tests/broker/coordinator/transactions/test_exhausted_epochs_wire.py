"""The end of a producer id's epochs, and the turn of its sequences, over the wire."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.coordinator.transactions.transaction_journal import TransactionJournal
from eoslog.broker.coordinator.transactions.transaction_state import TransactionMetadata
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.ports.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer
from tests.kit.waiting import until

LAST = 32766
"""The last epoch that a client is given; 32767 is left for fencing."""
BEFORE = LAST - 2
NAMES = [f"worn-{os.getpid()}-{number}" for number in range(12)]
_FREE = iter(NAMES)
PIDS = count(5_000_000)


def wear(directory: Path) -> None:
    """A data directory whose ids have used up almost all of their epochs."""
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), str(directory), BrokerConfig(), clock, GroupFlush())
    journal = TransactionJournal(topics, clock)
    for name in NAMES:
        pid = next(PIDS)
        journal.append(TransactionMetadata(name, pid, 60_000, clock.now_ms(), producer_epoch=BEFORE))
    topics.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    given = os.environ.get("EOSLOG_TEST_BOOTSTRAP")
    if given:
        host, _, port = given.rpartition(":")
        with Cluster(host, int(port), kafka=True) as opened:
            yield opened
        return
    directory = tmp_path_factory.mktemp("worn")
    wear(directory)
    fast = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
    with EmbeddedBroker(directory, config=fast) as broker, Cluster(broker.host, broker.port) as opened:
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
