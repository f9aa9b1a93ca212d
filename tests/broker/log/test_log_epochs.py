"""Leader epochs: one for each life of a broker, stored with its batches, and told where each ends."""

from __future__ import annotations

import bisect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eoslog.broker.log import files
from eoslog.broker.log.data_dir import DataDir
from eoslog.broker.log.leader_epochs import LEAP, TICK_MS, begun, next_epoch, rest_ms
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.ports import OsFileSystem
from tests.broker.log.fakefs import FakeFileSystem
from tests.broker.log.logkit import Disk, batch

PATH = "/data/.life-epoch"
NOW_MS = 1_800_000_000_000


def disk() -> FakeFileSystem:
    made = FakeFileSystem()
    made.make_dir("/data")
    return made


@pytest.fixture
def fs() -> FakeFileSystem:
    return disk()


def test_each_life_has_a_later_epoch_than_all_before(fs: FakeFileSystem) -> None:
    first = next_epoch(fs, PATH, NOW_MS)
    assert next_epoch(fs, PATH, NOW_MS) == first + 1, "two starts within an instant"
    assert next_epoch(fs, PATH, NOW_MS - TICK_MS) == first + 2, "a clock that was set right"
    assert next_epoch(fs, PATH, NOW_MS + 10 * TICK_MS) == first + 10


def test_copies_on_a_clock_that_was_set_back_seldom_count_alike(caplog: pytest.LogCaptureFixture) -> None:
    found = set()
    for _ in range(40):
        fs = disk()
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
from tests.broker.log.test_log_epochs import opened
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
