"""Damage in segments that a start does not read again: whoever reads gets what was written, or an error."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import KafkaError as ClientError
from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError

from eoslog.broker.config import BrokerConfig
from eoslog.broker.config.options import StorageOptions
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.upkeep import Pause, Scrubber, ScrubStopped
from eoslog.client.records.fetch import fetch
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from eoslog.errors import RefusedByBroker
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create, read_all
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, batch, clean

SMALL = LogSettings(segment_bytes=3000, index_interval_bytes=500)
ANSWERS = (1, 700, 10**9)
"""Sizes of an answer: a batch, some, a segment."""

Batches = list[tuple[int, bytes]]
Damage = Callable[[Disk, str], object]


class Log:
    """Sixty batches in some segments, ended in order: what is in it, and what is done to it."""

    def __init__(self) -> None:
        self.disk, random = Disk(SMALL), Random(1)
        partition = self.disk.open()
        for _ in range(60):
            self.disk.append(partition, batch(*(random.randbytes(100) for _ in range(random.randint(1, 3)))))
        self.batches = read(partition)
        self.end(partition)
        self.sealed = sorted(name for name in self.disk.fs.list(DIRECTORY) if name.endswith(".log"))[:-1]
        assert len(self.sealed) > 4

    def end(self, partition: Partition) -> None:
        self.point = partition.log_end_offset
        partition.save()
        partition.close()

    def open(self) -> Partition:
        """As the next start does."""
        return self.disk.open(clean=True, point=self.point)


@pytest.fixture
def log() -> Log:
    return Log()


def read(partition: Partition, max_bytes: int = 700) -> Batches:
    """All batches from the log's start on, one answer after another."""
    return list(reading(partition, max_bytes))


def reading(partition: Partition, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    offset = partition.log_start_offset
    partition.read(offset, 0, committed=False)  # raises where the partition is offline
    while offset < partition.high_watermark:
        data = memoryview(partition.read(offset, max_bytes, committed=False).records)
        before = offset
        for at, header in iter_headers(data):
            offset = header.next_offset
            yield header.base_offset, bytes(data[at + 16 : at + header.size])  # without the leader epoch
        assert offset > before, "a reader would ask for ever"


def read_up_to_the_damage(partition: Partition, max_bytes: int) -> tuple[Batches, KafkaError | None]:
    found: Batches = []
    try:
        for one in reading(partition, max_bytes):
            found.append(one)
    except KafkaError as error:
        return found, error
    return found, None


def move_a_batch(disk: Disk, name: str) -> None:
    """Its base offset is no part of what its CRC is of."""
    data = disk.file(name)
    second = next(at for at, _ in iter_headers(memoryview(bytes(data))) if at)
    data[second + 6] += 1


def cut_behind_a_batch(disk: Disk, name: str) -> None:
    data = disk.file(name)
    *_, last = (at for at, _ in iter_headers(memoryview(bytes(data))))
    del data[last:]


def drop_a_batch(disk: Disk, name: str) -> None:
    data = disk.file(name)
    places = [(at, header) for at, header in iter_headers(memoryview(bytes(data)))]
    at, header = places[len(places) // 2]
    del data[at : at + header.size]


def cut_in_a_batch(disk: Disk, name: str) -> None:
    del disk.file(name)[-30:]


def empty(disk: Disk, name: str) -> None:
    disk.file(name).clear()


def flip(disk: Disk, name: str) -> None:
    disk.file(name)[1000] ^= 1


def remove(disk: Disk, name: str) -> None:
    disk.fs.remove(f"{DIRECTORY}/{name}")


@pytest.mark.parametrize("max_bytes", ANSWERS)
@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "some", "last sealed"])
@pytest.mark.parametrize(
    "damage", [move_a_batch, cut_behind_a_batch, drop_a_batch, cut_in_a_batch, empty, flip, remove]
)
def test_readers_stop_at_the_damage(log: Log, damage: Damage, which: int, max_bytes: int) -> None:
    damage(log.disk, log.sealed[which])
    found, error = read_up_to_the_damage(log.open(), max_bytes)
    assert error is not None and error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
    assert found == log.batches[: len(found)], "what comes before it is right, and nothing comes behind it"


@pytest.mark.parametrize("damage", [move_a_batch, cut_behind_a_batch, drop_a_batch])
def test_the_error_says_where_and_what_is_missing(log: Log, damage: Damage) -> None:
    damage(log.disk, log.sealed[2])
    _, error = read_up_to_the_damage(log.open(), 700)
    assert error is not None and error.code is ErrorCode.CORRUPT_MESSAGE
    assert log.sealed[2] in str(error) and "position" in str(error) and "t-0" in str(error)


@pytest.mark.parametrize("max_bytes", ANSWERS)
def test_any_bit(max_bytes: int) -> None:
    """Whatever bit of a sealed segment is another one: the same records, or an error."""
    log, random, silent = Log(), Random(max_bytes), 0
    for _ in range(300):
        name = random.choice(log.sealed)
        data = log.disk.file(name)
        at, bit = random.randrange(len(data)), 1 << random.randrange(8)
        data[at] ^= bit
        found, error = read_up_to_the_damage(log.open(), max_bytes)
        assert found == log.batches[: len(found)]
        assert error is not None or found == log.batches
        silent += error is None  # in a leader epoch
        data[at] ^= bit
    assert silent < 30


def test_what_compaction_took_is_no_damage() -> None:
    """Nor when the topic is not compacted any more, and not for who begins in a gap."""
    disk = Disk(SMALL).with_settings(compacted=True, deleted=False)
    partition = disk.open()
    for number in range(60):
        disk.append(partition, batch(b"%d" % number * 50))
    clean(disk, partition)
    left = read(partition)
    assert len(left) < 60
    end = partition.log_end_offset
    partition.save()
    partition.close()
    for settings in (disk.settings, SMALL):
        disk.settings = settings
        partition = disk.open(clean=True, point=end)
        for max_bytes in ANSWERS:
            assert read(partition, max_bytes) == left
        for offset in range(end):
            assert partition.read(offset, 1, committed=False).records
        partition.close()


