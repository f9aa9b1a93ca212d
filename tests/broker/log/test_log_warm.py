"""A log of many segments holds few files open and few indexes in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eoslog.broker.log.opening.opening import create_directory, open_partition
from eoslog.broker.log.partition.partition import Partition
from eoslog.broker.log.recovery.recovery import KnownLog
from eoslog.broker.log.segment import segment
from eoslog.broker.log.segment.checkpoint import Checkpoints, OffsetCheckpoint
from eoslog.broker.log.segment.group_flush import GroupFlush
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.segment.results import PartitionPlace
from eoslog.broker.log.segment.warm_segments import WARM, WarmSegments
from eoslog.broker.ports.ports import OsFileSystem
from tests.broker.log.logkit import NOW, Disk, batch


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
