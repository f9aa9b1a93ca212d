"""Full disks, torn writes, failing syncs: a loud error, and never a log that is not what was acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from eoslog.broker.log.durability import GroupFlush
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.fakefs import Outcome
from tests.broker.log.logkit import NOW, Disk, batch, clean, sequenced, stored

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
