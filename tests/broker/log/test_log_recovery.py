"""Opening logs that were not closed in order, or are damaged."""

from __future__ import annotations

import logging
import struct

import pytest

from eoslog.broker.log import recovery
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.protocol.batch import iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import (
    DIRECTORY,
    NOW,
    Directory,
    Disk,
    Outcome,
    batch,
    offsets,
    sequenced,
    stored,
)

LOG = "00000000000000000000.log"
SMALL = LogSettings(segment_bytes=1500, index_interval_bytes=200)


def fill(disk: Disk, count: int = 10) -> Partition:
    partition = disk.open()
    for number in range(count):
        disk.append(partition, batch(b"%04d" % number * 50))
    return partition


def positions(disk: Disk, name: str = LOG) -> list[int]:
    return [position for position, _ in iter_headers(disk.file(name))]


@pytest.mark.parametrize("left", [1, 11, 30, 61, 200])
def test_a_torn_tail_is_cut_off_and_reported(left: int, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    fill(disk, 5)
    *_, before, last = positions(disk)
    del disk.file(LOG)[last + left :]
    with caplog.at_level(logging.WARNING):
        partition = disk.open()
    assert partition.log_end_offset == 4
    assert partition.offline is None
    assert len(disk.file(LOG)) == last
    (finding,) = disk.report
    assert (finding.path, finding.position, finding.offset) == (f"{DIRECTORY}/{LOG}", last, 4)
    assert str(finding) in caplog.text
    assert f"tail of {left} bytes cut off" in str(finding)
    assert disk.append(partition, batch(b"next")) == 4
    assert disk.open().log_end_offset == 5
    assert disk.report == []
    assert before < last


def test_a_tail_of_zeros_or_garbage_is_cut_off() -> None:
    for tail in (bytes(5000), b"\xff" * 3000, bytes(12) + b"\x00\x00\x00\x00\x02" + bytes(100)):
        disk = Disk()
        fill(disk, 3)
        disk.file(LOG).extend(tail)
        partition = disk.open()
        assert (partition.log_end_offset, partition.offline) == (3, None)
        assert len(disk.report) == 1


def test_a_damaged_batch_before_valid_ones_keeps_the_partition_offline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk()
    fill(disk, 6)
    where = positions(disk)[2]
    disk.file(LOG)[where + 100] ^= 1
    before = bytes(disk.file(LOG))
    with caplog.at_level(logging.ERROR):
        partition = disk.open()
    assert bytes(disk.file(LOG)) == before, "nothing was cut"
    (finding,) = disk.report
    assert (finding.path, finding.position, finding.offset) == (f"{DIRECTORY}/{LOG}", where, 2)
    assert f"{DIRECTORY}/{LOG}, position {where}" in caplog.text
    assert "Restore the file from a copy" in caplog.text
    for refused in (
        lambda: partition.append(batch(b"x"), now_ms=NOW),
        lambda: partition.read(0, 100, committed=False),
        lambda: list(partition.scan()),
        lambda: partition.append_marker(1, 0, True, 0, NOW),
        lambda: partition.max_timestamp(),
    ):
        with pytest.raises(KafkaError, match=rf"position {where}") as caught:
            refused()
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    partition.save()
    partition.close()


@pytest.mark.parametrize("at", [0, 5, 8, 16, 57, 61])
def test_damage_of_any_part_of_a_batch_in_the_middle_is_found(at: int) -> None:
    disk = Disk()
    fill(disk, 6)
    disk.file(LOG)[positions(disk)[3] + at] ^= 0x40
    assert disk.open().offline is not None


def test_a_batch_missing_in_the_middle_is_found() -> None:
    disk = Disk()
    fill(disk, 6)
    third, fourth = positions(disk)[2:4]
    del disk.file(LOG)[third:fourth]
    assert disk.open().offline is not None


def test_damage_in_an_earlier_segment_is_found() -> None:
    disk = Disk(SMALL)
    fill(disk)
    first = sorted(name for name in disk.fs.list(DIRECTORY) if name.endswith(".log"))[0]
    disk.file(first)[-1] ^= 1
    assert "a valid batch of offset" in str(disk.open().offline)


def test_a_missing_segment_is_found() -> None:
    disk = Disk(SMALL)
    fill(disk, 20)
    names = sorted(name for name in disk.fs.list(DIRECTORY) if name.endswith(".log"))
    disk.fs.remove(f"{DIRECTORY}/{names[1]}")
    assert "the one before ends at" in str(disk.open().offline)


def test_damage_below_the_recovery_point_is_never_a_torn_tail() -> None:
    disk = Disk()
    fill(disk, 5)
    del disk.file(LOG)[positions(disk)[4] + 30 :]
    assert disk.open(point=4).offline is None
    disk = Disk()
    fill(disk, 5)
    del disk.file(LOG)[positions(disk)[4] + 30 :]
    assert "safely written" in str(disk.open(point=5).offline)


def test_a_log_shorter_than_its_recovery_point_is_damaged() -> None:
    disk = Disk()
    fill(disk, 5)
    del disk.file(LOG)[positions(disk)[4] :]
    assert "the log ends here" in str(disk.open(point=5).offline)
    disk.fs.remove(f"{DIRECTORY}/{LOG}")
    assert "no segment is left" in str(disk.open(point=5).offline)


def test_a_log_closed_in_order_is_not_read_through() -> None:
    disk = Disk()
    partition = fill(disk, 50)
    partition.save()
    partition.close()
    disk.file(LOG)[100] ^= 1
    assert disk.open(clean=True, point=50).log_end_offset == 50
    assert disk.open(point=0).offline is not None


def test_a_log_closed_in_order_that_does_not_look_so_is_checked() -> None:
    disk = Disk()
    partition = fill(disk, 50)
    partition.save()
    partition.close()
    del disk.file(LOG)[-10:]
    assert disk.open(clean=True, point=50).offline is not None


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("damage", ["remove", "garbage", "cut", "empty", "zeros", "past the end"])
@pytest.mark.parametrize("clean", [True, False])
def test_sparse_indexes_are_made_anew_if_they_do_not_fit(suffix: str, damage: str, clean: bool) -> None:
    disk = Disk(LogSettings(segment_bytes=5000, index_interval_bytes=200))
    partition = disk.open()
    for number in range(60):
        disk.append(partition, batch(b"%04d" % number * 50, timestamp=NOW + number))
    expected = [partition.offset_for(NOW + number, committed=False) for number in range(60)]
    partition.save()
    partition.close()
    for name in [name for name in disk.fs.list(DIRECTORY) if name.endswith("." + suffix)]:
        data = disk.file(name)
        if damage == "remove":
            disk.fs.remove(f"{DIRECTORY}/{name}")
        elif damage == "garbage":
            data[:] = b"\x7f" * len(data)
        elif damage == "cut":
            del data[-3:]
        elif damage == "empty":
            del data[:]
        elif damage == "past the end":
            struct.pack_into(">i", data, len(data) - 4, 1 << 30)  # a position, or an offset
        else:
            data[:] = bytes(len(data))
    reopened = disk.open(clean=clean, point=60)
    assert reopened.log_end_offset == 60
    for offset in range(60):
        assert offsets(reopened.read(offset, 10, committed=False).records) == [offset]
    assert [reopened.offset_for(NOW + number, committed=False) for number in range(60)] == expected


def _busy(disk: Disk) -> Partition:
    """Seven batches of producer 1, open transaction of 2, aborted one of 3, over several segments."""
    partition = disk.open()
    disk.append(partition, sequenced(3, 0, transactional=True))
    for sequence in range(0, 21, 3):
        disk.append(partition, sequenced(1, sequence, 3))
        if sequence == 9:
            partition.append_marker(3, 0, False, 4, NOW)
            disk.append(partition, sequenced(2, 0, transactional=True))
    return partition


def _check_busy(disk: Disk, partition: Partition) -> None:
    """All five batches of producer 1 are known with their offsets, and the transactions."""
    for sequence, offset in zip(range(6, 21, 3), (7, 10, 15, 18, 21), strict=True):
        appended = partition.append(sequenced(1, sequence, 3), now_ms=NOW)
        assert (appended.base_offset, appended.last_offset) == (offset, offset + 2)
    with pytest.raises(KafkaError) as caught:
        partition.append(sequenced(1, 3, 3), now_ms=NOW)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.open_transactions() == [(2, 14)]
    assert partition.last_stable_offset == 14
    assert partition._log.segments.aborted(0, 14) == [(3, 0)]
    assert partition.read(0, 10**6, committed=True).aborted == [(3, 0)]
    with pytest.raises(KafkaError) as caught:
        partition.append_marker(3, 0, True, 3, NOW)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("segment_bytes", [1 << 20, 1024, 300])
@pytest.mark.parametrize("end", ["clean", "kill", "power"])
def test_producers_and_transactions_are_known_after_a_restart(segment_bytes: int, end: str) -> None:
    disk = Disk(LogSettings(segment_bytes=segment_bytes))
    partition = _busy(disk)
    point = partition.log_end_offset
    if end == "clean":
        partition.save()
        partition.close()
    disk.fs.crash({"clean": Outcome.NOTHING, "power": Outcome.NOTHING, "kill": Outcome.ALL}[end])
    partition = disk.open(clean=end == "clean", point=point if end == "clean" else 0)
    assert partition.offline is None
    _check_busy(disk, partition)
    partition.save()
    partition.close()
    _check_busy(disk, disk.open(clean=True, point=point))


@pytest.mark.parametrize("damage", [b"", b"torn", None])
def test_a_torn_snapshot_is_replaced_by_reading_more_of_the_log(damage: bytes | None) -> None:
    disk = Disk(LogSettings(segment_bytes=300))
    partition = _busy(disk)
    point = partition.log_end_offset
    partition.save()
    partition.close()
    for name in [name for name in disk.fs.list(DIRECTORY) if name.endswith(".snapshot")]:
        if damage is None:
            disk.file(name)[-1] ^= 1
        else:
            disk.file(name)[:] = damage
    _check_busy(disk, disk.open(clean=True, point=point))


@pytest.mark.parametrize("damage", ["version", "zeros"])
def test_a_damaged_transaction_index_is_made_anew(damage: str) -> None:
    disk = Disk(LogSettings(segment_bytes=300))
    partition = _busy(disk)
    point = partition.log_end_offset
    partition.save()
    partition.close()
    (name,) = [name for name in disk.fs.list(DIRECTORY) if name.endswith(".txnindex")]
    data = disk.file(name)
    if damage == "version":
        data[0] = 9
    else:
        data[:] = bytes(len(data))  # a page that never reached the disk
    _check_busy(disk, disk.open(clean=True, point=point))


def test_an_index_that_leads_past_its_batch_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies between was not synced, and has to be checked."""
    monkeypatch.setattr(recovery, "WORTH_SKIPPING", 0)
    disk = Disk(LogSettings(index_interval_bytes=200))
    partition = fill(disk, 30)
    partition.save()
    partition.close()
    batches, index = positions(disk), disk.file(LOG.replace(".log", ".index"))
    below = [entry for entry in struct.iter_unpack(">ii", index) if entry[0] < 10]
    below[-1] = below[-1][0], batches[25]
    index[:] = b"".join(struct.pack(">ii", *entry) for entry in below)
    disk.file(LOG)[batches[15] + 80] ^= 1
    assert "a valid batch of offset 16" in str(disk.open(point=10).offline)


def test_segments_of_deleted_records_that_a_crash_brings_back_are_removed() -> None:
    disk = Disk(SMALL)
    partition = fill(disk, 30)
    directory = disk.fs.find(DIRECTORY)
    assert isinstance(directory, Directory)
    before = dict(directory.entries)
    partition.delete_records(20)
    partition.close()
    for name, inode in before.items():
        directory.set((name, inode))
    partition = disk.open(point=30)
    assert (partition.log_start_offset, partition.log_end_offset) == (20, 30)
    assert LOG in before and LOG not in disk.fs.list(DIRECTORY)


def test_a_snapshot_past_the_end_of_a_cut_log_is_not_used() -> None:
    disk = Disk()
    partition = disk.open()
    for sequence in range(4):
        disk.append(partition, sequenced(1, sequence))
    partition.save()
    del disk.file(LOG)[positions(disk)[2] :]
    partition = disk.open()
    assert partition.log_end_offset == 2
    assert partition.append(sequenced(1, 2), now_ms=NOW) == (2, 2, -1, 0)


def test_an_abort_that_a_crash_undid_is_gone_from_the_transaction_index_too() -> None:
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    partition.append_marker(1, 0, False, 0, NOW)
    del disk.file(LOG)[positions(disk)[1] :]  # the marker is lost, its index entry is not
    partition = disk.open()
    partition.append_marker(1, 0, True, 0, NOW)
    disk.append(partition, batch(b"x"))
    assert partition.read(0, 10**6, committed=True).aborted == []
    partition.save()
    partition.close()
    assert disk.open(clean=True, point=3).read(0, 10**6, committed=True).aborted == []


def test_what_a_recovery_has_shown_is_durable() -> None:
    disk = Disk()
    partition = disk.open()
    partition.append(batch(b"written, not synced"), now_ms=NOW)
    disk.fs.crash(Outcome.ALL)
    assert disk.open().high_watermark == 1
    disk.fs.crash(Outcome.NOTHING)
    assert disk.open().log_end_offset == 1


def test_producers_that_were_idle_for_a_day_are_forgotten_by_the_broker_s_clock() -> None:
    disk = Disk()
    partition = disk.open()
    old_record = sequenced(1, 5)
    partition.append(old_record, now_ms=NOW)
    partition.save()
    partition.close()
    assert disk.open(clean=True, point=1, now_ms=NOW + 86_399_999).producers() != []
    assert disk.open(clean=True, point=1, now_ms=NOW + 86_400_000).producers() == []


def test_leftovers_of_torn_small_files_are_removed() -> None:
    disk = Disk()
    fill(disk, 2)
    disk.fs.open(f"{DIRECTORY}/00000000000000000002.snapshot.tmp", create=True)
    assert len(stored(disk.open())) == 2
    assert not [name for name in disk.fs.list(DIRECTORY) if name.endswith(".tmp")]


def test_with_flush_os_kill_9_loses_nothing_and_a_roll_makes_what_is_before_it_durable() -> None:
    disk = Disk(LogSettings(segment_bytes=1500), flush="os")
    partition = disk.open()
    for sequence in range(40):
        partition.append(sequenced(1, sequence), now_ms=NOW)
    assert partition.recovery_point == 0
    disk.fs.crash(Outcome.ALL)
    partition = disk.open()
    assert (partition.log_end_offset, disk.report) == (40, [])
    for sequence in range(40, 80):
        partition.append(sequenced(1, sequence), now_ms=NOW)
    disk.sync(partition)  # as the flush does after a roll
    assert partition.recovery_point == 80
    partition.append(sequenced(1, 80), now_ms=NOW)
    disk.fs.crash(Outcome.NOTHING)
    partition = disk.open(point=80)
    assert (partition.log_end_offset, partition.offline) == (80, None)
    assert partition.append(sequenced(1, 75), now_ms=NOW).base_offset == 75


def test_an_old_batch_behind_a_torn_tail_is_no_part_of_the_log() -> None:
    """A file system may give a file blocks that held another piece of it: valid bytes, of lower offsets."""
    disk = Disk()
    fill(disk, 5)
    first, second = positions(disk)[:2]
    data = disk.file(LOG)
    old = bytes(data[first:second])
    data += bytes(100) + old
    partition = disk.open()
    assert partition.offline is None and partition.log_end_offset == 5
    assert "tail of" in str(disk.report[0])


@pytest.mark.parametrize("point", [4, 6])
def test_a_log_that_was_closed_elsewhere_is_not_taken_as_it_is(point: int) -> None:
    """The clean mark speaks of a log that ends at its recovery point; this one does not."""
    disk = Disk()
    partition = fill(disk, 5)
    partition.save()
    partition.close()
    disk.fs.bytes_read.clear()
    partition = disk.open(clean=True, point=point)
    assert disk.fs.bytes_read[".log"] >= len(disk.file(LOG)), "all of it is checked"
    assert (partition.offline is None) == (point < 5)


def test_a_marker_that_makes_no_sense_takes_its_partition_offline_and_no_more() -> None:
    """After an orderly end no CRC is looked at; without a snapshot all markers are read."""
    disk = Disk()
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    marker = partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    partition.save()
    partition.close()
    for name in disk.fs.list(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.fs.remove(f"{DIRECTORY}/{name}")
    content = disk.file(LOG)
    content[-1 - 12] ^= 0x80  # within the marker's record
    again = disk.open(clean=True, point=2)
    assert again.offline is not None and "position" in again.offline, marker
