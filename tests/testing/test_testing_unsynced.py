"""The disk with faults: what is taken back by a power loss is what no sync has covered, and nothing else.

The oracle is the file system in memory of the log's tests: both are told the same random calls, and after
a crash that loses all that is unsynced they must hold the same files.
"""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from eoslog.broker.ports import FileSystem, OsFileSystem
from eoslog.testing.disk import DiskRule, FaultyFileSystem, Keep
from tests.broker.log.logkit import FakeFileSystem, Outcome

Step = Callable[[FileSystem, str], object]


def write(fs: FileSystem, path: str, data: bytes, position: int, sync: bool = False) -> None:
    file = fs.open(path, create=True)
    try:
        file.write([data], position)
        if sync:
            file.sync()
    finally:
        file.close()


def cut(fs: FileSystem, path: str, size: int) -> None:
    file = fs.open(path)
    try:
        file.truncate(size)
    finally:
        file.close()


def contents(fs: FileSystem, path: str) -> dict[str, bytes | None]:
    """Every file below `path` with what is in it; None for a directory."""
    found: dict[str, bytes | None] = {}
    for name in fs.list(path):
        place = f"{path}/{name}"
        try:
            below = contents(fs, place)
        except NotADirectoryError:
            file = fs.open(place)
            found[name] = file.read(1 << 20, 0)
            file.close()
        else:
            found[name] = None
            found |= {f"{name}/{inner}": data for inner, data in below.items()}
    return found


def random_step(random: Random) -> Step:
    """One call of the port, on a few names, so that they meet."""
    place = random.choice(["a", "b", "d/a", "d/b"])
    other = place[:-1] + random.choice("abc")
    data, position = random.randbytes(random.randint(1, 30)), random.randint(0, 40)
    size, kind = random.randint(0, 40), random.randint(0, 8)

    def step(fs: FileSystem, root: str) -> None:
        path = f"{root}/{place}"
        try:
            match kind:
                case 0 | 1:
                    write(fs, path, data, position)
                case 2:
                    write(fs, path, data, position, sync=True)
                case 3:
                    cut(fs, path, size)
                case 4:
                    if place != other and fs.exists(path):
                        fs.rename(path, f"{root}/{other}")
                case 5:
                    fs.remove(path)
                case 6:
                    fs.make_dir(f"{root}/d")
                case 7:
                    fs.sync_dir(root)
                case _:
                    if fs.exists(f"{root}/d"):
                        fs.sync_dir(f"{root}/d")
        except FileNotFoundError:
            return None

    return step


