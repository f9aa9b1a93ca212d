"""The log's files, and a disk that refuses, fills or loses them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.rules.producer_state import ProducerState, Written
from eoslog.protocol.batch import crc32c, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import DIRECTORY, NOW, TOPIC_ID, Disk, Outcome, batch, clean, sequenced, stored

# -- files -----------------------------------------------------------------------------------------
# The files beside the log, byte by byte as Kafka reads them, and the file system under it.


# -- the files -----------------------------------------------------------------------------------
# The files beside the log, byte by byte as Kafka reads them.

BASE = "00000000000000000000"


def test_sparse_indexes_hold_last_offset_and_position_of_a_batch() -> None:
    disk = Disk(LogSettings(index_interval_bytes=500))
    partition = disk.open()
    times = [5, 9, 3, 12, 12, 7, 20, 1, 1, 1]
    for time in times:
        disk.append(partition, batch(b"x" * 200, b"y", timestamp=NOW + time))
    partition.save()
    headers = list(iter_headers(disk.file(f"{BASE}.log")))
    index = list(struct.iter_unpack(">ii", disk.file(f"{BASE}.index")))
    by_position = dict(headers)
    assert index == [(by_position[position].last_offset, position) for _, position in index]
    # an entry for the first batch that begins more than 500 bytes after the last entry's batch began
    size = headers[0][1].size
    assert [position for _, position in index] == [2 * size, 4 * size, 6 * size, 8 * size]
    time_index = list(struct.iter_unpack(">qi", disk.file(f"{BASE}.timeindex")))
    assert time_index == [(NOW + 9, 3), (NOW + 12, 7), (NOW + 20, 13)]
    for timestamp, offset in time_index:
        (header,) = [header for _, header in headers if header.last_offset == offset]
        assert header.max_timestamp == timestamp


def test_indexes_are_relative_to_the_segment_and_end_with_its_largest_time() -> None:
    size = len(batch(b"x" * 200))
    disk = Disk(LogSettings(segment_bytes=3 * size, index_interval_bytes=0))
    partition = disk.open()
    for time in range(5):
        disk.append(partition, batch(b"x" * 200, timestamp=NOW + time))
    assert list(struct.iter_unpack(">qi", disk.file(f"{BASE}.timeindex")))[-1] == (NOW + 2, 2)
    partition.save()
    second = "00000000000000000003"
    assert list(struct.iter_unpack(">ii", disk.file(f"{second}.index"))) == [(1, size)]
    assert list(struct.iter_unpack(">qi", disk.file(f"{second}.timeindex"))) == [(NOW + 4, 1)]


def test_transaction_index() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(11, 0, transactional=True))
    disk.append(partition, sequenced(12, 0, transactional=True))
    partition.append_marker(11, 0, False, 0, NOW)
    partition.append_marker(12, 0, False, 0, NOW)
    data = bytes(disk.file(f"{BASE}.txnindex"))
    assert data == struct.pack(">hqqqq", 0, 11, 0, 2, 1) + struct.pack(">hqqqq", 0, 12, 1, 3, 4)


def test_there_is_no_transaction_index_without_an_abort() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(11, 0, transactional=True))
    partition.append_marker(11, 0, True, 0, NOW)
    assert not disk.fs.exists(f"{DIRECTORY}/{BASE}.txnindex")


def test_snapshot_bytes() -> None:
    state = ProducerState(7, 3, 2, NOW, 40)
    state.batches.append(Written(2**31 - 1, 1, 10, 12))
    data = producer_snapshot.encode([state])
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 3, 1, 12, 2, NOW, 2, 40)
    assert data == struct.pack(">hI", 1, crc32c([body])) + body


def test_a_snapshot_keeps_all_batches_the_last_one_last() -> None:
    states = [ProducerState(1, 0), ProducerState(2, 5, 4, NOW, 9), ProducerState(3, 1)]
    for first in range(2**31 - 9, 2**31 + 6, 3):
        states[1].batches.append(Written(first % 2**31, (first + 2) % 2**31, first, first + 2))
    states[2].batches.append(Written(0, 0, 5, 5).ended())
    data = producer_snapshot.encode(states)
    assert producer_snapshot.decode(data) == states
    last_of_two = [entry for entry in struct.iter_unpack(">qhiqiqiq", data[10:]) if entry[0] == 2][-1]
    assert last_of_two[2:5] == (5, 2**31 + 5, 2), "what Kafka takes for the producer's last batch"


@pytest.mark.parametrize("cut", [0, 5, 9, 30])
def test_a_torn_snapshot_is_refused(cut: int) -> None:
    data = producer_snapshot.encode([ProducerState(1, 0)])
    with pytest.raises(producer_snapshot.BadSnapshot):
        producer_snapshot.decode(data[:cut])


def test_snapshots_lie_at_segment_starts_and_at_the_end_of_a_log_closed_in_order() -> None:
    disk = Disk(LogSettings(segment_bytes=300))
    partition = disk.open()
    for sequence in range(5):
        disk.append(partition, sequenced(1, sequence))
    partition.save()
    disk.append(partition, sequenced(1, 5))
    partition.save()
    bases = files.offsets_of(disk.fs.list(DIRECTORY), files.LOG)
    assert files.offsets_of(disk.fs.list(DIRECTORY), files.SNAPSHOT) == sorted({*bases[1:], 6})


def test_small_files_of_a_partition() -> None:
    disk = Disk()
    assert bytes(disk.file("leader-epoch-checkpoint")) == b"0\n1\n0 0\n"
    assert bytes(disk.file("partition.metadata")) == b"version: 0\ntopic_id: MDEyMzQ1Njc4OWFiY2RlZg"
    assert files.decode_partition_metadata(bytes(disk.file("partition.metadata")), "x") == TOPIC_ID


def test_checkpoints() -> None:
    offsets = {("a", 0): 5, ("b.c-d", 12): 0}
    data = files.encode_offsets(offsets)
    assert data == b"0\n2\na 0 5\nb.c-d 12 0\n"
    assert files.decode_offsets(data, "p") == offsets
    assert files.decode_offsets(b"", "p") == {}
    for bad in (b"1\n0\n", b"0\n2\na 0 5\n", b"0", b"0\n1\na 0\n", b"0\n1\na x 0\n"):
        with pytest.raises(files.BadFile, match="p"):
            files.decode_offsets(bad, "p")


def test_ids_and_properties() -> None:
    assert files.decode_uuid(files.encode_uuid(TOPIC_ID)) == TOPIC_ID
    with pytest.raises(ValueError, match="16 bytes"):
        files.decode_uuid("abcd")
    assert files.decode_properties(b"# x\na=1\nb = c=d\n\nnonsense\n") == {"a": "1", "b": "c=d"}


# -- the real file system ------------------------------------------------------------------------
# The real file system under the log: which system calls each promise of `ports` makes, on what.

Calls = list[tuple[str, str]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What was synced, renamed and written from now on, in order: (call, path)."""
    made: Calls = []

    def noted(name: str) -> None:
        real: Callable[..., object] = getattr(os, name)

        def call(first: int | str, *more: object) -> object:
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(more[0])
            made.append((name, path))
            return real(first, *more)

        monkeypatch.setattr(os, name, call)

    for name in ("fdatasync", "fsync", "replace", "pwritev"):
        noted(name)
    return made


