"""Over the wire: transactions that nobody ends, ids that nobody uses, requests during PrepareCommit."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from eoslog.broker.config import BrokerConfig
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.ports import OsFileSystem, SystemClock
from eoslog.broker.topics.topics import Topics
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.protocol.plain_records import encode_records
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer, cluster_under_test
from tests.kit.program import until

# -- transactions that nobody ends -----------------------------------------------------------------
# Transactions that nobody ends: found and ended from outside (KIP-664), over the wire.
#
# The data directory is seeded with records of a transaction that no transactional id knows of, as a faulty
# client could leave them on brokers before KIP-890.


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


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
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


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
@pytest.mark.parametrize(("topic", "commit"), [(1, False), (2, True)])
def test_markers_of_tv2_need_a_higher_epoch(hanging: Producer, topic: int, commit: bool) -> None:
    """KIP-1228: a marker at the epoch of the records could be one of the transaction before."""
    strict = {"version": 2, "transaction_version": 2, "coordinator_epoch": COORDINATOR}
    assert hanging.marker(commit, **strict) == E.INVALID_PRODUCER_EPOCH  # type: ignore[arg-type]
    assert hanging.log_end(committed=True) == 1
    for _ in range(2):
        assert hanging.marker(commit, epoch=EPOCH + 1, **strict) == 0  # type: ignore[arg-type]
    assert hanging.log_end(committed=True) == hanging.log_end()


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
@pytest.mark.parametrize("topic", [3])
def test_version_2_with_a_marker_of_tv1(hanging: Producer, topic: int) -> None:
    assert hanging.marker(False, version=2, coordinator_epoch=COORDINATOR) == 0
    assert hanging.log_end(committed=True) == hanging.log_end()


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
def test_a_transaction_of_the_coordinator_is_not_ended_from_outside(cluster: Cluster) -> None:
    """Stricter than Kafka: one partition with another outcome than the rest would tear it apart."""
    producer = Producer(cluster, "alive")
    producer.begin("Ongoing", tv2=True)
    assert producer.marker(False, coordinator_epoch=9) == E.INVALID_TXN_STATE
    assert producer.marker(False, epoch=producer.epoch + 1, coordinator_epoch=9) == E.INVALID_TXN_STATE
    assert producer.end(True, 5) == 0


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
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


@pytest.mark.skipif("EOSLOG_TEST_BOOTSTRAP" in os.environ, reason="the broker's data directory is seeded")
def test_no_pattern_stops_the_broker(cluster: Cluster) -> None:
    assert Producer(cluster, "a" * 4000).init() == 0
    before = time.monotonic()
    found = Producer(cluster, "any").list(transactional_id_pattern="(a*)*(a*)*(a+a+)+b")
    assert found == {}
    assert time.monotonic() - before < 40, "tried one way after the other it has no end"


# -- ids that nobody has used for long -------------------------------------------------------------
# Ids that nobody has used for long are forgotten, over the wire; the fence holds all the same.


SOON = {
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "transactional.id.expiration.ms": "1000",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
EXPIRY_S = 1.0


def _is_forgotten(producer: Producer) -> bool:
    return bool(producer.describe()["error_code"] == E.TRANSACTIONAL_ID_NOT_FOUND)


def before_expiry(steps: Callable[[], None], first: Callable[[], None] | None = None) -> None:
    """Take steps that must come within the expiry of each other, again if the machine stood still."""
    for _ in range(10):
        if first:
            first()
        begun = time.monotonic()
        try:
            return steps()
        except AssertionError:
            if time.monotonic() - begun < 0.9 * EXPIRY_S:
                raise
    raise AssertionError("ten times slower than the expiry: the machine is too busy for this test")


@pytest.fixture(scope="module")
def cluster_of_expiry() -> Iterator[Cluster]:
    with cluster_under_test(SOON) as opened:
        yield opened


def test_idle_transactional_ids_are_forgotten(cluster_of_expiry: Cluster) -> None:
    idle = {state: Producer(cluster_of_expiry, f"idle-{state}") for state in ("Empty", "CompleteCommit")}
    busy = {two: Producer(cluster_of_expiry, f"busy-{two}") for two in (False, True)}
    for state, producer in idle.items():
        producer.begin(state, tv2=True)
    for two, producer in busy.items():
        assert producer.init(6, enable2_pc=two) == 0
        assert producer.produce(version=12) == 0
    for producer in idle.values():
        until(partial(_is_forgotten, producer))
        assert producer.list(transactional_id_pattern=producer.name) == {}
        old_pid, old_epoch = producer.pid, producer.epoch
        for again in (producer.end(True, 5), producer.end(False, 5), producer.add(), producer.add_offsets()):
            assert again == E.INVALID_PRODUCER_ID_MAPPING
        assert producer.produce(1, 12) in (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_EPOCH)
        assert producer.init() == 0
        assert producer.pid != old_pid
        assert producer.epoch == 0
        assert producer.end(True, 5, pid=old_pid, epoch=old_epoch) == E.INVALID_PRODUCER_ID_MAPPING
    time.sleep(1.0)
    for producer in busy.values():
        assert producer.state() == "Ongoing", "never while a transaction is open"
        assert producer.end(True, 5) == 0


def test_who_is_busy_is_not_forgotten(cluster_of_expiry: Cluster) -> None:
    producer = Producer(cluster_of_expiry, "busy")
    producer.begin("Empty", tv2=True)
    lasted = 0.0
    while lasted < 2 * EXPIRY_S:  # used so often that it is never idle for the expiry
        used, pid = time.monotonic(), producer.pid
        time.sleep(EXPIRY_S / 4)
        assert producer.init() == 0
        gap = time.monotonic() - used
        lasted = lasted + gap if gap < 0.9 * EXPIRY_S else 0.0  # the machine stood still: begin again
        assert producer.pid == pid or not lasted


def test_idle_producers_of_a_partition_are_forgotten(cluster_of_expiry: Cluster) -> None:
    """An unknown producer may go on with any sequence, as since KIP-360; one that is known may not."""
    plain = Producer(cluster_of_expiry, None)  # type: ignore[arg-type]

    def known() -> None:
        assert plain.init() == 0
        assert plain.produce(0, transactional=False) == 0
        assert plain.produce(7, transactional=False) == E.OUT_OF_ORDER_SEQUENCE_NUMBER

    def any_sequence() -> None:
        assert plain.produce(7, transactional=False) == 0
        assert plain.produce(0, transactional=False) == E.OUT_OF_ORDER_SEQUENCE_NUMBER

    before_expiry(known)
    before_expiry(any_sequence, first=lambda: until(lambda: plain.partition_view() is None))


def test_a_producer_with_an_open_transaction_is_not_forgotten(cluster_of_expiry: Cluster) -> None:
    producer = Producer(cluster_of_expiry, "open")
    assert producer.init() == 0
    assert producer.produce(0, version=12, place=(1, 0)) == 0
    time.sleep(1.6)
    view = producer.partition_view((1, 0))
    assert view is not None
    assert view["current_txn_start_offset"] >= 0
    assert producer.produce(2, version=12, place=(1, 0)) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(1, version=12, place=(1, 0)) == 0
    assert producer.end(True, 5) == 0
    until(lambda: producer.partition_view((1, 0)) is None)


def test_after_delete_records_the_producer_is_still_known(cluster_of_expiry: Cluster) -> None:
    """Its records are gone, its sequences are not: nothing can be written twice (KIP-360)."""
    plain = Producer(cluster_of_expiry, None)  # type: ignore[arg-type]
    assert plain.init() == 0
    place = (1, 1)

    def still_known() -> None:
        _deleted_and_known(cluster_of_expiry, plain, place)

    before_expiry(still_known)


def _deleted_and_known(cluster_of_expiry: Cluster, plain: Producer, place: tuple[int, int]) -> None:
    assert plain.init() == 0
    assert plain.produce(0, transactional=False, place=place) == 0
    offset = plain.last["base_offset"]
    asked = {
        "name": cluster_of_expiry.topics[1],
        "partitions": [{"partition_index": 1, "offset": offset + 1}],
    }
    deleted = cluster_of_expiry.wire.call(ApiKey.DELETE_RECORDS, 1, topics=[asked], timeout_ms=5000)
    assert deleted["topics"][0]["partitions"][0]["error_code"] == 0
    assert plain.produce(5, transactional=False, place=place) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert plain.produce(0, transactional=False, place=place) == 0
    assert plain.last["base_offset"] == offset
    assert plain.produce(1, transactional=False, place=place) == 0


# -- prepared transactions -------------------------------------------------------------------------
# Requests that arrive over the wire while a transaction is prepared, each cell of the tables.
#
# The disk refuses the markers for as long as the test wants, so that PrepareCommit and PrepareAbort, which
# pass in a moment else, stay. (Apache Kafka answers EndTxn before it writes them; after it, it answers as
# here.)


NUMBERS = count()
OFTEN = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
"""What could not be written is tried again with each look for time-outs."""

BUSY = E.CONCURRENT_TRANSACTIONS


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config=OFTEN, faults=True) as started:
        yield started


@pytest.fixture(scope="module")
def cluster_prepared(broker: EmbeddedBroker) -> Iterator[Cluster]:
    with Cluster(broker.host, broker.port) as opened:
        yield opened


@pytest.fixture(params=[3, 5], ids=["tv1", "tv2"])
def version_prepared(request: pytest.FixtureRequest) -> int:
    """Of EndTxn: it says which protocol the client speaks."""
    return int(request.param)


@pytest.fixture(params=[False, True], ids=["abort", "commit"])
def commit_prepared(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def end_of(cluster_prepared: Cluster) -> int:
    """The end of the partition that is written to, uncommitted records and markers included."""
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    answer = cluster_prepared.wire.call(
        ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0,
        topics=[{"name": cluster_prepared.topics[0], "partitions": [asked]}],
    )  # fmt: skip
    return int(answer["topics"][0]["partitions"][0]["offset"])


@pytest.fixture
def prepared(
    broker: EmbeddedBroker, cluster_prepared: Cluster, version_prepared: int, commit_prepared: bool
) -> Iterator[Producer]:
    """A producer whose transaction is prepared, and cannot be completed before the test is over."""
    producer = Producer(cluster_prepared, f"prepared-{next(NUMBERS)}")
    state, before = ("Commit" if commit_prepared else "Abort"), end_of(cluster_prepared)
    until(lambda: producer.init() == E.NONE)
    assert (producer.add(), producer.produce()) == (E.NONE, E.NONE)
    refusing = broker.faults.fail_write(
        errno=errno.ENOSPC, times=1 << 30, path=f"/{cluster_prepared.topics[0]}-0/"
    )
    assert producer.end(commit_prepared, version_prepared) == BUSY
    assert producer.state() == f"Prepare{state}"
    yield producer
    assert producer.state() == f"Prepare{state}", "nothing that came meanwhile has changed it"
    refusing.disarm()
    until(lambda: producer.state() == f"Complete{state}")
    assert end_of(cluster_prepared) == before + 2, "one record and one marker"
    assert producer.end(commit_prepared, version_prepared) == E.NONE, "the client repeats what it was refused"
    assert producer.init() == E.NONE


def test_a_new_life_of_the_producer_has_to_wait(prepared: Producer) -> None:
    assert prepared.init() == BUSY
    who = prepared.who(None, None)
    assert prepared.init(**who) == BUSY, "nor does it get another epoch (KIP-360)"


def test_the_same_end_has_to_wait_and_the_other_is_refused(
    prepared: Producer, version_prepared: int, commit_prepared: bool
) -> None:
    for _ in range(2):
        assert prepared.end(commit_prepared, version_prepared) == BUSY
        assert prepared.end(not commit_prepared, version_prepared) == E.INVALID_TXN_STATE
    fenced = E.PRODUCER_FENCED
    assert prepared.end(commit_prepared, version_prepared, epoch=prepared.epoch - 1) == fenced
    assert prepared.end(commit_prepared, version_prepared, epoch=prepared.epoch + 2) == fenced
    assert (
        prepared.end(commit_prepared, version_prepared, pid=prepared.pid + 1_000)
        == E.INVALID_PRODUCER_ID_MAPPING
    )


def test_nothing_joins_a_transaction_that_is_ending(prepared: Producer, version_prepared: int) -> None:
    epoch = prepared.epoch + (version_prepared >= 5)  # with TV2 its end has bumped the epoch
    for partition in ((0, 0), (0, 1), (1, 0)):
        assert prepared.add(partition, epoch=epoch) == BUSY
    assert prepared.add((0, 0), version=4, epoch=epoch, verify=True) == BUSY
    assert prepared.add_offsets(epoch=epoch) == BUSY
    if version_prepared >= 5:
        assert prepared.add(epoch=prepared.epoch) == E.PRODUCER_FENCED
