"""A batch enters a log only if every reader can read it; odd requests are answered as Apache Kafka answers
them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import lz4.frame  # type: ignore[import-untyped]
import pytest

from eoslog.protocol import compression
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.batch import crc32c, crc_ok, read_header
from eoslog.protocol.errors import ErrorCode
from eoslog.protocol.plain_records import iter_records, write_varint
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import Wire, create, read_all
from tests.scenarios.apache_kafka import ApacheKafka

# -- batches that no honest client sends ---------------------------------------------------------
# Batches that no honest client sends: every field of a batch with every kind of value that does not fit.

HEADER = struct.Struct(">qiibIhiqqqhii")
FIELDS = (
    "base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count",
)  # fmt: skip
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


def sized(part: bytes | None) -> bytes:
    return write_varint(-1) if part is None else write_varint(len(part)) + part


def record(
    number: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    delta: int = 0,
    headers: bytes = b"\0",
    attributes: int = 0,
) -> bytes:
    body = bytes([attributes]) + write_varint(delta) + write_varint(number)
    body += sized(key) + sized(value) + headers
    return write_varint(len(body)) + body


def batch(
    section: bytes | Sequence[bytes], now: int, codec: int = 0, squeeze: bool = True, **fields: Any
) -> bytes:
    """A batch of this records section, whose header says what `fields` say; the CRC fits unless given."""
    count = 1 if isinstance(section, bytes) else len(section)
    plain = section if isinstance(section, bytes) else b"".join(section)
    packed = compression.compress(codec, [plain]) if codec in (1, 2, 3, 4) and squeeze else plain
    said = {
        "base_offset": 0, "length": 49 + len(packed), "leader_epoch": -1, "magic": 2, "crc": 0,
        "attributes": codec, "last_offset_delta": count - 1, "base_timestamp": now, "max_timestamp": now,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "count": count,
    } | fields  # fmt: skip
    made = bytearray(HEADER.pack(*(said[name] for name in FIELDS)) + packed)
    if "crc" not in fields:
        made[17:21] = struct.pack(">I", crc32c([bytes(made[21:])]))
    return bytes(made)


def table(now: int) -> dict[str, bytes]:
    """Batches of two records by what is wrong with them."""
    two = [record(0), record(1)]
    found = {
        "base offset 3": batch(two, now, base_offset=3),
        "base offset -1": batch(two, now, base_offset=-1),
        "length 0": batch(two, now, length=0),
        "length too small": batch(two, now, length=48),
        "length negative": batch(two, now, length=-49),
        "length too large": batch(two, now, length=500),
        "length cuts a record": batch(two, now, length=49 + 12),
        "cut header": batch(two, now)[:40],
        "cut body": batch(two, now)[:-1],
        "two batches": batch(two, now) * 2,
        "magic 0": batch(two, now, magic=0),
        "magic 1": batch(two, now, magic=1),
        "magic 3": batch(two, now, magic=3),
        "magic -1": batch(two, now, magic=-1),
        "crc": batch(two, now, crc=1),
        "delta too small": batch(two, now, last_offset_delta=0),
        "delta too large": batch(two, now, last_offset_delta=7),
        "delta negative": batch(two, now, last_offset_delta=-1),
        "delta and count 0": batch(two, now, last_offset_delta=-1, count=0),
        "count negative": batch(two, now, last_offset_delta=-4, count=-3),
        "count too large": batch(two, now, last_offset_delta=2, count=3),
        "count too small": batch(two, now, last_offset_delta=0, count=1),
        "count huge": batch(two, now, last_offset_delta=2**31 - 2, count=2**31 - 1),
        "no records": batch(b"", now, last_offset_delta=-1, count=0),
        "no bytes of one record": batch(b"", now),
        "control": batch(two, now, attributes=CONTROL),
        "transactional without a producer": batch(two, now, attributes=TRANSACTIONAL),
        "producer without sequence": batch(two, now, producer_id=77, producer_epoch=0),
        "codec 5": batch(two, now, codec=5),
        "codec 6": batch(two, now, codec=6),
        "codec 7": batch(two, now, codec=7),
        "an hour and more ahead": batch(two, now + 3_700_000),
        "a record ahead": batch([record(0), record(1, delta=3_700_000)], now),
        "offsets 0, 0": batch([record(0), record(0)], now),
        "offsets 1, 0": batch([record(1), record(0)], now),
        "offsets 0, 2": batch([record(0), record(2)], now),
        "offsets 0, -1": batch([record(0), record(-1)], now),
        "length of a record": batch(b"\x7e" + two[0][1:] + two[1], now, last_offset_delta=1, count=2),
        "negative length of a record": batch(b"\x01" + two[0][1:], now),
        "key length -2": batch([two[0], write_varint(7) + b"\0\0\x02\x03\x02v\0"], now),
        "value length -2": batch([two[0], write_varint(7) + b"\0\0\x02\x02k\x03\0"], now),
        "value runs over": batch([two[0], write_varint(8) + b"\0\0\x02\x02k\x40v\0"], now),
        "bytes after a record's end": batch([two[0], write_varint(9) + b"\0\0\x02\x02k\x02v\0\0"], now),
        "negative count of headers": batch([two[0], record(1, headers=b"\x01")], now),
        "headers without bytes": batch([two[0], record(1, headers=b"\x02")], now),
        "header without a key": batch([two[0], record(1, headers=b"\x02\x01\x01")], now),
        "header runs over": batch([two[0], record(1, headers=b"\x02\x40h\x01")], now),
        "garbage": batch(b"garbage", now),
        "records and garbage": batch(b"".join(two) + b"garbage", now, last_offset_delta=1, count=2),
    }  # fmt: skip
    for codec in (1, 2, 3, 4):
        name = compression.NAMES[codec]
        found |= {
            f"{name}: garbage": batch(b"garbage" * 9, now, codec, squeeze=False),
            f"{name}: nothing": batch(b"", now, codec, squeeze=False),
            f"{name}: garbage, compressed": batch(b"garbage", now, codec),
            f"{name}: cut": batch(
                compression.compress(codec, two)[:-5], now, codec, False, last_offset_delta=1, count=2
            ),
            f"{name}: count too large": batch(two, now, codec, last_offset_delta=2, count=3),
            f"{name}: count too small": batch(two, now, codec, last_offset_delta=0, count=1),
            f"{name}: offsets 0, 0": batch([record(0), record(0)], now, codec),
            f"{name}: not compressed": batch(two, now, codec, squeeze=False),
            f"{name}: header without a key": batch([two[0], record(1, headers=b"\x02\x01\x01")], now, codec),
        }  # fmt: skip
    found["shape changes: offsets 0, 0"] = batch([record(0), record(0, value=b"longer")], now)
    return found


def told_wrongly(now: int) -> dict[str, tuple[bytes, int]]:
    """Batches that are taken, whose headers say what their records do not; with the true largest time."""
    early, late = record(0, delta=-5000), record(1, delta=2000)
    odd = record(2, value=b"longer", delta=-7000)
    return {
        "as it is": (batch([early, late], now, max_timestamp=now + 2000), now + 2000),
        "the last message's": (
            batch([record(0, delta=2000), record(1, delta=-9000)], now, max_timestamp=now - 9000), now + 2000
        ),
        "-1": (batch([early, late], now, max_timestamp=-1), now + 2000),
        "too small": (batch([early, late], now, max_timestamp=now - 10**9), now + 2000),
        "too large": (batch([early, late], now, max_timestamp=now + 10**12), now + 2000),
        "largest": (batch([early, late], now, max_timestamp=2**63 - 1), now + 2000),
        "uneven records": (batch([early, late, odd], now, max_timestamp=-1), now + 2000),
        "no times": (batch([record(0), record(1)], -1, max_timestamp=now), -1),
        "before 1970": (batch([record(0), record(1)], -10**6, max_timestamp=now), -1),
        "gzip": (batch([early, late], now, 1, max_timestamp=-1), now + 2000),
        "snappy": (batch([early, late], now, 2, max_timestamp=-1), now + 2000),
        "lz4": (batch([early, late], now, 3, max_timestamp=-1), now + 2000),
        "zstd": (batch([early, late], now, 4, max_timestamp=-1), now + 2000),
        "log append time": (
            batch([early, late], now, attributes=LOG_APPEND_TIME, max_timestamp=now - 10**6), now + 2000
        ),
        "delete horizon": (
            batch([early, late], now, attributes=DELETE_HORIZON, max_timestamp=now), now + 2000
        ),
        "unknown attributes": (batch([early, late], now, attributes=0x7F80, max_timestamp=now), now + 2000),
        "leader epoch": (batch([early, late], now, leader_epoch=99, max_timestamp=now + 2000), now + 2000),
        "attributes of a record": (
            batch([record(0, attributes=0xFF, delta=2000), late], now, max_timestamp=now), now + 2000
        ),
    }  # fmt: skip


# -- what becomes of them ------------------------------------------------------------------------
# A batch enters a log only if every reader can read it, under a header that says what its records say.

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
    assert header.attributes == codec | (LOG_APPEND_TIME if stamped else 0)
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


# -- odd requests --------------------------------------------------------------------------------
# Values that no client library sends are answered as Apache Kafka 4.3.1 answers them.


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(config={"auto.create.topics.enable": "true"}) as started:
        create(started.bootstrap, "t")
        with Wire(started.host, started.port) as wire:
            assert [part["error_code"] for part in produce(wire, "t", 1)] == [0]
        yield started


def produce(wire: Wire, topic: str, *counts: int) -> list[dict[str, Any]]:
    """One request with a batch of so many records each, all for partition 0."""
    now = int(time.time() * 1000)
    parts = [{"index": 0, "records": batch([record(n) for n in range(count)], now)} for count in counts]
    told = wire.call(ApiKey.PRODUCE, 9, acks=-1, topic_data=[{"name": topic, "partition_data": parts}])
    return [part for response in told["responses"] for part in response["partition_responses"]]


def list_offsets(wire: Wire, version: int, timestamp: int, isolation: int = 0) -> dict[str, Any]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    told = wire.call(ApiKey.LIST_OFFSETS, version, isolation_level=isolation, topics=topics)
    (found,) = told["topics"][0]["partitions"]
    return dict(found)


@pytest.mark.parametrize("version", [1, 2, 5, 8, 11])
@pytest.mark.parametrize("timestamp", [-7, -100, -(2**63)])
def test_special_times_that_do_not_exist(wire: Wire, version: int, timestamp: int) -> None:
    found = list_offsets(wire, version, timestamp)
    assert (found["error_code"], found["offset"]) == (ErrorCode.UNSUPPORTED_VERSION, -1)


@pytest.mark.parametrize("isolation", [2, -1, 100])
def test_isolation_levels_that_do_not_exist(wire: Wire, isolation: int) -> None:
    for version in (2, 7):
        found = list_offsets(wire, version, -1, isolation)
        assert (found["error_code"], found["offset"]) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    for version in (4, 6, 11):
        told = fetch(wire, version, isolation=isolation)
        whole = ErrorCode.UNKNOWN_SERVER_ERROR if version >= 7 else ErrorCode.NONE
        assert told["error_code"] == whole
        (part,) = told["responses"][0]["partitions"]
        assert (part["error_code"], bytes(part["records"])) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")


def fetch(wire: Wire, version: int, most: int = 1 << 20, here: int = 1 << 20, isolation: int = 0) -> Any:
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": here}
    topics = [{"topic": "t", "partitions": [part]}]
    return wire.call(
        ApiKey.FETCH, version, max_bytes=most, isolation_level=isolation, topics=topics, session_epoch=-1
    )


@pytest.mark.parametrize(("most", "here"), [(-1, 100), (100, -1), (-(2**31), -1)])
def test_negative_sizes(wire: Wire, most: int, here: int) -> None:
    told = fetch(wire, 11, most, here)
    (part,) = told["responses"][0]["partitions"]
    assert (told["error_code"], part["error_code"]) == (0, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert fetch(wire, 11, 0, 0)["responses"][0]["partitions"][0]["records"], "one batch at least"


@pytest.mark.parametrize(("kind", "name"), [(None, None), ("consumer", None), (None, "range")])
def test_a_sync_must_name_its_protocol_from_version_5(wire: Wire, kind: Any, name: Any) -> None:
    sent = {"generation_id": 1, "member_id": "m", "protocol_type": kind, "protocol_name": name}
    told = wire.call(ApiKey.SYNC_GROUP, 5, group_id="nobody", **sent)
    assert told["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    older = {"group_id": "nobody", "generation_id": 1, "member_id": "m"}
    assert wire.call(ApiKey.SYNC_GROUP, 4, **older)["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("validate_only", [False, True])
def test_the_topic_of_kafka_s_controllers_cannot_be_made(wire: Wire, validate_only: bool) -> None:
    topic = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
    told = wire.call(ApiKey.CREATE_TOPICS, 5, topics=[topic], validate_only=validate_only)
    assert told["topics"][0]["error_code"] == ErrorCode.INVALID_REQUEST
    names = [{"name": "__cluster_metadata"}]
    told = wire.call(ApiKey.METADATA, 9, topics=names, allow_auto_topic_creation=True)
    assert told["topics"][0]["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (part,) = produce(wire, "__cluster_metadata", 1)
    assert part["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_twice_in_one_produce_takes_and_answers_both(wire: Wire) -> None:
    """Kafka stores the last batch alone, without a word on the first: see transactions.md."""
    end = list_offsets(wire, 7, -1)["offset"]
    first, second = produce(wire, "t", 2, 3)
    assert (first["error_code"], first["base_offset"]) == (0, end)
    assert (second["error_code"], second["base_offset"]) == (0, end + 2)
    assert list_offsets(wire, 7, -1)["offset"] == end + 5
