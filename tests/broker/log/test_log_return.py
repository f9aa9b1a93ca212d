"""A partition that a failing disk took offline comes back in the same life, as it would after a restart."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import resource
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.recovery import PROBE_BYTES
from eoslog.broker.log.reserve import RESERVE, RESERVE_BYTES
from eoslog.broker.log.upkeep import Upkeep
from eoslog.protocol.errors import ErrorCode, KafkaError
from eoslog.testing import EmbeddedBroker
from tests.broker.broker_clients import create, ok, read_all
from tests.broker.log.logkit import NOW, Disk, FakeClock, FakeFile, Outcome, batch, sequenced
from tests.kit.program import until

LOG = "00000000000000000000.log"


def bring_back(partition: Partition, *, rounds: int = 1) -> list[Partition]:
    """What the broker does now and then; answers who came back."""
    back: list[Partition] = []
    upkeep = Upkeep(lambda: [partition], FakeClock(NOW))

    async def run() -> None:
        for _ in range(rounds):
            await upkeep.bring_back(back.append)

    asyncio.run(run())
    return back


def offsets(partition: Partition) -> list[int]:
    return [header.base_offset for header, _ in partition.scan()]


def refused(partition: Partition, data: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        partition.append(data, now_ms=NOW)
    return caught.value.code


def failed_sync(disk: Disk, partition: Partition) -> None:
    partition.append(sequenced(1, 1), now_ms=NOW)
    disk.fs.fail_sync = LOG
    disk.sync(partition)


def failed_roll(disk: Disk, partition: Partition) -> None:
    disk.fs.fail_sync = LOG
    refused(partition, batch(b"x" * 1000))


def torn_write(disk: Disk, partition: Partition) -> None:
    disk.fs.capacity, disk.fs.fail_truncate = 30, True
    refused(partition, sequenced(1, 1))


def half_a_segment(disk: Disk, partition: Partition) -> None:
    disk.fs.fail_open, disk.fs.fail_sync = "00001.index", "/data/t-0"
    refused(partition, batch(b"x" * 1000))


FAILURES: list[Callable[[Disk, Partition], None]] = [failed_sync, failed_roll, torn_write, half_a_segment]


def is_offline(partition: Partition) -> bool:
    return partition.offline is not None


def heal(disk: Disk) -> None:
    disk.fs.capacity = disk.fs.fail_sync = disk.fs.fail_open = None
    disk.fs.fail_truncate = False


@pytest.mark.parametrize("fail", FAILURES)
def test_it_is_back_with_all_that_was_acknowledged_and_nothing_else(
    fail: Callable[[Disk, Partition], None], caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(LogSettings(segment_bytes=1024))
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    woken: list[int] = []
    partition.subscribe(lambda: woken.append(partition.high_watermark))
    fail(disk, partition)
    assert is_offline(partition) and "goes offline" in caplog.text
    heal(disk)
    woken.clear()
    assert bring_back(partition) == [partition]
    assert not is_offline(partition) and offsets(partition) == [0]
    assert (partition.log_end_offset, partition.high_watermark) == (1, 1)
    assert woken, "who reads is told"
    assert disk.append(partition, sequenced(1, 1)) == 1, "the producer goes on where it was acknowledged"
    for outcome in (Outcome.ALL, Outcome.NOTHING):
        disk.fs.crash(outcome)
        assert offsets(disk.open(point=2)) == [0, 1]


def test_bytes_that_no_sync_made_safe_do_not_come_back() -> None:
    """The kernel shows them, though they may not be on the disk: cutting them off failed at first, too."""
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    partition.append(sequenced(1, 1), now_ms=NOW)
    disk.fs.fail_sync, disk.fs.fail_truncate = LOG, True
    disk.sync(partition)
    size = len(disk.file(LOG))
    disk.fs.fail_sync = None
    assert bring_back(partition) == [], "what cannot be cut off keeps it offline"
    assert len(disk.file(LOG)) == size
    disk.fs.fail_truncate = False
    assert bring_back(partition) == [partition] and offsets(partition) == [0]
    disk.append(partition, sequenced(2, 0))
    disk.fs.crash(Outcome.NOTHING)
    assert offsets(disk.open(point=2)) == [0, 1]


def test_with_page_cache_durability_all_that_can_be_read_comes_back() -> None:
    """It was acknowledged before any sync."""
    disk = Disk(LogSettings(segment_bytes=1024), flush="os")
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    partition.append(sequenced(1, 1), now_ms=NOW)
    disk.fs.fail_sync = LOG
    disk.sync(partition)
    heal(disk)
    assert bring_back(partition) == [partition]
    assert offsets(partition) == [0, 1] and partition.high_watermark == 2


def test_while_the_disk_fails_it_stays_offline_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    failed_sync(disk, partition)
    heal(disk)
    disk.fs.capacity = PROBE_BYTES - 1
    with caplog.at_level(logging.WARNING):
        upkeep = Upkeep(lambda: [partition], FakeClock(NOW))

        async def run() -> None:
            for _ in range(3):
                disk.fs.capacity = PROBE_BYTES - 1
                await upkeep.bring_back(lambda _: None)

        asyncio.run(run())
    assert caplog.text.count("is still offline") == 1 and partition.offline is not None
    assert not [name for name in disk.fs.list("/data/t-0") if "probe" in name]
    heal(disk)
    assert bring_back(partition) == [partition]


def test_a_marker_whose_index_entry_could_not_be_written_is_found_again() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.fs.fail_open = ".txnindex"
    with pytest.raises(KafkaError):
        partition.append_marker(1, 0, False, 0, NOW)
    heal(disk)
    assert bring_back(partition) == [partition]
    assert partition.open_transactions() == [(1, 0)], "the marker was not durable"
    partition.append_marker(1, 0, False, 0, NOW)
    disk.sync(partition)
    assert partition.read(0, 10**6, committed=True).aborted == [(1, 0)]


def test_readers_held_back_stay_so() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    partition.hold_back("curtain")
    partition.append(batch(b"lost"), now_ms=NOW)
    disk.fs.fail_sync = LOG
    disk.sync(partition)
    heal(disk)
    bring_back(partition)
    partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    assert partition.last_stable_offset == 0
    partition.let_go("curtain")
    assert partition.last_stable_offset == 2


def test_a_log_that_turns_out_to_be_damaged_stays_offline(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    partition = disk.open()
    for number in range(3):
        disk.append(partition, sequenced(1, number))
    disk.fs.fail_sync = LOG
    partition.append(sequenced(1, 3), now_ms=NOW)
    disk.sync(partition)
    heal(disk)
    disk.file(LOG)[70] ^= 1
    partition.durability.recovery_point = 0  # so that the start of the file is read again
    assert bring_back(partition, rounds=2) == []
    assert "stays offline" in caplog.text and not partition.may_return
    assert refused(partition, batch(b"x")) is ErrorCode.KAFKA_STORAGE_ERROR


def test_one_that_could_not_be_opened_at_the_start_comes_back() -> None:
    disk = Disk()
    disk.append(disk.open(), sequenced(1, 0))
    disk.fs.crash(Outcome.ALL)
    real, disk.fs.open = disk.fs.open, no_files  # type: ignore[method-assign]
    partition = disk.open(point=1)
    assert partition.offline is not None
    disk.fs.open = real  # type: ignore[method-assign]
    assert bring_back(partition) == [partition]
    assert offsets(partition) == [0] and disk.append(partition, sequenced(1, 1)) == 1


def test_one_that_could_not_be_opened_is_not_taken_for_shorter_than_it_was() -> None:
    disk = Disk()
    partition = disk.open()
    for number in range(3):
        disk.append(partition, sequenced(1, number))
    disk.fs.crash(Outcome.ALL)
    real, disk.fs.open = disk.fs.open, no_files  # type: ignore[method-assign]
    partition = disk.open(point=3)
    disk.fs.open = real  # type: ignore[method-assign]
    data = disk.file(LOG)
    del data[len(data) // 3 :]
    assert bring_back(partition) == [] and partition.offline is not None


def no_files(path: str, *, create: bool = False, private: bool = False) -> FakeFile:
    raise OSError(24, "Too many open files", path)


def test_not_while_something_is_at_work_on_its_files() -> None:
    """What a job of before writes afterwards would tell of batches that were cut off."""
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    partition.append(sequenced(1, 1), now_ms=NOW)
    job = partition.progress.begin_saving()
    disk.fs.fail_sync = LOG
    disk.sync(partition)
    heal(disk)
    assert bring_back(partition) == []
    job()
    partition.progress.end_saving()
    assert bring_back(partition) == [partition]
    disk.append(partition, sequenced(2, 0))
    disk.append(partition, sequenced(2, 1))
    disk.fs.crash(Outcome.ALL)
    reopened = disk.open(point=3)
    assert [(p.producer_id, p.batches[-1].last_sequence) for p in reopened.producers()] == [(1, 0), (2, 1)]


def test_a_partition_closed_meanwhile_stays_closed() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    failed_sync(disk, partition)
    heal(disk)
    job = partition.begin_return(NOW)
    assert job is not None
    found = job()
    partition.close()
    partition.end_return(found)
    assert partition.closed and partition.offline is not None


@pytest.mark.parametrize("begin", ["bring_back", "save_progress"])
def test_a_broker_that_ends_waits_for_what_is_at_work_on_its_files(
    begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk hangs. Once the lock is given back the files are the next broker's."""
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    if begin == "bring_back":
        failed_sync(disk, partition)
        heal(disk)
    hangs, done = threading.Event(), list[str]()

    def job(*_: object) -> Callable[[], None]:
        def run() -> None:
            hangs.wait(10)
            done.append("written")

        return run

    monkeypatch.setattr(partition, "begin_return", job)
    monkeypatch.setattr(partition.progress, "begin_saving", job)

    async def run() -> None:
        upkeep = Upkeep(lambda: [partition], FakeClock(NOW))
        at_work = upkeep.bring_back(lambda _: None) if begin == "bring_back" else upkeep.save_progress(1)
        task = asyncio.ensure_future(at_work)
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done(), "it waits"
        hangs.set()
        await asyncio.gather(task, return_exceptions=True)
        assert done == ["written"]

    asyncio.run(run())


