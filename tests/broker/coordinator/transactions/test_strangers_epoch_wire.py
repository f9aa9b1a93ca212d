"""A plain idempotent producer that uses the producer id of somebody else's transactional id.

Apache Kafka 4.3.1 takes such a batch whatever its epoch. With epoch 32767 the rightful producer cannot write
to the partition any more, and under transaction.version 1 its id stays in PrepareAbort for ever.
"""

from __future__ import annotations

import pytest

from eoslog.protocol.errors import ErrorCode as E
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer


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
