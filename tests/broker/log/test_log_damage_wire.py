"""A damaged segment under a real broker: what stock clients, the connector, the log and the metrics say."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError

from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.errors import RefusedByBroker
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.errors import ErrorCode
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create, read_all

ROWS = 300
A_BATCH = 10


def damaged(data: Path) -> int:
    """Write rows into some segments, end the broker, move a batch of a sealed one; answers the rows before
    it."""
    with EmbeddedBroker(data=data, config={"log.segment.bytes": "14000"}) as broker:
        create(broker.bootstrap, "t", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for first in range(0, ROWS, A_BATCH):
            for number in range(first, first + A_BATCH):
                producer.produce("t", b"%d" % number + b"x" * 150)
            producer.flush(10)
    path = sorted((data / "t-0").glob("*.log"))[1]
    content = bytearray(path.read_bytes())
    places = [(at, header.base_offset) for at, header in iter_headers(memoryview(bytes(content)))]
    at, base = places[len(places) // 2]
    content[at + 6] += 1
    path.write_bytes(content)
    return base


def read_by_librdkafka(bootstrap: str) -> tuple[int, int]:
    """Rows, and the code of the first error."""
    wanted = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer, rows, until = Consumer(wanted), 0, time.monotonic() + 30
    consumer.subscribe(["t"])
    try:
        while time.monotonic() < until:
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if error is not None:
                return rows, error.code()
            rows += message is not None
    finally:
        consumer.close()
    return rows, KafkaError.NO_ERROR


def read_by_kafka_python(bootstrap: str) -> int:
    """Rows before it raises CorruptRecordError."""
    consumer = KafkaConsumer(
        "t", bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=10_000
    )
    rows = 0
    with pytest.raises(CorruptRecordError):
        for _ in consumer:
            rows += 1
    consumer.close()
    return rows


def read_by_the_connector(bootstrap: str) -> int:
    """Rows before it raises."""
    host, port = bootstrap.split(":")
    cluster, rows = Cluster(ClientConfig(((host, int(port)),))), 0
    with pytest.raises(RefusedByBroker, match=r"begin behind it with startingOffsets.*CORRUPT_MESSAGE"):
        for some in fetch(cluster, "t", 0, 0, ROWS, committed=True):
            rows += len(some)
    cluster.close()
    return rows


def test_every_client_stops_at_the_damage(tmp_path: Path) -> None:
    before = damaged(tmp_path)
    with EmbeddedBroker(data=tmp_path, config={"log.scrub.bytes.per.second": "0"}) as broker:
        assert read_by_librdkafka(broker.bootstrap) == (before, ErrorCode.CORRUPT_MESSAGE)
        assert read_by_kafka_python(broker.bootstrap) == before
        assert read_by_the_connector(broker.bootstrap) == before


def test_the_scrub_says_so_where_nobody_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(tmp_path)
    monkeypatch.setattr("eoslog.broker.core.broker.SCRUB_INTERVAL_MS", 100)
    with (
        caplog.at_level(logging.INFO, "eoslog.broker.log.upkeep.scrub"),
        EmbeddedBroker(data=tmp_path, in_thread=True),
    ):
        until = time.monotonic() + 20
        while "1 damaged" not in caplog.text and time.monotonic() < until:
            time.sleep(0.05)
    assert "partition t-0 is damaged" in caplog.text and "1 damaged" in caplog.text


def test_what_was_compacted_is_no_damage_when_nobody_knows_any_more(tmp_path: Path) -> None:
    """The checkpoint that says so cannot be read: the gaps that compaction left are none of the disk's."""
    eager = {"log.cleaner.backoff.ms": "50", "log.cleaner.min.cleanable.ratio": "0.01"}
    with EmbeddedBroker(data=tmp_path, config=eager) as broker:
        create(broker.bootstrap, "t", 1, **{"cleanup.policy": "compact", "segment.bytes": "14000"})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(300):
            producer.produce("t", b"x" * 500, b"k%d" % (number % 7))
            producer.flush(10)
        deadline = time.monotonic() + 30
        while (left := len(read_all(broker.bootstrap, "t"))) > 100:
            assert time.monotonic() < deadline, f"{left} records are there still"
            time.sleep(0.1)
    lazy = {"log.cleaner.enable": "false"}
    with EmbeddedBroker(data=tmp_path, config=lazy) as broker:
        left = len(read_all(broker.bootstrap, "t"))
    (tmp_path / "cleaner-offset-checkpoint").write_text("nonsense")
    for _ in range(2):
        with EmbeddedBroker(data=tmp_path, config=lazy) as broker:
            assert len(read_all(broker.bootstrap, "t")) == left