def test_a_sync_is_one_of_the_very_file(tmp_path: Path, calls: Calls) -> None:
    fs, path = OsFileSystem(), str(tmp_path / "a.log")
    file = fs.open(path, create=True)
    assert file.write([b"a", b"b"], 0) == 2
    file.sync()
    file.close()
    assert calls == [("pwritev", path), ("fdatasync", path)]
    assert Path(path).read_bytes() == b"ab"


def test_a_directory_is_synced_itself(tmp_path: Path, calls: Calls) -> None:
    OsFileSystem().sync_dir(str(tmp_path))
    assert calls == [("fsync", str(tmp_path))]


def test_a_small_file_is_on_the_disk_before_its_name_and_its_name_before_the_end(
    tmp_path: Path, calls: Calls
) -> None:
    path = str(tmp_path / "small")
    files.write_whole(OsFileSystem(), path, b"all of it")
    assert calls == [
        ("pwritev", path + ".tmp"),
        ("fdatasync", path + ".tmp"),
        ("replace", path),
        ("fsync", str(tmp_path)),
    ]


def test_half_a_small_file_never_takes_the_place_of_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs, path = OsFileSystem(), tmp_path / "small"
    files.write_whole(fs, str(path), b"as it was")
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, position: os.pwrite(fd, parts[0][:3], position))
    with pytest.raises(OSError, match="disk full"):
        files.write_whole(fs, str(path), b"as it should be")
    assert path.read_bytes() == b"as it was"


