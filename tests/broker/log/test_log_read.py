"""Reads of a log: by offset, by time, and by leader epoch."""

from __future__ import annotations

import bisect
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.log import files
from eoslog.broker.log.data_dir import DataDir
from eoslog.broker.log.leader_epochs import LEAP, TICK_MS, begun, next_epoch, rest_ms
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.partition import Partition
from eoslog.broker.ports import OsFileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError
from tests.broker.log.logkit import NOW, Disk, FakeFileSystem, batch, offsets, sequenced

# -- by offset and time ----------------------------------------------------------------------------
# What readers see, and what they never see.


ALL = 10**9


def filled(disk: Disk, count: int = 40) -> Partition:
    """Batches of one to three records at offsets that `starts` gives, over several segments."""
    partition = disk.open()
    random = Random(1)
    for _ in range(count):
        values = [bytes(random.randint(1, 300)) for _ in range(random.randint(1, 3))]
        disk.append(partition, batch(*values))
    return partition


@pytest.fixture
def disk() -> Disk:
    return Disk(LogSettings(segment_bytes=3000, index_interval_bytes=500))


def test_every_offset_is_found_and_a_read_begins_with_its_batch(disk: Disk) -> None:
    partition = filled(disk)
    spans = {o: h for h, _ in partition.scan() for o in range(h.base_offset, h.next_offset)}
    assert sorted(spans) == list(range(partition.log_end_offset))
    for offset, header in spans.items():
        result = partition.read(offset, ALL, committed=False)
        found = offsets(result.records)
        assert found[0] == header.base_offset
        assert found == sorted(
            {h.base_offset for o, h in spans.items() if found[0] <= o <= spans[found[-1]].last_offset}
        )


def test_reading_on_from_the_end_of_each_answer_gives_everything_once(disk: Disk) -> None:
    partition = filled(disk)
    expected = [header.base_offset for header, _ in partition.scan()]
    for max_bytes in (1, 100, 700, 2500, ALL):
        seen, offset = [], 0
        while offset < partition.high_watermark:
            from eoslog.protocol.batch import iter_headers

            headers = [h for _, h in iter_headers(partition.read(offset, max_bytes, committed=False).records)]
            seen += [h.base_offset for h in headers]
            offset = headers[-1].next_offset
        assert seen == expected


def test_max_bytes_and_the_first_batch(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, batch(b"x" * 1000))
    disk.append(partition, batch(b"y"))
    assert offsets(partition.read(0, 10, committed=False).records) == [0]
    assert len(partition.read(0, 10, committed=False, min_one=False).records) == 0
    assert len(partition.read(0, 1200, committed=False, min_one=False).records) <= 1200


def test_offsets_outside_of_the_log_are_out_of_range(disk: Disk) -> None:
    partition = filled(disk, 3)
    end = partition.log_end_offset
    assert len(partition.read(end, ALL, committed=False).records) == 0
    for offset in (-1, end + 1):
        with pytest.raises(KafkaError) as caught:
            partition.read(offset, ALL, committed=False)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_nothing_unsynced_is_shown(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, batch(b"a"))
    partition.append(batch(b"b", timestamp=NOW + 5), now_ms=NOW)
    assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
    result = partition.read(0, ALL, committed=False)
    assert (offsets(result.records), result.high_watermark) == ([0], 1)
    assert len(partition.read(1, ALL, committed=False).records) == 0
    assert partition.max_timestamp() == (NOW, 0)
    assert partition.offset_for(NOW + 1, committed=False) is None
    disk.sync(partition)
    assert offsets(partition.read(0, ALL, committed=False).records) == [0, 1]
    assert partition.max_timestamp() == (NOW + 5, 1)


def test_with_flush_os_a_batch_is_shown_at_once() -> None:
    partition = Disk(flush="os").open()
    partition.append(batch(b"a"), now_ms=NOW)
    assert partition.high_watermark == 1
    assert offsets(partition.read(0, ALL, committed=True).records) == [0]


def transactions(disk: Disk) -> Partition:
    """Offsets: 0 of 1, 1 of 2, 2 plain, 3 abort 1, 4 of 1, 5 commit 2, 6 of 2, 7 commit 1; 2 is open at 6."""
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.append(partition, sequenced(2, 0, transactional=True))
    disk.append(partition, batch(b"plain"))
    partition.append_marker(1, 0, False, 0, NOW)
    disk.append(partition, sequenced(1, 1, transactional=True))
    partition.append_marker(2, 0, True, 0, NOW)
    disk.append(partition, sequenced(2, 1, transactional=True))
    partition.append_marker(1, 0, True, 0, NOW)
    disk.sync(partition)
    return partition


