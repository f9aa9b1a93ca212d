"""A source that waits behind an open transaction says so once, whose it is, and how to end it."""

import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from eoslog.client.admin import transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.transactional_ids import ParticipantSlot, Sink
from eoslog.connector.source import held_back
from eoslog.connector.source.reader import StreamReader
from eoslog.connector.spark.versions import ReadAllAvailable
from eoslog.protocol.apis import APIS, ApiKey
from eoslog.protocol.names_by_sink import sink_of
from eoslog.protocol.producer_identity import ProducerIdentity
from tests.connector.brokers import ON_KAFKA
from tests.connector.source.test_source_stream import reader
from tests.connector.stock_kafka import Kafka, bare

NO_LIMIT = ReadAllAvailable()


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.topic(2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds that the watch sees go by."""
    now = [1000.0]
    told = SimpleNamespace(
        monotonic=lambda: now[0], time=time.time, strftime=time.strftime, gmtime=time.gmtime
    )
    monkeypatch.setattr(held_back, "time", told)
    yield now


def trigger(made: StreamReader, topic: str) -> dict[str, dict[str, int]]:
    return bare(made.latestOffset({topic: {"0": 0, "1": 0}}, NO_LIMIT))


def hold(kafka: Kafka, topic: str, name: str) -> None:
    """Leave a transaction open on both partitions."""
    producer = kafka.transactional(name)
    producer.begin_transaction()
    for partition in (0, 1):
        producer.produce(topic, b"open", partition=partition)
    assert producer.flush(20) == 0
    for partition in (0, 1):
        kafka.put(topic, [b"after"] * 2, partition)


def test_it_is_told_once_and_costs_nothing_before(
    kafka: Kafka,
    topic: str,
    clock: list[float],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, made = f"holder-{topic}", reader(kafka, topic)
    kafka.put(topic, [b"before"] * 3)
    hold(kafka, topic, name)
    sent: list[str] = []
    send = BrokerConnection.send

    def noted(self: BrokerConnection, api: ApiKey, *more: Any, **named: Any) -> int:
        sent.append(APIS[api].name)
        return send(self, api, *more, **named)

    monkeypatch.setattr(BrokerConnection, "send", noted)
    caplog.set_level(logging.WARNING, "eoslog")
    assert trigger(made, topic) == {topic: {"0": 3, "1": 0}}
    sent.clear()
    clock[0] += 59
    assert trigger(made, topic) == {topic: {"0": 3, "1": 0}}
    assert sent == ["Metadata", "ListOffsets"] and not caplog.records
    clock[0] += 2
    trigger(made, topic)
    (said,) = (record.getMessage() for record in caplog.records)
    assert f"{topic}-0 (and {topic}-1): no committed record can be read from offset 3 on" in said
    assert "though the log continues to 6" in said
    assert f"transactional id {name}, producer id" in said and "open since" in said and "Ongoing" in said
    assert f"eoslog transactions abort --transactional-id {name}. See troubleshooting.md#" in said
    clock[0] += 200
    sent.clear()
    trigger(made, topic)
    assert sent == ["Metadata", "ListOffsets", "ListOffsets"] and len(caplog.records) == 1


def test_an_idle_topic_is_no_standstill(
    kafka: Kafka, topic: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    made = reader(kafka, topic)
    kafka.put(topic, [b"before"] * 3)
    for _ in range(3):
        trigger(made, topic)
        clock[0] += 61
    assert not caplog.records


def test_a_run_of_what_is_there_tells_it_as_well(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hold(kafka, topic, f"holder-{topic}")
    reader(kafka, topic).prepareForTriggerAvailableNow()
    assert not caplog.records, "it is young"
    monkeypatch.setattr(held_back, "STANDSTILL_SECONDS", -60)
    reader(kafka, topic).prepareForTriggerAvailableNow()
    assert f"transactional id holder-{topic}" in caplog.text


@pytest.mark.skipif(ON_KAFKA, reason="seals without a right to")
def test_a_sealed_one_is_named_with_its_sink(
    kafka: Kafka, topic: str, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(f"a/{topic}")
    name = sink.participant(ParticipantSlot(ProducerIdentity(7, 0), 1, "w", 3))
    assert sink_of(name) == sink.id and sink_of(sink.coordinator) is None
    hold(kafka, topic, name)
    with Cluster(ClientConfig(parse_addresses(kafka.bootstrap))) as cluster:
        assert isinstance(
            transactions.keep_prepared(cluster, [name], 60_000)[name], transactions.AcquiredTransaction
        )
    made = reader(kafka, topic)
    for _ in range(2):
        trigger(made, topic)
        clock[0] += 61
    assert f"of the sink {sink.id}" in caplog.text and "never times out" in caplog.text
    assert f"eoslog transactions abort --transactional-id {name} --force" in caplog.text