def test_a_compacted_segment_that_is_cut_short_is_damage() -> None:
    disk = Disk(SMALL).with_settings(compacted=True, deleted=False)
    partition = disk.open()
    for number in range(60):
        disk.append(partition, batch(b"%d" % number * 50))
    clean(disk, partition)
    end = partition.log_end_offset
    partition.save()
    partition.close()
    first = min(name for name in disk.fs.list(DIRECTORY) if name.endswith(".log"))
    cut_behind_a_batch(disk, first)
    partition = disk.open(clean=True, point=end)
    with pytest.raises(KafkaError):
        read(partition)
    with pytest.raises(KafkaError):
        list(partition.scan())


@pytest.mark.parametrize("damage", [cut_behind_a_batch, drop_a_batch, move_a_batch, flip])
def test_a_coordinator_does_not_begin_with_less_than_it_wrote(log: Log, damage: Damage) -> None:
    damage(log.disk, log.sealed[2])
    with pytest.raises(KafkaError):
        list(log.open().scan())


def test_deleted_records_are_no_damage(log: Log) -> None:
    partition = log.open()
    partition.delete_records(50)
    partition.retain(NOW)
    left = read(partition)
    assert left == log.batches[-len(left) :] and left[0][0] <= 50 < left[1][0]
    log.end(partition)
    assert read(log.open()) == left


# -- the scrub -------------------------------------------------------------------------------------


def scrub(disk: Disk, partition: Partition, rate: int = 1 << 40) -> Scrubber:
    scrubber = Scrubber(
        disk.fs, lambda: [partition], BrokerConfig(storage=StorageOptions(scrub_bytes_per_second=rate))
    )
    asyncio.run(scrubber.scrub())
    return scrubber


def test_the_scrub_reads_each_segment_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    partition = log.open()
    assert [one.base for _, one in partition.unchecked_segments()] == [
        *(int(name[:20]) for name in log.sealed),
        partition._log.segments.active.base_offset,
    ]
    with caplog.at_level(logging.INFO):
        scrubber = scrub(log.disk, partition)
        assert f"{len(log.sealed) + 1} segments, {partition.size} bytes were read" in caplog.text
        assert "0 damaged" in caplog.text
        caplog.clear()
        scrub(log.disk, partition)
        assert not caplog.text
    with caplog.at_level(logging.DEBUG):
        scrubber._partitions = lambda: [log.open()]
        asyncio.run(scrubber.scrub())
    levels = {record.levelno for record in caplog.records if "were read" in record.message}
    assert levels == {logging.DEBUG}, "a pass after the first is no news"
    assert partition.unchecked_segments() == [] and partition.damaged_segments == 0
    assert read(partition) == log.batches


@pytest.mark.parametrize("which", [0, 2, -1], ids=["first", "some", "last sealed"])
@pytest.mark.parametrize(
    "damage", [move_a_batch, cut_behind_a_batch, drop_a_batch, cut_in_a_batch, empty, flip]
)
def test_the_scrub_finds_damage_that_nobody_reads(
    log: Log, damage: Damage, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    damage(log.disk, log.sealed[which])
    partition = log.open()
    scrub(log.disk, partition)
    assert partition.damaged_segments == 1
    [error] = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert "t-0 is damaged" in error and log.sealed[which] in error and "position" in error
    found, stopped = read_up_to_the_damage(partition, 700)
    assert stopped is not None and found == log.batches[: len(found)]


def test_what_is_written_in_this_life_needs_no_scrub(log: Log) -> None:
    partition = log.open()
    scrub(log.disk, partition)
    for number in range(60):
        log.disk.append(partition, batch(b"%d" % number * 50))
    assert partition.unchecked_segments() == []


def test_the_active_segment_is_looked_through_as_it_was_found(log: Log) -> None:
    partition = log.open()
    before = partition.unchecked_segments()[-1][1]
    log.disk.append(partition, batch(b"more"))
    scrub(log.disk, partition)
    assert before.end is None and partition.unchecked_segments() == [] and partition.damaged_segments == 0


def test_a_segment_that_goes_meanwhile_is_not_damaged(log: Log) -> None:
    partition = log.open()
    [(segment, one), *_] = partition.unchecked_segments()
    partition.delete_records(partition.high_watermark)
    partition.retain(NOW)
    assert not partition.has(segment)
    scrubber = Scrubber(log.disk.fs, lambda: [partition], BrokerConfig())
    pause = Pause(1 << 40, threading.Event())
    assert asyncio.run(scrubber._check(partition, segment, one, pause)) and segment.damage is None


def test_never(log: Log) -> None:
    partition = log.open()
    scrub(log.disk, partition, rate=0)
    assert len(partition.unchecked_segments()) == len(log.sealed) + 1


def test_the_scrub_keeps_to_its_rate_and_ends_when_asked() -> None:
    stop = threading.Event()
    pause, began = Pause(1000, stop), time.monotonic()
    pause(100)
    pause(100)
    assert 0.15 < time.monotonic() - began < 5
    stop.set()
    with pytest.raises(ScrubStopped):
        pause(1)


# -- under a real broker -------------------------------------------------------------------------
# A damaged segment under a real broker: what stock clients, the connector, the log and the metrics say.

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
    return rows, ClientError.NO_ERROR


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
        caplog.at_level(logging.INFO, "eoslog.broker.log.upkeep"),
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