# -- under a real broker -------------------------------------------------------------------------
# A disk that was full has room again, file descriptors that ran out are free again: a real broker goes on by
# itself, all its partitions are back, and what was acknowledged is there once.

BACK_SECONDS = 20
"""A look each 5 s, and what clients wait between two tries."""
DISK_BYTES = 48 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a file system can be mounted by root only: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def watched(data: Path) -> Iterator[tuple[EmbeddedBroker, Callable[[], int]]]:
    """A broker, and how many of its partitions are offline."""
    pages = {"metrics.listen": "127.0.0.1:0", "num.partitions": "1"}

    def offline() -> int:
        (url,) = re.findall(r"metrics at (\S+)", broker.output())
        with urlopen(url, timeout=10) as page:
            lines = page.read().decode().splitlines()
        (line,) = [line for line in lines if line.startswith("eoslog_partitions_offline ")]
        return int(float(line.split()[1]))

    with EmbeddedBroker(data, config=pages, log_level="info") as broker:
        yield broker, offline


class Copier:
    """One transaction after the other, each with a record and a group's offset; what became of each."""

    def __init__(self, broker: EmbeddedBroker, topic: str, name: str) -> None:
        self.topic, self.name, self.bootstrap = topic, name, broker.bootstrap
        self.committed: list[int] = []
        self.unknown: list[int] = []
        self._producer: Producer | None = None
        self._group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})

    def _made(self) -> Producer:
        if self._producer is None:
            limits = {"transaction.timeout.ms": 4000, "message.timeout.ms": 3000}
            producer = Producer(
                {"bootstrap.servers": self.bootstrap, "transactional.id": self.name, **limits}
            )
            producer.init_transactions(4)
            self._producer = producer
        return self._producer

    def begin(self, number: int) -> None:
        """A transaction with all its parts, open."""
        producer = self._made()
        producer.begin_transaction()
        producer.produce(self.topic, b"%s-%d" % (self.name.encode(), number))
        offsets = [TopicPartition(self.topic, 0, number)]
        producer.send_offsets_to_transaction(offsets, self._group.consumer_group_metadata(), 3)
        assert not producer.flush(3)

    def abort(self) -> bool:
        """Whether it was aborted, as far as the client knows."""
        try:
            self._made().abort_transaction(3)
        except KafkaException:
            self._drop()
            return False
        return True

    def one(self, number: int) -> bool:
        """Whether it was committed, as far as the client knows."""
        committing = False
        try:
            self.begin(number)
            committing = True
            self._made().commit_transaction(3)
        except (KafkaException, AssertionError) as error:
            requires_abort = isinstance(error, KafkaException) and error.args[0].txn_requires_abort()
            if committing and not requires_abort:
                self.unknown.append(number)
            self._drop()
            return False
        self.committed.append(number)
        return True

    def _drop(self) -> None:
        """The next one fences it, which ends what it left open."""
        self._producer = None

    def offset(self) -> int:
        (found,) = self._group.committed([TopicPartition(self.topic, 0)], 10)
        return int(found.offset)

    def close(self) -> None:
        self._group.close()