@pytest.mark.parametrize("segment_bytes", [1024, 200])
def test_committed_reads_stop_at_the_last_stable_offset_and_name_the_aborted(segment_bytes: int) -> None:
    disk = Disk(LogSettings(segment_bytes=segment_bytes))
    for partition in (transactions(disk), disk.open()):
        assert partition.last_stable_offset == 6
        assert partition.open_transactions() == [(2, 6)]
        seen, offset, aborted = [], 0, set()
        while offset < 6:
            result = partition.read(offset, ALL, committed=True)
            assert result.last_stable_offset == 6
            seen += offsets(result.records)
            offset = seen[-1] + 1
            aborted.update(result.aborted or [])
        assert seen == [0, 1, 2, 3, 4, 5]
        assert aborted == {(1, 0)}
        assert len(partition.read(6, ALL, committed=True).records) == 0
        assert partition.read(4, ALL, committed=True).aborted == []
        assert partition.read(3, ALL, committed=True).aborted == [(1, 0)]
        assert partition.read(0, ALL, committed=False).aborted is None
        assert partition.offset_for(0, committed=True) == (NOW, 0)


def test_a_long_aborted_transaction_is_named_for_a_part_that_ends_before_shorter_ones() -> None:
    disk = Disk(LogSettings(index_interval_bytes=0))
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    for sequence in range(4):
        disk.append(partition, sequenced(2, sequence, transactional=True))
        partition.append_marker(2, 0, False, 0, NOW)
    partition.append_marker(1, 0, False, 0, NOW)
    disk.sync(partition)
    result = partition.read(0, 10, committed=True)
    assert offsets(result.records) == [0]
    assert (1, 0) in (result.aborted or [])
    assert (2, 5) not in (result.aborted or []), "the part ends long before"
    assert set(partition.read(2, ALL, committed=True).aborted or []) == {
        (1, 0),
        (2, 1),
        (2, 3),
        (2, 5),
        (2, 7),
    }
    assert set(partition.read(3, ALL, committed=True).aborted or []) == {(1, 0), (2, 3), (2, 5), (2, 7)}


def test_a_marker_decides_only_when_it_is_durable(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    disk.append(partition, batch(b"plain"))
    partition.append_marker(1, 0, False, 0, NOW)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 0)
    assert len(partition.read(0, ALL, committed=True).records) == 0
    disk.sync(partition)
    assert partition.last_stable_offset == 3
    assert partition.read(0, ALL, committed=True).aborted == [(1, 0)]


def test_offsets_by_time(disk: Disk) -> None:
    partition = disk.open()
    random = Random(3)
    times = [NOW + random.randint(-50, 50) * 10 for _ in range(120)]
    for time in times:
        disk.append(partition, batch(bytes(100), timestamp=time))
    for reopened in (partition, disk.open()):
        for wanted in range(NOW - 520, NOW + 520, 7):
            expected = next(((t, o) for o, t in enumerate(times) if t >= wanted), None)
            assert reopened.offset_for(wanted, committed=False) == expected
        largest = max(times)
        assert reopened.max_timestamp() == (largest, times.index(largest))


def test_an_offset_by_time_lies_within_a_batch(disk: Disk) -> None:
    from eoslog.protocol.batch import build_batch

    partition = disk.open()
    # records at NOW, NOW+5, NOW+3: length, attributes, time delta, offset delta, no key, no value, no headers
    records = b"".join(bytes([12, 0, 2 * t, 2 * i, 1, 1, 0]) for i, t in enumerate((0, 5, 3)))
    disk.append(partition, b"".join(build_batch([records], 3, base_timestamp=NOW, max_timestamp=NOW + 5)))
    assert partition.offset_for(NOW + 1, committed=False) == (NOW + 5, 1)
    assert partition.max_timestamp() == (NOW + 5, 1)
    assert partition.offset_for(NOW + 6, committed=False) is None


def test_an_empty_log_has_no_times(disk: Disk) -> None:
    partition = disk.open()
    assert partition.max_timestamp() is None
    assert partition.offset_for(0, committed=False) is None
    assert list(partition.scan()) == []


