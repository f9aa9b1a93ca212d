"""A partition that a failing disk took offline comes back in the same life, as it would after a restart."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.recovery.partition_reopening import PROBE_BYTES
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.upkeep.upkeep import Upkeep
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.fakefs import FakeClock, FakeFile, Outcome
from tests.broker.log.logkit import NOW, Disk, batch, sequenced

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