@pytest.mark.timeout(300)
def test_a_disk_that_was_full_has_room_again(disk: Path, topic: str) -> None:
    """A marker still fits into the log, what the index of aborted transactions needs does not: offline.

    There is no reserve that could help: a directory has its name.
    """
    (disk / "data" / RESERVE).mkdir(parents=True)
    with watched(disk / "data") as (broker, offline), ExitStack() as stack:
        create(broker.bootstrap, topic)
        copiers = [Copier(broker, topic, f"copier-{number}") for number in range(3)]
        for copier in copiers:
            stack.callback(copier.close)
            assert copier.one(1)
            copier.begin(2)
        fill(disk)
        ends = [copier.abort() for copier in copiers]
        assert not all(ends) and offline(), "the disk was full"
        assert not all([copier.one(3) for copier in copiers])
        os.unlink(disk / "ballast")
        until(lambda: not offline(), "no partition is offline", BACK_SECONDS)
        for copier in copiers:
            until(partial(copier.one, 100), "who waited goes on", 40)
            assert copier.one(101)
        seen = [(message.value() or b"").decode() for message in read_all(broker.bootstrap, topic)]
        assert len(seen) == len(set(seen)), "none twice"
        for copier in copiers:
            mine = {int(value.rpartition("-")[2]) for value in seen if value.startswith(copier.name + "-")}
            assert set(copier.committed) <= mine <= {*copier.committed, *copier.unknown}
            assert copier.offset() == 101