def test_reads_that_the_system_cuts_short_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, real = tmp_path / "a.log", os.pread
    path.write_bytes(bytes(range(100)))
    file = OsFileSystem().open(str(path))
    monkeypatch.setattr(os, "pread", lambda fd, size, position: real(fd, min(size, 7), position))
    assert file.read(90, 5) == bytes(range(5, 95))
    assert file.read(90, 50) == bytes(range(50, 100)), "the file ends there"
    file.close()


def test_a_lock_is_held_by_one_and_goes_with_its_file(tmp_path: Path) -> None:
    fs, path = OsFileSystem(), str(tmp_path / ".lock")
    held = fs.lock(path)
    with pytest.raises(BlockingIOError):
        fs.lock(path)
    held.close()
    fs.lock(path).close()


# -- errors of the disk ----------------------------------------------------------------------------
# Full disks, torn writes, failing syncs: a loud error, and never a log that is not what was acknowledged.


LOG = "00000000000000000000.log"


def storage_error(partition: Partition, data: bytes) -> str:
    with pytest.raises(KafkaError) as caught:
        partition.append(data, now_ms=NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return str(caught.value)


@pytest.mark.parametrize("room", [0, 1, 16, 60, 100])
def test_a_full_disk_leaves_the_log_as_it_was(room: int) -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0))
    before = bytes(disk.file(LOG))
    disk.fs.capacity = room
    storage_error(partition, sequenced(1, 1, 100))
    assert bytes(disk.file(LOG)) == before
    assert partition.log_end_offset == 1
    disk.fs.capacity = None
    assert disk.append(partition, sequenced(1, 1, 2)) == 1, "the sequence was not used up"
    assert len(stored(partition)) == 2


def test_no_later_batch_overtakes_a_producers_first_one_that_the_disk_refused() -> None:
    """Several are on their way: if the first fails and the second is taken, the first can never come."""
    disk = Disk()
    partition = disk.open()
    disk.fs.capacity = 0
    storage_error(partition, sequenced(1, 0))
    disk.fs.capacity = None
    with pytest.raises(KafkaError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        partition.append(sequenced(1, 1), now_ms=NOW)
    assert [disk.append(partition, sequenced(1, number)) for number in range(2)] == [0, 1]
    disk.fs.capacity = 0
    storage_error(partition, sequenced(2, 7))
    disk.fs.capacity = None
    assert disk.append(partition, sequenced(2, 0, epoch=1)) == 2, "a new epoch begins anew"


def test_if_a_torn_write_cannot_be_taken_back_the_partition_goes_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, batch(b"a"))
    disk.fs.capacity, disk.fs.fail_truncate = 30, True
    with caplog.at_level(logging.ERROR):
        assert "truncating it back" in storage_error(partition, batch(b"b"))
    assert "partition t-0 goes offline" in caplog.text
    disk.fs.capacity, disk.fs.fail_truncate = None, False
    assert "offline" in storage_error(partition, batch(b"c"))
    with pytest.raises(KafkaError) as caught:
        partition.read(0, 100, committed=False)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    disk.fs.crash(Outcome.ALL)
    reopened = disk.open()
    assert [header.base_offset for header, _ in reopened.scan()] == [0]
    assert len(disk.report) == 1, "the torn write was reported"


def test_a_failed_roll_leaves_the_old_segment_in_use() -> None:
    data = batch(b"x" * 600)
    disk = Disk(LogSettings(segment_bytes=1024))
    partition = disk.open()
    disk.append(partition, data)
    for fault in ("00001.log", "00001.index", "00001.snapshot"):
        disk.fs.fail_open = fault
        storage_error(partition, data)
        disk.fs.fail_open = None
    assert disk.append(partition, batch(b"small")) == 1, "this one fits into the old segment"
    assert disk.append(partition, data) == 2
    assert [name for name in disk.fs.list("/data/t-0") if name.endswith(".log")] == [
        f"{base:020d}.log" for base in (0, 2)
    ]
    assert len(stored(disk.open())) == 3
    assert disk.report == []


def test_a_failed_sync_at_a_roll_takes_the_partition_offline() -> None:
    data = batch(b"x" * 600)
    disk = Disk(LogSettings(segment_bytes=1024))
    partition = disk.open()
    disk.append(partition, data)
    disk.fs.fail_sync = LOG
    storage_error(partition, data)
    assert partition.offline is not None


