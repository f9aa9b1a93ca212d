"""Requests that arrive over the wire while a transaction is prepared, each cell of the tables.

The disk refuses the markers for as long as the test wants, so that PrepareCommit and PrepareAbort, which pass
in a moment else, stay. (Apache Kafka answers EndTxn before it writes them; after it, it answers as here.)
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import count

import pytest

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer
from tests.kit.waiting import until

NUMBERS = count()
OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""What could not be written is tried again with each look for time-outs."""

BUSY = E.CONCURRENT_TRANSACTIONS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=OFTEN, faults=True) as started:
        yield started


@pytest.fixture(scope="module")
def cluster(broker: EmbeddedBroker) -> Iterator[Cluster]:
    with Cluster(broker.host, broker.port) as opened:
        yield opened


@pytest.fixture(params=[3, 5], ids=["tv1", "tv2"])
def version(request: pytest.FixtureRequest) -> int:
    """Of EndTxn: it says which protocol the client speaks."""
    return int(request.param)


@pytest.fixture(params=[False, True], ids=["abort", "commit"])
def commit(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def end_of(cluster: Cluster) -> int:
    """The end of the partition that is written to, uncommitted records and markers included."""
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    answer = cluster.wire.call(
        ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0,
        topics=[{"name": cluster.topics[0], "partitions": [asked]}],
    )  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["offset"])


@pytest.fixture
def prepared(broker: EmbeddedBroker, cluster: Cluster, version: int, commit: bool) -> Iterator[Producer]:
    """A producer whose transaction is prepared, and cannot be completed before the test is over."""
    producer = Producer(cluster, f"prepared-{next(NUMBERS)}")
    state, before = ("Commit" if commit else "Abort"), end_of(cluster)
    until(lambda: producer.init() == E.NONE)
    assert (producer.add(), producer.produce()) == (E.NONE, E.NONE)
    refusing = broker.faults.fail_write(errno=errno.ENOSPC, times=1 << 30, path=f"/{cluster.topics[0]}-0/")
    assert producer.end(commit, version) == BUSY
    assert producer.state() == f"Prepare{state}"
    yield producer
    assert producer.state() == f"Prepare{state}", "nothing that came meanwhile has changed it"
    refusing.disarm()
    until(lambda: producer.state() == f"Complete{state}")
    assert end_of(cluster) == before + 2, "one record and one marker"
    assert producer.end(commit, version) == E.NONE, "the client repeats what it was refused"
    assert producer.init() == E.NONE


def test_a_new_life_of_the_producer_has_to_wait(prepared: Producer) -> None:
    assert prepared.init() == BUSY
    who = prepared.who(None, None)
    assert prepared.init(**who) == BUSY, "nor does it get another epoch (KIP-360)"


def test_the_same_end_has_to_wait_and_the_other_is_refused(
    prepared: Producer, version: int, commit: bool
) -> None:
    for _ in range(2):
        assert prepared.end(commit, version) == BUSY
        assert prepared.end(not commit, version) == E.INVALID_TXN_STATE
    fenced = E.PRODUCER_FENCED
    assert prepared.end(commit, version, epoch=prepared.epoch - 1) == fenced
    assert prepared.end(commit, version, epoch=prepared.epoch + 2) == fenced
    assert prepared.end(commit, version, pid=prepared.pid + 1_000) == E.INVALID_PRODUCER_ID_MAPPING


def test_nothing_joins_a_transaction_that_is_ending(prepared: Producer, version: int) -> None:
    epoch = prepared.epoch + (version >= 5)  # with TV2 its end has bumped the epoch
    for partition in ((0, 0), (0, 1), (1, 0)):
        assert prepared.add(partition, epoch=epoch) == BUSY
    assert prepared.add((0, 0), version=4, epoch=epoch, verify=True) == BUSY
    assert prepared.add_offsets(epoch=epoch) == BUSY
    if version >= 5:
        assert prepared.add(epoch=prepared.epoch) == E.PRODUCER_FENCED