@pytest.mark.parametrize("seed", range(150))
def test_a_power_loss_leaves_what_was_synced(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    root = str(tmp_path / "data")
    os.mkdir(root)
    real, model = FaultyFileSystem(root), FakeFileSystem()
    model.make_dir(root)
    for _ in range(3):
        for _ in range(random.randint(1, 25)):
            step = random_step(random)
            step(real, root)
            step(model, root)
        assert contents(real, root) == contents(model, root), "before"
        real.lose_power(Keep.NOTHING, seed)
        for name in root.strip("/").split("/"):  # the directory itself was there before
            model.sync_dir("/") if not name else None
        _keep_root(model, root)
        model.crash(Outcome.NOTHING)
        real = FaultyFileSystem(root)
        assert contents(real, root) == contents(model, root), "after"
        assert not os.path.exists(root + ".unsynced")


def _keep_root(model: FakeFileSystem, root: str) -> None:
    place = "/"
    for name in root.strip("/").split("/"):
        model.sync_dir(place)
        place = os.path.join(place, name)


def test_some_of_it_may_survive_in_order_and_torn(tmp_path: Path) -> None:
    sizes = set()
    for seed in range(200):
        root = tmp_path / str(seed)
        root.mkdir()
        fs = FaultyFileSystem(str(root))
        file = fs.open(f"{root}/f", create=True)
        file.write([b"0123456789"], 0)
        file.sync()
        fs.sync_dir(str(root))
        file.write([b"abcdefghij"], 10)
        file.write([b"klmnopqrst"], 20)
        fs.lose_power(Keep.SOME, seed)
        found = (root / "f").read_bytes()
        assert b"0123456789abcdefghijklmnopqrst".startswith(found)
        assert len(found) >= 10
        sizes.add(len(found))
    assert len(sizes) > 15, "torn at any byte"


def test_overwritten_bytes_come_back(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    file = fs.open(str(tmp_path / "f"), create=True)
    file.write([b"0123456789"], 0)
    file.sync()
    fs.sync_dir(str(tmp_path))
    file.write([b"xyz"], 2)
    file.truncate(4)
    file.write([b"!!"], 6)
    fs.lose_power(Keep.NOTHING, 0)
    assert (tmp_path / "f").read_bytes() == b"0123456789"


def test_a_write_during_a_sync_is_not_covered_by_it(tmp_path: Path) -> None:
    class Slow(OsFileSystem):
        """Something is written while the sync runs."""

    fs = FaultyFileSystem(str(tmp_path), Slow())
    file = fs.open(str(tmp_path / "f"), create=True)
    fs.sync_dir(str(tmp_path))
    file.write([b"covered"], 0)
    mark = fs.unsynced.mark(file.path)
    file.write([b"late"], 7)
    fs.unsynced.synced(file.path, mark)
    fs.lose_power(Keep.NOTHING, 0)
    assert (tmp_path / "f").read_bytes() == b"covered"


def test_many_appends_are_remembered_together(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    file = fs.open(str(tmp_path / "f"), create=True)
    fs.sync_dir(str(tmp_path))
    for number in range(5000):
        file.write([b"%04d" % (number % 10_000)], 4 * number)
    assert len(fs.unsynced._log) < 1100
    fs.lose_power(Keep.NOTHING, 0)
    assert (tmp_path / "f").read_bytes() == b""


def test_after_the_end_nothing_reaches_the_files(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    file = fs.open(str(tmp_path / "f"), create=True)
    fs.die()
    for call in (lambda: file.write([b"x"], 0), file.sync, lambda: fs.remove(file.path), file.size):
        with pytest.raises(OSError, match="dead"):
            call()
    assert (tmp_path / "f").read_bytes() == b""


def test_the_nth_write_fails(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    rule = fs.rules[1] = DiskRule(1, "write", nth=2, path="f", error=errno.EIO)
    file, other = (fs.open(str(tmp_path / name), create=True) for name in ("f", "g"))
    file.write([b"1"], 0)
    other.write([b"1"], 0)
    with pytest.raises(OSError, match="Input/output error"):
        file.write([b"2"], 1)
    file.write([b"3"], 1)
    assert (rule.happened, (tmp_path / "f").read_bytes()) == (1, b"13")


def test_syncs_fail_or_take_long(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    fs.rules[1] = DiskRule(1, "sync", error=errno.EIO)
    fs.rules[2] = DiskRule(2, "sync", nth=2, seconds=0.1, times=0)
    file = fs.open(str(tmp_path / "f"), create=True)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    begun = time.monotonic()
    file.sync()
    fs.sync_dir(str(tmp_path))
    assert time.monotonic() - begun >= 0.2


def test_a_full_disk_takes_a_part_of_a_write(tmp_path: Path) -> None:
    fs = FaultyFileSystem(str(tmp_path))
    fs.full_after(5)
    file = fs.open(str(tmp_path / "f"), create=True)
    assert file.write([b"abc", b"defg"], 0) == 5
    with pytest.raises(OSError, match="No space left"):
        file.write([b"h"], 5)
    fs.full_after(None)
    assert file.write([b"fgh"], 5) == 3
    assert (tmp_path / "f").read_bytes() == b"abcdefgh"