async def _acknowledge(partition: Partition, data: bytes) -> int:
    appended = partition.append(data, now_ms=NOW)
    await partition.wait_durable(appended.last_offset)
    return appended.base_offset


def test_a_failed_sync_refuses_all_who_wait_and_its_bytes_never_come_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk()
    partition = disk.open()

    async def scenario() -> None:
        disk.flush.start()
        assert await _acknowledge(partition, batch(b"good")) == 0
        disk.fs.fail_sync = LOG
        woken: list[int] = []
        partition.subscribe(lambda: woken.append(1))
        results = await asyncio.gather(
            *(_acknowledge(partition, batch(b"lost")) for _ in range(3)), return_exceptions=True
        )
        assert [isinstance(r, KafkaError) and r.code for r in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
        assert woken == [1]
        disk.fs.fail_sync = None
        with pytest.raises(KafkaError):
            await partition.wait_durable(0)
        await disk.flush.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(scenario())
    assert "goes offline: sync failed" in caplog.text
    assert partition.high_watermark == 1
    disk.fs.crash(Outcome.ALL)
    assert [header.base_offset for header, _ in disk.open().scan()] == [0]


def test_a_failed_sync_of_one_partition_leaves_the_others_alone() -> None:
    first, second = Disk(), Disk()
    partitions = [first.open(), second.open()]

    async def scenario() -> None:
        flush = GroupFlush()
        flush.start()
        for partition in partitions:
            partition.durability._flush = flush
        first.fs.fail_sync = LOG
        results = await asyncio.gather(
            *(_acknowledge(partition, batch(b"x")) for partition in partitions), return_exceptions=True
        )
        assert isinstance(results[0], KafkaError)
        assert results[1] == 0
        await flush.stop()

    asyncio.run(scenario())


def test_an_aborted_transaction_that_cannot_be_indexed_takes_the_partition_offline() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.fs.fail_open = ".txnindex"
    with pytest.raises(KafkaError) as caught:
        partition.append_marker(1, 0, False, 0, NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.offline is not None
    disk.fs.fail_open = None
    disk.fs.crash(Outcome.ALL)
    reopened = disk.open()
    assert reopened.read(0, 10**6, committed=True).aborted == [(1, 0)]


def test_an_error_while_saving_is_raised() -> None:
    disk = Disk()
    partition = disk.open()
    partition.append(batch(b"x"), now_ms=NOW)
    disk.fs.fail_sync = LOG
    with pytest.raises(OSError, match="could not be flushed"):
        partition.save()


@pytest.mark.parametrize("fault", ["fail_rename", "fail_sync"])
@pytest.mark.parametrize("where", ["log-start-offset", "000.log", "00001.snapshot"])
def test_retention_on_a_failing_disk_loses_nothing_that_is_kept(fault: str, where: str) -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=2000))
    partition = disk.open()
    for number in range(12):
        disk.append(partition, batch(b"%04d" % number * 75))
    setattr(disk.fs, fault, where)
    with contextlib.suppress(OSError, KafkaError):
        partition.retain(NOW)
    setattr(disk.fs, fault, None)
    start = partition.log_start_offset
    assert [header.base_offset for header, _ in partition.scan()] == list(range(start, 12))
    partition.retain(NOW)
    for outcome in (Outcome.ALL, Outcome.NOTHING):
        disk.fs.crash(outcome)
        partition = disk.open(point=12)
        assert partition.log_start_offset >= start
        found = [header.base_offset for header, _ in partition.scan()]
        assert found == list(range(partition.log_start_offset, 12))
        assert len(found) >= 4, "what retention keeps is there"


def test_a_full_disk_keeps_what_was_acknowledged_when_segments_go_and_logs_are_compacted() -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=2000, compacted=True))
    partition = disk.open()
    for number in range(12):
        disk.append(partition, batch(b"%04d" % number * 75))
    disk.fs.capacity = 10
    with contextlib.suppress(OSError, KafkaError):
        partition.retain(NOW)
    with contextlib.suppress(OSError):
        clean(disk, partition)
    with pytest.raises(KafkaError):
        partition.append(batch(bytes(300)), now_ms=NOW)
    disk.fs.capacity = None
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open(point=12)
    assert (partition.offline, partition.log_end_offset) == (None, 12)
    assert [header.base_offset for header, _ in partition.scan()][-1] == 11
