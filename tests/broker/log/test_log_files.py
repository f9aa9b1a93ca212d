"""The files beside the log, byte by byte as Kafka reads them, and the file system under it."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from eoslog.broker.log import files, producer_snapshot
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.ports import OsFileSystem
from eoslog.broker.rules.producer_state import ProducerState, Written
from eoslog.protocol.batch import crc32c, iter_headers
from tests.broker.log.logkit import DIRECTORY, NOW, TOPIC_ID, Disk, batch, sequenced

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
