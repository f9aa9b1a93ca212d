"""The last five batches of a producer are known again after any end of the broker, over the wire.

Kafka keeps one across a restart: there a batch sent again after a crash may be written twice, or refused.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer

pytestmark = pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker is restarted")

SIZES = [1, 3, 2, 1, 4, 1, 2]
"""Records of the batches sent; the last five are remembered."""


def reopen(cluster: Cluster, broker: EmbeddedBroker, end: str) -> None:
    """End the broker in an orderly way, by SIGKILL, or by both in turn, and start it again."""
    for way in {"clean": ["clean"], "kill": ["kill"], "both": ["clean", "kill", "clean"]}[end]:
        broker.stop() if way == "clean" else broker.kill()
        broker.start()
    cluster.reconnect()


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
