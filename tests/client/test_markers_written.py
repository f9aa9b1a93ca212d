"""Markers that are written from outside, and what partitions are asked before: by a broker made for it."""

from typing import Any

import pytest

from eoslog.client.wire import retry
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.connector.commit.commands import HeldBack
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.run import markers
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.errors import KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.client.fake_broker import FakeBroker

MINE = Participant("mine", ProducerIdentity(7, 3))
HELD = HeldBack(("t", 1), MINE, 5)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers, "PATIENCE_MS", 1)
    monkeypatch.setattr(retry, "BRIEF_MS", 1)


def cluster(broker: FakeBroker) -> Cluster:
    return Cluster(ClientConfig((("127.0.0.1", broker.port),), retry_backoff_ms=1))


def written(code: int) -> Any:
    part = {"partition_index": 1, "error_code": code}
    topics = [{"name": "t", "partitions": [part]}]
    return lambda version, body: {"markers": [{"producer_id": 7, "topics": topics}]}


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_is_that_of_just_this_transaction(commit: bool) -> None:
    with FakeBroker({ApiKey.WRITE_TXN_MARKERS: written(0)}) as broker:
        markers.write_markers(cluster(broker), [HELD], commit=commit)
        ((_, body),) = broker.seen(ApiKey.WRITE_TXN_MARKERS)
    (marker,) = body["markers"]
    assert (marker["producer_id"], marker["producer_epoch"]) == (7, 3)
    assert marker["transaction_result"] is commit and marker["coordinator_epoch"] == 5
    assert marker["topics"] == [{"name": "t", "partition_indexes": [1]}]


def test_a_refused_marker_is_not_written() -> None:
    with (
        FakeBroker({ApiKey.WRITE_TXN_MARKERS: written(31)}) as broker,
        pytest.raises(KafkaError, match="WriteTxnMarkers on t-1"),
    ):
        markers.write_markers(cluster(broker), [HELD], commit=True)


def producers(code: int = 0) -> Any:
    """Who is known on each partition: open, another id's, and idle."""

    def handle(version: int, body: Any) -> Any:
        states = [
            {"producer_id": pid, "producer_epoch": epoch, "current_txn_start_offset": start,
             "coordinator_epoch": 5}
            for pid, epoch, start in ((7, 3, 10), (8, 0, 11), (7, 2, -1))
        ]  # fmt: skip
        parts = [
            {"partition_index": number, "error_code": code, "active_producers": states}
            for number in body["topics"][0]["partition_indexes"]
        ]
        return {"topics": [{"name": "t", "partitions": parts}]}

    return handle


def test_what_is_open_of_a_producer_id_is_found_and_nothing_else() -> None:
    with FakeBroker({ApiKey.DESCRIBE_PRODUCERS: producers()}) as broker:
        assert markers.find_open(cluster(broker), "t", [1], "mine", 7) == (HELD,)
        others = [Participant("mine", ProducerIdentity(7, 2)), Participant("mine", ProducerIdentity(7, 4))]
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE, *others]) == (HELD,)


@pytest.mark.parametrize("code", [29, 3])
def test_who_may_not_look_or_finds_no_topic_believes_the_coordinator(code: int) -> None:
    with FakeBroker({ApiKey.DESCRIBE_PRODUCERS: producers(code)}) as broker:
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE]) == ()


def test_brokers_that_cannot_tell_are_believed() -> None:
    with FakeBroker() as broker:
        del broker.versions[ApiKey.DESCRIBE_PRODUCERS]
        assert markers.find_held(cluster(broker), [("t", 1)], [MINE]) == ()
        assert markers.find_open(cluster(broker), "t", [1], "mine", 7) == ()
