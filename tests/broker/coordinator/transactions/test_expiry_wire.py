"""Ids that nobody has used for long are forgotten, over the wire; the fence holds all the same."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import ErrorCode as E
from eoslog.testing import EmbeddedBroker
from tests.broker.coordinator.transactions.txn_wire import Cluster, Producer
from tests.kit.waiting import until

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
def cluster() -> Iterator[Cluster]:
    given = os.environ.get("EOSLOG_TEST_BOOTSTRAP")
    if given:
        host, _, port = given.rpartition(":")
        with Cluster(host, int(port), kafka=True) as opened:
            yield opened
        return
    with EmbeddedBroker(config=SOON) as broker, Cluster(broker.host, broker.port) as opened:
        yield opened


def test_idle_transactional_ids_are_forgotten(cluster: Cluster) -> None:
    idle = {state: Producer(cluster, f"idle-{state}") for state in ("Empty", "CompleteCommit")}
    busy = {two: Producer(cluster, f"busy-{two}") for two in (False, True)}
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


def test_who_is_busy_is_not_forgotten(cluster: Cluster) -> None:
    producer = Producer(cluster, "busy")
    producer.begin("Empty", tv2=True)
    lasted = 0.0
    while lasted < 2 * EXPIRY_S:  # used so often that it is never idle for the expiry
        used, pid = time.monotonic(), producer.pid
        time.sleep(EXPIRY_S / 4)
        assert producer.init() == 0
        gap = time.monotonic() - used
        lasted = lasted + gap if gap < 0.9 * EXPIRY_S else 0.0  # the machine stood still: begin again
        assert producer.pid == pid or not lasted


def test_idle_producers_of_a_partition_are_forgotten(cluster: Cluster) -> None:
    """An unknown producer may go on with any sequence, as since KIP-360; one that is known may not."""
    plain = Producer(cluster, None)  # type: ignore[arg-type]

    def known() -> None:
        assert plain.init() == 0
        assert plain.produce(0, transactional=False) == 0
        assert plain.produce(7, transactional=False) == E.OUT_OF_ORDER_SEQUENCE_NUMBER

    def any_sequence() -> None:
        assert plain.produce(7, transactional=False) == 0
        assert plain.produce(0, transactional=False) == E.OUT_OF_ORDER_SEQUENCE_NUMBER

    before_expiry(known)
    before_expiry(any_sequence, first=lambda: until(lambda: plain.partition_view() is None))


def test_a_producer_with_an_open_transaction_is_not_forgotten(cluster: Cluster) -> None:
    producer = Producer(cluster, "open")
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


def test_after_delete_records_the_producer_is_still_known(cluster: Cluster) -> None:
    """Its records are gone, its sequences are not: nothing can be written twice (KIP-360)."""
    plain = Producer(cluster, None)  # type: ignore[arg-type]
    assert plain.init() == 0
    place = (1, 1)

    def still_known() -> None:
        _deleted_and_known(cluster, plain, place)

    before_expiry(still_known)


def _deleted_and_known(cluster: Cluster, plain: Producer, place: tuple[int, int]) -> None:
    assert plain.init() == 0
    assert plain.produce(0, transactional=False, place=place) == 0
    offset = plain.last["base_offset"]
    asked = {"name": cluster.topics[1], "partitions": [{"partition_index": 1, "offset": offset + 1}]}
    deleted = cluster.wire.call(ApiKey.DELETE_RECORDS, 1, topics=[asked], timeout_ms=5000)
    assert deleted["topics"][0]["partitions"][0]["error_code"] == 0
    assert plain.produce(5, transactional=False, place=place) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert plain.produce(0, transactional=False, place=place) == 0
    assert plain.last["base_offset"] == offset
    assert plain.produce(1, transactional=False, place=place) == 0