def test_subscribers_hear_when_more_can_be_read(disk: Disk) -> None:
    partition = disk.open()
    heard: list[int] = []

    def callback() -> None:
        heard.append(partition.high_watermark)

    partition.subscribe(callback)
    partition.append(batch(b"a"), now_ms=NOW)
    assert heard == []
    disk.sync(partition)
    assert heard == [1]
    partition.unsubscribe(callback)
    partition.unsubscribe(callback)
    disk.append(partition, batch(b"a"))
    assert heard == [1]


def test_damage_met_while_reading_is_an_error_with_file_and_position(disk: Disk) -> None:
    partition = filled(disk, 2)
    disk.file("00000000000000000000.log")[20] ^= 0xFF
    with pytest.raises(KafkaError, match=r"00000000000000000000.log, position 0") as caught:
        list(partition.scan())
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_abort_is_known_however_far_behind_its_data_the_marker_lies(disk: Disk) -> None:
    partition = disk.open()
    disk.append(partition, sequenced(1, 0, transactional=True))
    for _ in range(40):
        disk.append(partition, batch(bytes(250)))
    assert len(partition._log.segments) > 3
    partition.append_marker(1, 0, False, 0, NOW)
    disk.sync(partition)
    assert partition.read(0, 1, committed=True).aborted == [(1, 0)]
    assert partition.read(0, ALL, committed=True).aborted == [(1, 0)]


# -- by leader epoch -------------------------------------------------------------------------------
# Leader epochs: one for each life of a broker, stored with its batches, and told where each ends.


PATH = "/data/.life-epoch"
NOW_MS = 1_800_000_000_000


def disk_of_epochs() -> FakeFileSystem:
    made = FakeFileSystem()
    made.make_dir("/data")
    return made


@pytest.fixture
def fs() -> FakeFileSystem:
    return disk_of_epochs()


def test_each_life_has_a_later_epoch_than_all_before(fs: FakeFileSystem) -> None:
    first = next_epoch(fs, PATH, NOW_MS)
    assert next_epoch(fs, PATH, NOW_MS) == first + 1, "two starts within an instant"
    assert next_epoch(fs, PATH, NOW_MS - TICK_MS) == first + 2, "a clock that was set right"
    assert next_epoch(fs, PATH, NOW_MS + 10 * TICK_MS) == first + 10


def test_copies_on_a_clock_that_was_set_back_seldom_count_alike(caplog: pytest.LogCaptureFixture) -> None:
    found = set()
    for _ in range(40):
        fs = disk_of_epochs()
        last = next_epoch(fs, PATH, NOW_MS)
        found.add(next_epoch(fs, PATH, NOW_MS - 86_400_000) - last)
    assert len(found) > 30 and min(found) >= 1 and max(found) <= LEAP
    assert "the clock is 86400 s behind the last start" in caplog.text


def test_a_restored_copy_goes_on_beyond_all_that_was_used_since(fs: FakeFileSystem) -> None:
    next_epoch(fs, PATH, NOW_MS)
    copy = files.read_whole(fs, PATH)
    later = NOW_MS + TICK_MS
    original = next_epoch(fs, PATH, later)
    files.write_whole(fs, PATH, copy)
    assert next_epoch(fs, PATH, later + TICK_MS) > original
    files.write_whole(fs, PATH, b"damaged")
    assert next_epoch(fs, PATH, later + 2 * TICK_MS) > original + 1


def opened(directory: Path) -> DataDir:
    return DataDir(OsFileSystem(), str(directory), 1, NOW_MS)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names of sockets without files")
