"""Retention by time and size, records deleted by hand, segments that roll by time."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from dataclasses import replace
from typing import Any

import pytest

from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.log.reserve import READY_BYTES
from eoslog.broker.log.retention import SegmentSpan, expendable
from eoslog.broker.log.upkeep import Upkeep
from eoslog.protocol.batch import HEADER_SIZE, packed, read_header, stamped
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import (
    DIRECTORY,
    NOW,
    Disk,
    FakeClock,
    Outcome,
    batch,
    offsets,
    sequenced,
    stored,
)

HOUR = 3_600_000
SMALL = LogSettings(segment_bytes=1024, index_interval_bytes=100)


def fill(disk: Disk, count: int = 12, step: int = 1000) -> Partition:
    """Batches of about 370 bytes, two a segment, `step` ms apart."""
    partition = disk.open()
    for number in range(count):
        disk.append(partition, batch(b"%04d" % number * 75, timestamp=NOW + number * step))
    return partition


def logs(disk: Disk) -> list[int]:
    return [int(name[:20]) for name in disk.fs.list(DIRECTORY) if name.endswith(".log")]


SPANS = [SegmentSpan(2, 700, 10), SegmentSpan(4, 700, 30), SegmentSpan(6, 700, 20), SegmentSpan(7, 350, 40)]


@pytest.mark.parametrize(
    ("changes", "now", "start", "stable", "gone"),
    [
        ({"retention_ms": -1}, 10**9, 0, 7, 0),
        ({"retention_ms": 100}, 110, 0, 7, 0),
        ({"retention_ms": 100}, 111, 0, 7, 1),
        ({"retention_ms": 100}, 130, 0, 7, 1),
        ({"retention_ms": 100}, 131, 0, 7, 3),
        ({"retention_ms": 100}, 141, 0, 7, 4),
        ({"retention_ms": 100}, 141, 0, 6, 3),
        ({"retention_ms": 100}, 141, 0, 5, 2),
        ({"retention_ms": -1, "retention_bytes": 2451}, 0, 0, 7, 0),
        ({"retention_ms": -1, "retention_bytes": 1750}, 0, 0, 7, 1),
        ({"retention_ms": -1, "retention_bytes": 1751}, 0, 0, 7, 0),
        ({"retention_ms": -1, "retention_bytes": 0}, 0, 0, 7, 4),
        ({"retention_ms": -1, "retention_bytes": 0}, 0, 0, 3, 1),
        ({"retention_ms": -1, "retention_bytes": 1050}, 0, 3, 7, 2),
        ({"deleted": False, "retention_ms": 1, "retention_bytes": 1}, 10**9, 0, 7, 0),
        ({"deleted": False}, 10**9, 4, 7, 2),
        ({"retention_ms": 100}, 0, 7, 7, 3),
    ],
)
def test_which_segments_may_go(changes: dict[str, Any], now: int, start: int, stable: int, gone: int) -> None:
    assert expendable(SPANS, LogSettings(**changes), now, start, stable) == gone


def test_an_empty_active_segment_stays() -> None:
    assert expendable([SegmentSpan(5, 0, -1)], LogSettings(retention_bytes=0), 10**15, 0, 5) == 0
    assert expendable([SegmentSpan(2, 9, 1), SegmentSpan(2, 0, -1)], LogSettings(), 10**15, 0, 2) == 1


def test_old_segments_go_and_the_log_begins_later() -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_ms=HOUR))
    partition = fill(disk)
    assert logs(disk) == [0, 2, 4, 6, 8, 10]
    assert partition.retain(NOW + 5000 + HOUR) == 2
    assert (partition.log_start_offset, partition.log_end_offset) == (4, 12)
    assert logs(disk) == [4, 6, 8, 10]
    with pytest.raises(KafkaError) as caught:
        partition.read(3, 10**6, committed=False)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert offsets(partition.read(4, 10**6, committed=False).records) == [4, 5]
    assert partition.offset_for(NOW, committed=False) == (NOW + 4000, 4)
    again = disk.open(point=12)
    assert (again.log_start_offset, again.log_end_offset, disk.report) == (4, 12, [])


def test_the_active_segment_is_rolled_before_it_goes() -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_ms=HOUR))
    partition = fill(disk)
    assert partition.retain(NOW + 10 * HOUR) == 6
    assert (partition.log_start_offset, logs(disk)) == (12, [12])
    assert partition.read(12, 100, committed=False).records == b""
    assert disk.append(partition, batch(b"next")) == 12
    assert partition.retain(NOW) == 0
    assert disk.open(point=12).log_start_offset == 12


def test_files_are_removed_after_a_delay_or_at_the_next_start() -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=60_000))
    partition = fill(disk)
    partition.retain(NOW)
    partition.remove_files(NOW + 59_999)
    assert [name for name in disk.fs.list(DIRECTORY) if name.endswith(".log.deleted")] != []
    partition.remove_files(NOW + 60_000)
    assert [name for name in disk.fs.list(DIRECTORY) if ".deleted" in name] == []
    disk.append(partition, batch(b"x"))
    partition.retain(NOW)
    disk.open(point=13)
    assert [name for name in disk.fs.list(DIRECTORY) if ".deleted" in name] == []


@pytest.mark.parametrize("free", [READY_BYTES, READY_BYTES - 1])
def test_on_a_full_disk_retention_waits_for_nothing(free: int) -> None:
    """Neither for its interval nor for file.delete.delay.ms."""
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=60_000))
    partition = fill(disk)
    reader = partition.read(0, 100, committed=False)
    asyncio.run(Upkeep(lambda: [partition], FakeClock(NOW), lambda: free).remove_files())
    left = [name for name in disk.fs.list(DIRECTORY) if ".deleted" in name or name == f"{0:020}.log"]
    assert left == ([f"{0:020}.log"] if free == READY_BYTES else [])
    assert reader.records[:HEADER_SIZE]


def test_what_could_not_be_removed_is_tried_again_soon(caplog: pytest.LogCaptureFixture) -> None:
    """Also when the disk has room again; it is said once, and when it is mended."""
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=0))
    partition = fill(disk)
    caplog.set_level(logging.INFO, "eoslog.broker.log.upkeep")
    with pytest.MonkeyPatch.context() as full:
        upkeep = Upkeep(lambda: [partition], FakeClock(NOW))
        full.setattr(partition, "retain", refused)
        asyncio.run(upkeep.retain())
        asyncio.run(upkeep.remove_files())
    assert logs(disk)[0] == 0
    asyncio.run(upkeep.remove_files())
    assert logs(disk)[0] > 0
    asyncio.run(upkeep.remove_files())
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            f"partition {partition}: segments past retention are still there: [Errno 28] No space left on "
            "device. Tried again each 10 s",
        ),
        ("INFO", f"partition {partition}: segments past retention are removed again"),
    ]


def refused(_: int) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_retention_leaves_what_an_open_transaction_has_written() -> None:
    disk = Disk(LogSettings(segment_bytes=1024, retention_bytes=0))
    partition = fill(disk, 4)
    disk.append(partition, sequenced(1, 0, transactional=True))
    for number in range(6):
        disk.append(partition, batch(b"%04d" % number * 75))
    partition.retain(NOW)
    assert partition.log_start_offset == 2, "offset 4 lies in the segment that begins here"
    partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    partition.retain(NOW)
    assert partition.log_start_offset == partition.log_end_offset


def test_what_is_not_durable_yet_is_not_removed() -> None:
    disk = Disk(LogSettings(segment_bytes=1 << 20, retention_bytes=0))
    partition = disk.open()
    partition.append(batch(b"x"), now_ms=NOW)
    assert partition.retain(NOW) == 0
    disk.sync(partition)
    assert partition.retain(NOW) == 1


def test_sequences_survive_the_removal_of_their_batches() -> None:
    disk = Disk(LogSettings(segment_bytes=300, retention_bytes=0))
    partition = disk.open()
    for sequence in range(8):
        disk.append(partition, sequenced(1, sequence))
    partition.retain(NOW)
    assert partition.log_start_offset == 8
    for life in range(2):
        if life:
            disk.fs.crash(Outcome.NOTHING)
            partition = disk.open(point=8)
        appended = partition.append(sequenced(1, 7), now_ms=NOW)
        assert appended.base_offset == 7
        with pytest.raises(KafkaError) as caught:
            partition.append(sequenced(1, 9), now_ms=NOW)
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_deleted_records_are_gone_at_once_and_for_ever() -> None:
    disk = Disk(SMALL)
    partition = fill(disk)
    assert partition.delete_records(5) == 5
    assert partition.delete_records(3) == 5
    assert offsets(partition.read(5, 10**6, committed=False).records) == [5]
    for call in (lambda: partition.read(4, 100, committed=False), lambda: partition.delete_records(13)):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.offset_for(NOW, committed=False) == (NOW + 5000, 5)
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open(point=12)
    assert (partition.log_start_offset, logs(disk)) == (5, [4, 6, 8, 10])
    assert [header.base_offset for header, _ in partition.scan()] == list(range(5, 12))
    assert partition.delete_records(-1) == 12
    assert partition.max_timestamp() is None
    partition.retain(NOW)
    assert logs(disk) == [10], "the active segment is not rolled for deleted records"
    assert stored(disk.open(point=12)) == []


def test_deleting_inside_a_batch_hides_its_first_records_from_lookups() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, batch(b"a", b"b", b"c"))
    partition.delete_records(1)
    assert offsets(partition.read(1, 100, committed=False).records) == [0]
    assert partition.offset_for(NOW, committed=False) == (NOW, 1)
    assert partition.max_timestamp() == (NOW, 1)


def test_records_of_a_compacted_topic_cannot_be_deleted() -> None:
    disk = Disk(LogSettings(compacted=True, deleted=False))
    partition = fill(disk, 2)
    with pytest.raises(KafkaError) as caught:
        partition.delete_records(1)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    disk.settings = LogSettings(compacted=True)
    partition.reconfigure(disk.settings)
    assert partition.delete_records(1) == 1


def test_a_deletion_inside_an_open_transaction_moves_the_last_stable_offset() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, 3, transactional=True))
    assert partition.last_stable_offset == 0
    partition.delete_records(-1)
    assert partition.last_stable_offset == 3
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open(point=3)
    assert (partition.last_stable_offset, partition.open_transactions()) == (3, [(1, 0)])


def test_a_deletion_that_cannot_be_noted_changes_nothing() -> None:
    disk = Disk(SMALL)
    partition = fill(disk)
    disk.fs.fail_rename = "log-start-offset"
    with pytest.raises(KafkaError) as caught:
        partition.delete_records(5)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.log_start_offset == 0
    assert len(stored(partition)) == 12


def test_with_flush_os_offsets_of_deleted_records_are_not_used_again_after_a_power_loss() -> None:
    disk = Disk(SMALL, flush="os")
    partition = disk.open()
    for number in range(5):
        partition.append(batch(b"%d" % number), now_ms=NOW)
    partition.delete_records(4)
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open()
    assert (partition.log_start_offset, partition.log_end_offset, partition.offline) == (4, 4, None)
    assert partition.append(batch(b"new"), now_ms=NOW).base_offset == 4


def test_a_segment_rolls_when_its_records_span_more_than_segment_ms() -> None:
    disk = Disk(LogSettings(segment_ms=HOUR, timestamp_after_max_ms=10 * HOUR))
    partition = disk.open()
    for minutes in (0, 60, 61, 62, 120, 122):
        disk.append(partition, batch(b"x", timestamp=NOW + minutes * 60_000))
        if minutes == 61:
            partition.save()
            partition.close()
            partition = disk.open(clean=True, point=3)
    assert logs(disk) == [0, 2, 5]
    partition.reconfigure(replace(disk.settings, compacted=True, max_compaction_lag_ms=60_000))
    disk.append(partition, batch(b"x", timestamp=NOW + 124 * 60_000))
    assert logs(disk) == [0, 2, 5, 6]


def test_jitter_makes_segments_roll_earlier_but_not_all_alike() -> None:
    disk = Disk(LogSettings(segment_ms=1000, segment_jitter_ms=500))
    partition = disk.open()
    spans = set()
    for _ in range(200):
        partition.reconfigure(disk.settings)
        spans.add(partition._tail.roll_after_ms)
    assert len(spans) > 20
    assert min(spans) >= 500
    assert max(spans) <= 1000


def test_a_segment_that_is_deleted_before_it_was_synced_takes_nothing_offline() -> None:
    """With flush=os a roll leaves the sync to the next flush; its file must be open still by then."""
    disk = Disk(SMALL, flush="os")
    partition = disk.open()
    while len(partition.segments) < 3:
        partition.append(batch(b"x" * 400), now_ms=NOW)
    partition.delete_records(partition.segments[-1].base_offset)
    assert partition.retain(NOW) == 2
    disk.sync(partition)
    assert partition.offline is None
    assert partition.recovery_point == partition.log_end_offset


def test_records_without_a_time_age_from_their_last_write() -> None:
    """Of old clients whose every record has the time -1: else their topics would grow for ever."""
    disk = Disk(replace(SMALL, retention_ms=HOUR))
    partition = disk.open()
    for number in range(6):
        disk.fs.now_ms = NOW + number * HOUR // 2
        disk.append(partition, batch(b"x" * 400, timestamp=-1))
    assert partition.segments[0].newest() == -1
    before = logs(disk)
    assert partition.retain(NOW + HOUR) == 0
    assert partition.retain(NOW + 2 * HOUR) > 0
    assert logs(disk) == [base for base in before if base >= partition.log_start_offset] != before
    assert partition.retain(NOW + 24 * HOUR) > 0
    assert partition.log_start_offset == partition.log_end_offset


@pytest.mark.parametrize("told", [-1, NOW - 30 * 24 * HOUR, NOW + 10**12])
def test_records_age_by_their_own_times_whatever_the_header_says(told: int) -> None:
    disk = Disk(replace(SMALL, retention_ms=HOUR))
    partition = disk.open()
    for _ in range(3):
        sent = read_header(batch(b"x" * 400))
        wrong = stamped(memoryview(batch(b"x" * 400)), sent, 0, told)
        disk.append(partition, packed(wrong) + batch(b"x" * 400)[HEADER_SIZE:])
    assert partition.max_timestamp() == (NOW, 0)
    assert partition.offset_for(NOW, committed=False) == (NOW, 0)
    assert partition.retain(NOW + HOUR) == 0
    assert partition.retain(NOW + HOUR + 1) == 2
    assert partition.log_start_offset == partition.log_end_offset