def fill(disk: Path) -> None:
    """A file takes all that is left."""
    with open(disk / "ballast", "wb", buffering=0) as ballast:
        for chunk in (bytes(1 << 20), bytes(4096)):
            with suppress(OSError):
                while True:
                    ballast.write(chunk)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("killed", [False, True])
def test_with_0_bytes_free_a_broker_starts_and_a_shorter_retention_makes_room(
    disk: Path, killed: bool
) -> None:
    """What docs/operating.md says of a full disk. The transaction that is open there ends by its time-out."""
    with watched(disk / "data") as (broker, offline), ExitStack() as stack:
        for name in ("ballast", "orders", "copy"):
            create(broker.bootstrap, name, 1, **{"segment.bytes": "1000000"})
        copier = Copier(broker, "copy", "copier")
        stack.callback(copier.close)
        assert copier.one(1)
        copier.begin(2)
        assert send(broker, "orders", 1000, 10) == 1000
        sent = send(broker, "ballast", 2000, 10_000)
        assert sent == 2000
        fill(disk)
        assert send(broker, "ballast", 20, 10_000) < 20, "the disk is full"
        fill(disk)
        assert free(disk) == 0
        if killed:
            broker.kill()
            broker.start()
            assert free(disk) == 0 and not offline()
            assert rows(broker, "orders") == list(range(1000)), "reads are served"
            assert rows(broker, "ballast")[:2000] == list(range(2000))
        ok(broker, "topics", "configs", "ballast", "--set", "retention.bytes=2000000")
        until(lambda: free(disk) > 15 << 20, "room", 30)
        kept = rows(broker, "ballast")
        assert len(kept) >= 190 and kept == list(range(kept[0], kept[-1] + 1)) and kept[-1] >= sent - 1
        assert not offline()
        assert send(broker, "orders", 1, 10, 1000) == 1
        until(partial(copier.one, 100), "who waited goes on", 40)
        until(lambda: (disk / "data" / RESERVE).stat().st_size == RESERVE_BYTES, "it is whole again", 30)
        broker.kill()
        broker.start()
        assert rows(broker, "orders") == list(range(1001))
        assert rows(broker, "ballast") == kept
        assert [message.value() for message in read_all(broker.bootstrap, "copy")] == [
            b"copier-1",
            b"copier-100",
        ]