def test_a_directory_and_its_copies_that_run_at_once_have_epochs_of_their_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They have begun at the same moment: the clock cannot tell them apart."""
    places = [tmp_path / name for name in ("original", "copy", "another")]
    opened(places[0]).close()
    for place in places[1:]:
        shutil.copytree(places[0], place)
    assert not caplog.records
    running = [opened(place) for place in places]
    assert len({each.leader_epoch for each in running}) == 3
    assert f"{places[1]}: a broker on a copy of this directory" in caplog.text
    for each in running:
        each.close()
    assert opened(places[0]).leader_epoch == running[0].leader_epoch + 1, "nothing is left of the others"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names of sockets without files")
def test_a_killed_broker_s_copy_does_not_take_it_for_alive(tmp_path: Path) -> None:
    opened(tmp_path / "original").close()
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    code = f"""
import os, signal
from pathlib import Path
from tests.broker.log.test_log_read import opened
print(opened(Path({str(tmp_path / "original")!r})).leader_epoch, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert opened(tmp_path / "copy").leader_epoch == int(done.stdout), "the clock keeps them apart in time"


@given(st.integers(0, TICK_MS - 1))
def test_a_life_that_wrote_ends_when_its_time_is_over(into: int) -> None:
    fs = FakeFileSystem()
    fs.make_dir("/data")
    now = NOW_MS - NOW_MS % TICK_MS + into
    epoch = next_epoch(fs, PATH, now)
    rest = rest_ms(epoch, now)
    assert 0 < rest <= TICK_MS
    fs.remove(PATH)
    assert next_epoch(fs, PATH, now + rest) == epoch + 1, "another line, at that moment"
    assert rest_ms(epoch, now + rest) == 0
    assert rest_ms(epoch + 1000, now) == 0, "a clock that was set back: waiting is no use"


def rows(disk: Disk) -> list[list[str]]:
    return files.decode_checkpoint(bytes(disk.file("leader-epoch-checkpoint")), "p")


def test_the_file_for_kafka_s_tools_tells_where_each_began() -> None:
    disk = Disk()
    for life, epoch in enumerate((5, 7, 9)):
        partition = disk.open(epoch=epoch)
        if life != 1:
            disk.append(partition, batch(b"a", b"b"))
            disk.append(partition, batch(b"c"))
        partition.save()
        partition.close()
    assert rows(disk) == [["5", "0"], ["9", "3"]], "nothing was written in epoch 7"


def test_the_file_loses_what_was_cut_and_what_was_deleted() -> None:
    disk = Disk()
    path = "/data/t-0/leader-epoch-checkpoint"
    for epoch, base, start in ((1, 10, 0), (2, 20, 0), (3, 30, 0), (4, 25, 0)):
        begun(disk.fs, path, epoch, base, start)
    assert rows(disk) == [["0", "0"], ["1", "10"], ["2", "20"], ["4", "25"]], "3 was cut off"
    begun(disk.fs, path, 5, 40, 22)
    assert rows(disk) == [["2", "22"], ["4", "25"], ["5", "40"]]
    files.write_whole(disk.fs, path, b"")
    begun(disk.fs, path, 6, 50, 22)
    assert rows(disk) == [["6", "50"]], "a power loss took it"


LIVES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), min_size=1, max_size=8)


@given(LIVES, st.integers(200, 2000), st.integers(0, 6))
def test_where_an_epoch_ends_is_what_a_list_of_them_says(
    lives: list[tuple[int, int]], segment_bytes: int, deleted: int
) -> None:
    """Lives of some batches each, over segments of all sizes, with the log's start anywhere."""
    disk, epoch, ends = Disk(LogSettings(segment_bytes=segment_bytes, index_interval_bytes=100)), 0, {}
    for step, count in lives:
        epoch += step
        partition = disk.open(epoch=epoch)
        for _ in range(count):
            disk.append(partition, batch(b"x" * 60, b"y"))
        ends[epoch] = partition.log_end_offset
        partition.save()
        partition.close()
    epoch += 1
    partition = disk.open(epoch=epoch)
    start = min(deleted, partition.high_watermark)
    partition.delete_records(start)
    end = partition.high_watermark
    written = [e for e, at in ends.items() if at > max([0, *(ends[o] for o in ends if o < e)])]
    known = [e for e in written if ends[e] > start]
    for asked in range(-1, epoch + 2):
        if not 0 <= asked <= epoch:
            assert partition.epoch_end(asked) == (-1, -1)
        elif asked == epoch:
            assert partition.epoch_end(asked) == (epoch, end)
        else:
            below = known[: bisect.bisect_right(known, asked)]
            expected = (below[-1], ends[below[-1]]) if below else (asked, start)
            assert partition.epoch_end(asked) == expected
    for offset in range(start, end):
        assert partition.epoch_at(offset) == next(e for e in known if ends[e] > offset)
    assert partition.epoch_at(end) == epoch


def test_a_batch_of_any_epoch_is_found_behind_a_damaged_one() -> None:
    for epoch in (0, 5, 119_000_000, 2**31 - 1):
        disk = Disk()
        partition = disk.open(epoch=epoch)
        for value in (b"a", b"\x02" * 300, b"c"):
            disk.append(partition, batch(value))
        partition.close()
        disk.file("00000000000000000000.log")[70] ^= 0xFF
        assert "a valid batch of offset 2" in str(disk.open(epoch=epoch).offline)
