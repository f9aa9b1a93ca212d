"""Defences that lie outside of the protocol's rules, each judged on a broker, and once more with it broken:
the case must go red then. The list of all traps is in tests/connector/commit/test_trap_defences.py.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from eoslog.client.admin import groups as group_offsets
from eoslog.client.admin import transactions
from eoslog.client.records.fetch import fetch
from eoslog.client.records.produce import Producer
from eoslog.client.wire.cluster import Cluster, CoordinatorKind
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.commit.commands import FetchStored, Refused
from eoslog.connector.commit.decision import ANCHOR, Stored
from eoslog.connector.commit.transactional_ids import Participant
from eoslog.connector.offsets.plan import Range
from eoslog.connector.options.source_options import source_options
from eoslog.connector.run import markers
from eoslog.connector.run.runner import Runner
from eoslog.connector.source import read_range
from eoslog.errors import OffsetsGone
from eoslog.protocol.apis import Api, ApiKey
from eoslog.protocol.encode import encode_batches
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import Kafka


class LikeKafka(Cluster):
    """Answers for "all partitions" as Apache Kafka does: without those that hold nothing but pending offsets.
    (The bundled broker waits for them.)"""

    def coordinator(self, kind: CoordinatorKind, name: str) -> Any:
        return LikeKafkaConnection(super().coordinator(kind, name))


class LikeKafkaConnection:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def call(self, api: Api, body: dict[str, Any], **more: Any) -> Any:
        if api.key is ApiKey.OFFSET_FETCH and body["topics"] is None:
            stable = self._connection.call(api, body | {"require_stable": False}, **more)
            return stable | {"error_code": 0}
        return self._connection.call(api, body, **more)


def client(kafka: Kafka, **more: Any) -> Cluster:
    return Cluster(ClientConfig(parse_addresses(kafka.bootstrap), **more))


def write(cluster: Cluster, name: str, topic: str) -> ProducerIdentity:
    """Open a transaction with one row."""
    identity = transactions.init_producer_id(cluster, name, 60_000)
    with Producer(cluster, identity=identity, transactional_id=name) as producer:
        for batch in encode_batches(None, pa.array([b"x"]), None, 1, codec=0, max_batch_bytes=1000):
            producer.send(topic, 0, batch)
        producer.flush()
    return identity


def trap_10_a_batch_that_ends_at_a_control_record_has_lost_nothing(kafka: Kafka) -> None:
    topic = kafka.topic()
    with client(kafka) as cluster:
        transactions.end_txn(cluster, topic, write(cluster, topic, topic), commit=False)
    options = source_options({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}, stream=True)
    for start in (0, 1):  # an aborted row and the marker; the marker alone
        assert list(read_range.read_range(options, Range(topic, 0, start, 2))) == []


def trap_11_what_a_partition_holds_open_is_seen_on_the_partition(kafka: Kafka) -> None:
    topic = kafka.topic()
    with client(kafka) as cluster:
        identity = write(cluster, topic, topic)
        who = Participant(topic, identity)
        found = markers.find_held(cluster, [(topic, 0)], [who])
        assert [held.place for held in found] == [(topic, 0)]
        transactions.end_txn(cluster, topic, identity, commit=True)
        assert markers.find_held(cluster, [(topic, 0)], [who]) == ()


def trap_13_offsets_that_are_taken_in_part_are_refused(kafka: Kafka) -> None:
    name = f"sink-{uuid.uuid4().hex}"
    chunks = {(ANCHOR, 0): (1, "fits"), (ANCHOR, 1): (1, "x" * 5_000)}
    with client(kafka) as cluster:
        group_offsets.fetch_committed(cluster, name, [(ANCHOR, 0)])
        identity = transactions.init_producer_id(cluster, name, 60_000)
        with pytest.raises(KafkaError) as refusal:
            transactions.commit_offsets(cluster, name, identity, name, chunks)
        assert refusal.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        transactions.end_txn(cluster, name, identity, commit=False)


def trap_14_a_first_decision_on_its_way_is_not_taken_for_none(kafka: Kafka) -> None:
    name = f"sink-{uuid.uuid4().hex}"
    config = ClientConfig(parse_addresses(kafka.bootstrap), api_timeout_ms=2_000, delivery_timeout_ms=20_000)
    with LikeKafka(config) as cluster:
        runner = Runner(cluster, 60_000)
        assert runner._do(FetchStored(name)).chunks == {}
        identity = transactions.init_producer_id(cluster, name, 60_000)
        transactions.commit_offsets(cluster, name, identity, name, {(ANCHOR, 0): (1, "first")})
        pending = runner._do(FetchStored(name))
        assert isinstance(pending, Refused) and pending.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
        transactions.end_txn(cluster, name, identity, commit=True)
        stored = runner._do(FetchStored(name))
        assert isinstance(stored, Stored) and stored.chunks == {0: (1, "first")}


def no_rows_are_lost_rows(patch: pytest.MonkeyPatch) -> None:
    def suspicious(*asked: Any, **more: Any) -> Iterator[Any]:
        found = list(fetch(*asked, **more))
        if not found:
            raise OffsetsGone("nothing came")
        yield from found

    patch.setattr(read_range, "fetch", suspicious)


def partitions_are_believed_to_be_readable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(markers, "_held_at", lambda *asked: [])


def answers_not_looked_at_one_by_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transactions, "_check_all", lambda codes, wanted, what: None)


def all_offsets_asked_for_at_once(patch: pytest.MonkeyPatch) -> None:
    fetch = group_offsets.fetch_committed

    def at_once(cluster: Cluster, group: str, wanted: Any, **more: Any) -> Any:
        return fetch(cluster, group, None, **more)

    patch.setattr(group_offsets, "fetch_committed", at_once)


class Defence(NamedTuple):
    case: Callable[[Kafka], None]
    broken: Callable[[pytest.MonkeyPatch], None]


DEFENCES = [
    Defence(trap_10_a_batch_that_ends_at_a_control_record_has_lost_nothing, no_rows_are_lost_rows),
    Defence(
        trap_11_what_a_partition_holds_open_is_seen_on_the_partition, partitions_are_believed_to_be_readable
    ),
    Defence(trap_13_offsets_that_are_taken_in_part_are_refused, answers_not_looked_at_one_by_one),
    Defence(trap_14_a_first_decision_on_its_way_is_not_taken_for_none, all_offsets_asked_for_at_once),
]


@pytest.mark.parametrize("defence", DEFENCES, ids=lambda defence: defence.case.__name__)
def test_the_trap_s_case_and_that_it_goes_red_without_the_defence(
    defence: Defence, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "PATIENCE_MS", 300)
    defence.case(kafka)
    defence.broken(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)) as red:
        defence.case(kafka)
    assert not isinstance(red.value, (TypeError, AttributeError, NameError)), "the break itself is broken"