def free(disk: Path) -> int:
    volume = os.statvfs(disk)
    return volume.f_bavail * volume.f_frsize


def send(broker: EmbeddedBroker, topic: str, count: int, size: int, first: int = 0) -> int:
    """How many rows of so many bytes were acknowledged."""
    done: list[int] = []
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "message.timeout.ms": 10_000, "retries": 2, "linger.ms": 5,
        "enable.idempotence": False, "max.in.flight": 1,
    })  # fmt: skip

    def delivered(error: object, _: object) -> None:
        if error is None:
            done.append(1)

    for number in range(first, first + count):
        producer.produce(topic, b"%08d" % number * (size // 8), on_delivery=delivered)
    producer.flush(60)
    return len(done)


def rows(broker: EmbeddedBroker, topic: str) -> list[int]:
    return [int((message.value() or b"")[:8]) for message in read_all(broker.bootstrap, topic)]


@pytest.mark.timeout(120)
def test_file_descriptors_are_free_again(tmp_path: Path, topic: str) -> None:
    """The marker is written, the index of aborted transactions cannot be opened: offline."""
    with watched(tmp_path / "data") as (broker, offline):
        create(broker.bootstrap, topic)
        copier = Copier(broker, topic, "copier")
        assert copier.one(1)
        copier.begin(2)
        usual = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (10, usual[1]))
        assert not copier.abort()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, usual)
        assert offline()
        until(lambda: not offline(), "no partition is offline", BACK_SECONDS)
        until(lambda: copier.one(100), seconds=40)
        seen = [message.value() for message in read_all(broker.bootstrap, topic)]
        assert seen == [b"copier-1", b"copier-100"] and copier.offset() == 100
        copier.close()


def test_an_operator_s_shorter_retention_frees_a_full_disk_at_once() -> None:
    """With the defaults it would take six minutes, in which people delete files by hand."""
    with EmbeddedBroker(in_thread=True, config={"log.segment.bytes": "10000"}) as broker:
        create(broker.bootstrap, "t")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "batch.size": 1000})
        for _ in range(50):
            producer.produce("t", b"x" * 1000, partition=0)
        assert producer.flush(60) == 0
        broker.faults.disk_full(1 << 20)
        change = ConfigResource(ConfigResource.Type.TOPIC, "t")
        change.add_incremental_config(
            ConfigEntry("retention.bytes", "0", incremental_operation=AlterConfigOpType.SET)
        )
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.incremental_alter_configs([change])[change].result(60)
        folder = broker.data / "t-0"
        until(
            lambda: not (folder / LOG).exists() and not list(folder.glob("*.deleted")),
            "room on the disk",
            seconds=200,
        )
