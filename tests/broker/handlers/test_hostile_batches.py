"""A batch enters a log only if every reader can read it, under a header that says what its records say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import lz4.frame  # type: ignore[import-untyped]
import pytest

from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import crc_ok, read_header
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import iter_records
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create, read_all
from tests.broker.handlers import hostile_batches
from tests.broker.handlers.hostile_batches import batch, record, table, told_wrongly
from tests.scenarios.apache_kafka import ApacheKafka

DAMAGED = {
    "length 0",
    "length too small",
    "length negative",
    "length cuts a record",
    "crc",
    "magic 3",
    "magic -1",
}
OTHERS = {
    "transactional without a producer": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "codec 5": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "codec 6": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "codec 7": ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    "an hour and more ahead": ErrorCode.INVALID_TIMESTAMP,
    "a record ahead": ErrorCode.INVALID_TIMESTAMP,
}
TAKEN_BY_KAFKA = {
    "offsets 0, 0", "offsets 1, 0", "offsets 0, 2", "offsets 0, -1", "shape changes: offsets 0, 0",
    "key length -2", "value length -2",
}  # fmt: skip


def expected(name: str) -> ErrorCode:
    return ErrorCode.CORRUPT_MESSAGE if name in DAMAGED else OTHERS.get(name, ErrorCode.INVALID_RECORD)


class Answer(NamedTuple):
    code: int
    offset: int
    time: int


class Site:
    """A broker with a topic of each timestamp type, and one connection to it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        host, _, port = bootstrap.rpartition(":")
        self._wire = Wire(host, int(port))
        create(bootstrap, "t")
        create(bootstrap, "stamped", **{"message.timestamp.type": "LogAppendTime"})
        for topic in ("t", "stamped"):
            deadline = time.monotonic() + 60
            while self.produce(batch(record(0), now()), topic).code:  # Kafka: until it has a leader
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def produce(self, data: bytes, topic: str = "t") -> Answer:
        parts = [{"index": 0, "records": data}]
        sent = {"acks": -1, "timeout_ms": 30_000, "topic_data": [{"name": topic, "partition_data": parts}]}
        told = self._wire.call(ApiKey.PRODUCE, 9, **sent)
        (part,) = told["responses"][0]["partition_responses"]
        return Answer(part["error_code"], part["base_offset"], part["log_append_time_ms"])

    def fetch(self, offset: int, topic: str = "t") -> bytes:
        part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        told = self._wire.call(
            ApiKey.FETCH, 11, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            topics=[{"topic": topic, "partitions": [part]}], session_epoch=-1,
        )  # fmt: skip
        return bytes(told["responses"][0]["partitions"][0]["records"])

    def end(self, at: int = -1) -> tuple[int, int]:
        part = {"partition_index": 0, "timestamp": at}
        told = self._wire.call(ApiKey.LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": [part]}])
        (found,) = told["topics"][0]["partitions"]
        assert found["error_code"] == 0
        return found["offset"], found["timestamp"]

    def close(self) -> None:
        self._wire.close()


def now() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with EmbeddedBroker() as broker, closing(Site(broker.bootstrap)) as opened:
        yield opened


@pytest.mark.parametrize("name", table(0))
def test_what_no_reader_can_read_is_refused(site: Site, name: str) -> None:
    data, end = table(now())[name], site.end()
    answer = site.produce(data)
    assert (answer.code, answer.offset) == (expected(name), -1)
    assert site.end() == end


@pytest.mark.parametrize("topic", ["t", "stamped"])
@pytest.mark.parametrize("name", told_wrongly(0))
def test_the_stored_header_says_what_the_records_say(site: Site, name: str, topic: str) -> None:
    sent_at = now()
    data, latest = told_wrongly(sent_at)[name]
    answer = site.produce(data, topic)
    if (name, topic) == ("log append time", "stamped"):
        assert answer.code == ErrorCode.INVALID_TIMESTAMP
        return
    assert answer.code == 0
    found = site.fetch(answer.offset, topic)
    header, sent = read_header(found), read_header(data)
    assert crc_ok(found, 0, header)
    codec, stamped = sent.codec, topic == "stamped"
    assert header.attributes == codec | (hostile_batches.LOG_APPEND_TIME if stamped else 0)
    assert header.max_timestamp == (answer.time if stamped else latest)
    assert header.base_offset == answer.offset and header.leader_epoch != sent.leader_epoch
    times = [one.timestamp for one in iter_records(found, 0, header)]
    assert max(*times, -1) == header.max_timestamp
    assert answer.time >= sent_at if stamped else answer.time == -1


def test_offsets_by_time_find_a_record_whose_header_said_less(site: Site) -> None:
    late = now() + 3_000_000
    answer = site.produce(batch([record(0), record(1, delta=9)], late, max_timestamp=-1))
    assert site.end(late + 9) == (answer.offset + 1, late + 9)
    assert site.end(-3) == (answer.offset + 1, late + 9)


@pytest.mark.parametrize("frame", ["linked", "two"])
def test_lz4_that_only_some_clients_can_read_is_refused(site: Site, frame: str) -> None:
    """Kafka's own reader takes one frame of independent blocks."""
    plain = record(0, value=bytes(200_000))
    packed = lz4.frame.compress(plain, block_linked=frame == "linked")
    if frame == "two":
        packed = b"".join(lz4.frame.compress(half, block_linked=False) for half in (plain[:999], plain[999:]))
    assert site.produce(batch(packed, now(), 3, squeeze=False)).code == ErrorCode.INVALID_RECORD
    fine = lz4.frame.compress(plain, block_linked=False, content_checksum=True, block_checksum=True)
    assert site.produce(batch(fine, now(), 3, squeeze=False)).code == 0


@pytest.mark.parametrize("codec", range(5))
def test_large_batches_are_walked_in_a_thread_and_judged_alike(site: Site, codec: int) -> None:
    fine = [record(number, value=b"%d" % number * 9) for number in range(4000)]
    wrong = [*fine[:-1], record(0, value=b"an offset again")]
    answer = site.produce(batch(fine, now() - 5, codec, max_timestamp=now()))
    assert answer.code == 0
    assert site.produce(batch(wrong, now(), codec)).code == ErrorCode.INVALID_RECORD
    assert site.end()[0] == answer.offset + 4000
    assert read_header(site.fetch(answer.offset)).max_timestamp < now()


def test_what_was_taken_is_read_to_its_end_by_a_stock_client(site: Site) -> None:
    assert len(read_all(site.bootstrap, "t")) == site.end()[0]


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_apache_kafka_takes_and_refuses_the_same() -> None:
    """But for what it answers with -1, and for records that it stores although their numbers are wrong."""
    with ApacheKafka({}) as kafka, closing(Site(kafka.bootstrap)) as site:
        told: dict[str, Any] = {name: site.produce(data).code for name, data in table(now()).items()}
        taken = {name for name, code in told.items() if code == 0}
        assert taken == TAKEN_BY_KAFKA
        unsaid = {name for name, code in told.items() if code == -1}
        different = {name for name in told if told[name] != expected(name)} - taken - unsaid
        assert not different
        for name, (data, latest) in told_wrongly(now()).items():
            answer = site.produce(data)
            header = read_header(site.fetch(answer.offset))
            if name != "log append time":  # Kafka believes the client's maximum there
                assert (answer.code, header.max_timestamp) == (0, latest), name
