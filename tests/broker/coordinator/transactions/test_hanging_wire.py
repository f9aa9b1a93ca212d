"""Transactions that nobody ends: found and ended from outside (KIP-664), over the wire.

The data directory is seeded with records of a transaction that no transactional id knows of, as a faulty
client could leave them on brokers before KIP-890.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer
from tests.kit.waiting import until

pytestmark = pytest.mark.skipif(
    "EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded"
)

HANGING = ["one", "two", "three", "four", "five"]
"""A topic each: what a test ends is gone."""
PID, EPOCH, COORDINATOR = 7_000_000, 3, 5


def seed(directory: Path) -> None:
    clock = SystemClock()
    topics = Topics.open(OsFileSystem(), str(directory), BrokerConfig(), clock, GroupFlush())
    now = clock.now_ms()
    for name in HANGING:
        partition = topics.create(name, 1).partitions[0]
        partition.append_marker(PID, EPOCH - 1, True, COORDINATOR, now)
        batch = encode_records(
            [(b"", b"x")], now, producer_id=PID, producer_epoch=EPOCH, base_sequence=0, transactional=True
        )
        partition.append(batch, now_ms=now)
        partition.append(encode_records([(b"", b"y")], now), now_ms=now)
    topics.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("hanging")
    seed(directory)
    with EmbeddedBroker(directory) as broker, Cluster(broker.host, broker.port) as opened:
        assert "belongs to no transactional id" in broker.output()
        yield opened


@pytest.fixture
def topic() -> int:
    """Which topic the test takes: given by its parameters."""
    raise AssertionError("a test of a hanging transaction names its topic")


@pytest.fixture
def hanging(cluster: Cluster, topic: int) -> Producer:
    """The producer of a hanging transaction, on a topic of the test's own."""
    view = Cluster.__new__(Cluster)
    view.__dict__ = dict(cluster.__dict__)
    view.topics = [HANGING[topic]]
    producer = Producer(view, "nobody")
    producer.pid, producer.epoch = PID, EPOCH
    described = producer.partition_view()
    assert described is not None
    assert (described["current_txn_start_offset"], described["coordinator_epoch"]) == (1, COORDINATOR)
    assert (producer.log_end(committed=True), producer.log_end()) == (1, 3)
    assert producer.list(producer_id_filters=[PID]) == {}
    return producer


@pytest.mark.parametrize("topic", [0])
def test_who_may_end_it(hanging: Producer, topic: int) -> None:
    """Stale epochs and older coordinators are fenced; then it ends, and readers go on."""
    assert hanging.marker(False, epoch=EPOCH - 1, coordinator_epoch=9) == E.INVALID_PRODUCER_EPOCH
    assert hanging.marker(False, coordinator_epoch=COORDINATOR - 1) == E.TRANSACTION_COORDINATOR_FENCED
    assert hanging.marker(False, topic="nowhere") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert hanging.log_end(committed=True) == 1
    assert hanging.marker(False, coordinator_epoch=COORDINATOR) == 0
    assert hanging.log_end(committed=True) == hanging.log_end() == 4
    view = hanging.partition_view()
    assert view is not None
    assert view["current_txn_start_offset"] == -1
    assert hanging.marker(False, coordinator_epoch=COORDINATOR) == 0, "it may come twice"


@pytest.mark.parametrize(("topic", "commit"), [(1, False), (2, True)])
def test_markers_of_tv2_need_a_higher_epoch(hanging: Producer, topic: int, commit: bool) -> None:
    """KIP-1228: a marker at the epoch of the records could be one of the transaction before."""
    strict = {"version": 2, "transaction_version": 2, "coordinator_epoch": COORDINATOR}
    assert hanging.marker(commit, **strict) == E.INVALID_PRODUCER_EPOCH  # type: ignore[arg-type]
    assert hanging.log_end(committed=True) == 1
    for _ in range(2):
        assert hanging.marker(commit, epoch=EPOCH + 1, **strict) == 0  # type: ignore[arg-type]
    assert hanging.log_end(committed=True) == hanging.log_end()


@pytest.mark.parametrize("topic", [3])
def test_version_2_with_a_marker_of_tv1(hanging: Producer, topic: int) -> None:
    assert hanging.marker(False, version=2, coordinator_epoch=COORDINATOR) == 0
    assert hanging.log_end(committed=True) == hanging.log_end()


def test_a_transaction_of_the_coordinator_is_not_ended_from_outside(cluster: Cluster) -> None:
    """Stricter than Kafka: one partition with another outcome than the rest would tear it apart."""
    producer = Producer(cluster, "alive")
    producer.begin("Ongoing", tv2=True)
    assert producer.marker(False, coordinator_epoch=9) == E.INVALID_TXN_STATE
    assert producer.marker(False, epoch=producer.epoch + 1, coordinator_epoch=9) == E.INVALID_TXN_STATE
    assert producer.end(True, 5) == 0


@pytest.mark.parametrize("version", [0, 1, 2])
def test_list_transactions(cluster: Cluster, version: int) -> None:
    prefix = f"l{version}."
    open_, ended, empty = (Producer(cluster, prefix + name) for name in ("open", "ended", "empty"))
    open_.begin("Ongoing", tv2=True)
    ended.begin("CompleteAbort", tv2=True)
    empty.begin("Empty", tv2=True)
    mine = {prefix + "open": "Ongoing", prefix + "ended": "CompleteAbort", prefix + "empty": "Empty"}

    def ask(**filters: object) -> dict[str, str]:
        found = open_.list(version, **filters)
        return {name: state for name, state in found.items() if name.startswith(prefix) or not name}

    assert ask() == mine
    assert ask(state_filters=["Ongoing", "Nonsense"]) == {prefix + "open": "Ongoing"}
    assert open_.last["unknown_state_filters"] == ["Nonsense"]
    assert ask(producer_id_filters=[ended.pid]) == {prefix + "ended": "CompleteAbort"}
    if version >= 1:
        assert ask(duration_filter=60_000) == {prefix + "empty": "Empty"}, "it never had a transaction"
        time.sleep(0.01)
        assert ask(duration_filter=1) == mine
    if version >= 2:
        assert ask(transactional_id_pattern=rf"\Q{prefix}\Eo.*") == {prefix + "open": "Ongoing"}
        assert ask(transactional_id_pattern=prefix) == {}, "the whole id has to match"
        assert ask(transactional_id_pattern="(") == {"": "INVALID_REGULAR_EXPRESSION"}
        assert ask(transactional_id_pattern="(?=l)") == {"": "INVALID_REGULAR_EXPRESSION"}, "RE2 has none"
    until(lambda: open_.end(True, 5) == 0)
    empty.end(False, 5)


def test_no_pattern_stops_the_broker(cluster: Cluster) -> None:
    assert Producer(cluster, "a" * 4000).init() == 0
    before = time.monotonic()
    found = Producer(cluster, "any").list(transactional_id_pattern="(a*)*(a*)*(a+a+)+b")
    assert found == {}
    assert time.monotonic() - before < 40, "tried one way after the other it has no end"
