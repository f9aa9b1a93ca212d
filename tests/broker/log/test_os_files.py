"""The real file system under the log: which system calls each promise of `ports` makes, on what."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import OsFileSystem

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
