"""How much a start reads of a log, and how much of it stays open and in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from eoslog.broker.log import recovery, segment
from eoslog.broker.log.durability import GroupFlush, PartitionPlace
from eoslog.broker.log.files import Checkpoints, OffsetCheckpoint
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition, create_directory, open_partition
from eoslog.broker.log.recovery import KnownLog
from eoslog.broker.log.segment import WARM, WarmSegments
from eoslog.broker.log.upkeep import Upkeep
from eoslog.broker.ports import OsFileSystem
from tests.broker.log.logkit import DIRECTORY, NOW, Disk, FakeClock, Outcome, batch, sequenced, stored
from tests.broker.log.test_log_crash_model import Life

# -- a start -------------------------------------------------------------------------------------
# How much a start reads: of a log closed in order nothing, after a crash what came after the progress.

KB = 1 << 10


def fill(disk: Disk, partition: Partition, count: int, size: int = 8 * KB) -> None:
    for _ in range(count):
        partition.append(batch(bytes(size)), now_ms=NOW)
    disk.sync(partition)


def progress(partition: Partition, least: int = 1) -> bool:
    return asyncio.run(Upkeep(lambda: [partition], FakeClock(NOW)).save_progress(least))


def read_at_start(disk: Disk, point: int, clean: bool = False) -> tuple[int, Partition]:
    disk.fs.bytes_read.clear()
    partition = disk.open(point=point, clean=clean)
    assert partition.offline is None
    return disk.fs.bytes_read[".log"], partition


def test_a_log_that_was_closed_in_order_is_not_read() -> None:
    disk = Disk(LogSettings(segment_bytes=1 << 20))
    partition = disk.open()
    fill(disk, partition, 500)
    partition.save()
    partition.close()
    disk.fs.crash(Outcome.NOTHING)
    read, partition = read_at_start(disk, 500, clean=True)
    assert read <= 16 * KB
    assert partition.log_end_offset == 500


def test_after_a_crash_only_what_came_after_the_last_progress_is_read() -> None:
    disk = Disk(LogSettings(segment_bytes=1 << 30))
    partition = disk.open()
    fill(disk, partition, 500)
    assert progress(partition)
    assert not progress(partition), "nothing was written since"
    point = partition.recovery_point
    fill(disk, partition, 20)
    for outcome in (Outcome.ALL, Outcome.NOTHING):
        disk.fs.crash(outcome)
        read, partition = read_at_start(disk, point)
        assert 20 * 8 * KB <= read <= 3 * 20 * 8 * KB + 100 * KB
        assert (partition.log_end_offset, disk.report) == (520, [])
        assert [header.base_offset for header, _ in partition.scan()] == list(range(520))


def test_sealed_segments_below_the_recovery_point_are_not_read() -> None:
    disk = Disk(LogSettings(segment_bytes=512 * KB))
    partition = disk.open()
    fill(disk, partition, 400)
    disk.fs.crash(Outcome.ALL)
    read, partition = read_at_start(disk, 400)
    assert read <= 3 * 512 * KB
    assert partition.log_end_offset == 400


def test_producers_and_transactions_are_those_of_the_snapshot_and_what_came_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recovery, "WORTH_SKIPPING", 1)
    disk = Disk(LogSettings(index_interval_bytes=100))
    partition = disk.open()
    for sequence in range(6):
        disk.append(partition, sequenced(1, sequence))
    disk.append(partition, sequenced(2, 0, transactional=True))
    partition.append_marker(2, 0, False, 0, NOW)
    disk.append(partition, sequenced(3, 0, transactional=True))
    progress(partition)
    disk.append(partition, sequenced(1, 6))
    point = partition.recovery_point
    disk.fs.crash(Outcome.NOTHING)
    read, partition = read_at_start(disk, point)
    assert read < len(disk.file("0" * 20 + ".log"))
    for sequence, offset in ((2, 2), (5, 5), (6, 9)):
        assert partition.append(sequenced(1, sequence), now_ms=NOW).base_offset == offset
    assert partition.open_transactions() == [(3, 8)]
    assert partition.read(0, 1 << 20, committed=True).aborted == [(2, 6)]


def test_only_the_last_two_snapshots_of_the_active_segment_stay() -> None:
    disk = Disk()
    partition = disk.open()
    for _ in range(5):
        disk.append(partition, batch(b"x"))
        progress(partition)
    names = [name for name in disk.fs.list(DIRECTORY) if name.endswith(".snapshot")]
    assert names == [f"{4:020d}.snapshot", f"{5:020d}.snapshot"]


def test_a_saved_index_that_does_not_fit_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "WORTH_SKIPPING", 1)
    for damage in (b"", b"\0" * 40, b"\x01" * 24, None):
        disk = Disk(LogSettings(index_interval_bytes=100))
        partition = disk.open()
        fill(disk, partition, 30, 300)
        progress(partition)
        index = disk.file("0" * 20 + ".index")
        if damage is None:
            index[-1] ^= 1
        else:
            index[:] = damage
        partition = disk.open(point=30)
        assert (partition.offline, partition.log_end_offset) == (None, 30)
        assert [header.base_offset for header, _ in partition.scan(17)] == list(range(17, 30))


def test_progress_that_fails_is_made_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(LogSettings(index_interval_bytes=100))
    partition = disk.open()
    fill(disk, partition, 10, 300)
    disk.fs.fail_sync = ".index"
    progress(partition)
    assert "will read more of it" in caplog.text
    disk.fs.fail_sync = None
    fill(disk, partition, 10, 300)
    progress(partition)
    disk.fs.crash(Outcome.NOTHING)
    assert disk.open(point=20).log_end_offset == 20


@pytest.fixture
def always_resumed() -> Iterator[None]:
    before, recovery.WORTH_SKIPPING = recovery.WORTH_SKIPPING, 1
    yield
    recovery.WORTH_SKIPPING = before


@pytest.mark.usefixtures("always_resumed")
@pytest.mark.parametrize("seed", range(40))
def test_random_lives_with_progress_and_crashes(seed: int) -> None:
    random = Random(seed)
    disk = Disk(LogSettings(segment_bytes=random.choice([2500, 1 << 20]), index_interval_bytes=150))
    life = Life(disk, disk.open(), random=random)
    point = 0
    for _ in range(60):
        step = random.choice(["plain", "produce", "produce", "mark", "sync", "progress", "restart"])
        if step == "plain":
            life.plain(random.randint(0, 600))
        elif step == "produce":
            life.produce(random.randint(1, 3), random.randint(1, 3), random.random() < 0.5)
        elif step == "mark":
            life.mark(random.randint(1, 3), random.random() < 0.5)
        elif step == "sync":
            life.sync()
        elif step == "progress":
            life.partition.progress.begin_saving()()
            life.partition.progress.end_saving()
            point = life.partition.recovery_point
        else:
            disk.fs.crash(random.choice(list(Outcome)[:3]), random)
            life.partition = disk.open(point=point)
            assert life.partition.offline is None
            life.check_contents()
    assert stored(life.partition)


def test_above_the_recovery_point_the_saved_index_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "WORTH_SKIPPING", 1)
    disk = Disk(LogSettings(index_interval_bytes=100))
    partition = disk.open()
    fill(disk, partition, 30, 300)
    progress(partition)
    log = disk.file("0" * 20 + ".log")
    log[len(log) // 2] ^= 1  # a page that a power loss took, of what was not synced
    assert disk.open(point=10).offline is not None


# -- open files and indexes ----------------------------------------------------------------------
# A log of many segments holds few files open and few indexes in memory.


def warm_count(partition: Partition) -> int:
    return sum(segment._file is not None for segment in partition._log.segments)


def test_a_sealed_segment_lets_go_of_its_file_and_is_read_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = WarmSegments(3, 1 << 20)
    monkeypatch.setattr(segment, "WARM", few)
    disk = Disk(LogSettings(segment_bytes=1024, index_interval_bytes=100))
    partition = disk.open()
    for number in range(60):
        disk.append(partition, batch(b"%d" % number * 200, timestamp=NOW + number))
    assert len(partition._log.segments) == 60 or len(partition._log.segments) > 15
    assert warm_count(partition) == 1, "the active one"
    for _ in range(2):
        for offset in range(60):
            assert partition.read(offset, 100, committed=False).records
            assert partition.offset_for(NOW + offset, committed=False) == (NOW + offset, offset)
            assert warm_count(partition) <= 4
        partition.save()
        partition.close()
        partition = disk.open(clean=True, point=60)
        assert warm_count(partition) == 1


def test_indexes_are_let_go_by_their_size() -> None:
    class Thing:
        cooled = False

        def weight(self) -> int:
            return 400

        def cool(self) -> None:
            self.cooled = True

    warm, things = WarmSegments(100, 1000), [Thing() for _ in range(4)]
    for thing in things[:2]:
        warm.used(thing)
    warm.used(things[0])
    warm.used(things[2])
    assert [thing.cooled for thing in things] == [False, True, False, False]
    warm.gone(things[0])
    warm.used(things[3])
    assert [thing.cooled for thing in things] == [False, True, False, False]
    assert len(warm) == 2


def test_files_are_closed_on_a_real_disk(tmp_path: Path) -> None:
    fs, directory = OsFileSystem(), str(tmp_path / "t-0")
    create_directory(fs, directory, b"0123456789abcdef", 4096)
    checkpoints = Checkpoints(
        OffsetCheckpoint(fs, str(tmp_path / "a")), OffsetCheckpoint(fs, str(tmp_path / "b"))
    )
    flush = GroupFlush()
    place = PartitionPlace("t", 0, b"0123456789abcdef", directory)
    settings = LogSettings(segment_bytes=1024)
    partition = open_partition(fs, place, settings, flush, checkpoints, KnownLog(), NOW, [])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(300):
        partition.append(batch(bytes(600)), now_ms=NOW)
        flush.flush_now(partition.durability)
    assert len(partition._log.segments) >= 300
    assert len(os.listdir("/proc/self/fd")) <= before + 1
    assert sum(1 for _ in partition.scan()) == 300
    assert len(os.listdir("/proc/self/fd")) <= before + WARM._most_segments + 1
    partition.close()
    assert len(os.listdir("/proc/self/fd")) < before
