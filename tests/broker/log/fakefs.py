"""A file system in memory that fails like a real one: it loses what was not synced, tears writes, fills up.

What a crash leaves, by `Outcome`:
  NOTHING   no write since the file's last sync, no directory change since the directory's last sync
  ALL       everything, as after kill -9
  PREFIX    of each file's unsynced writes the first few, the next one torn; the same of directory changes
  PAGES     of each file's unsynced bytes any 512-byte blocks, the others as they were (or zeros)
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from eoslog.broker.ports import Buffer, File

BLOCK = 512


class PowerLoss(BaseException):
    """The machine stops here; no handler of errors may go on."""


class Outcome(Enum):
    NOTHING = "nothing"
    ALL = "all"
    PREFIX = "prefix"
    PAGES = "pages"


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # (position, bytes); None: truncate
    written_ms: int = 0

    def apply(self, position: int, data: bytes | None) -> None:
        if data is None:
            del self.data[position:]
            self.data.extend(bytes(position - len(self.data)))
            return
        if len(self.data) < position:
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def crash(self, outcome: Outcome, random: Random) -> None:
        if outcome is Outcome.ALL:
            return  # the page cache outlives the process, but nothing became more durable by its end
        if outcome is Outcome.PAGES:
            self._lose_blocks(random)
        else:
            pending = self.pending
            self.data = bytearray(self.durable)
            keep = 0 if outcome is Outcome.NOTHING else random.randint(0, len(pending))
            for position, data in pending[:keep]:
                self.apply(position, data)
            if outcome is Outcome.PREFIX and keep < len(pending):
                position, data = pending[keep]
                if data:
                    self.apply(position, data[: random.randint(0, len(data))])
        self.durable, self.pending = bytes(self.data), []

    def _lose_blocks(self, random: Random) -> None:
        new, old = bytes(self.data), self.durable.ljust(len(self.data), b"\0")
        if new == self.durable:
            return
        size = random.randint(min(len(new), len(self.durable)), len(new))
        blocks = range(0, len(new), BLOCK)
        self.data = bytearray(
            b"".join((new if random.random() < 0.6 else old)[b : b + BLOCK] for b in blocks)
        )
        del self.data[size:]


@dataclass
class Directory:
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)

    def set(self, *change: tuple[str, Inode | Directory | None]) -> None:
        self.pending.append(change)
        _set(self.entries, change)

    def sync(self) -> None:
        self.durable, self.pending = dict(self.entries), []

    def crash(self, outcome: Outcome, random: Random) -> None:
        if outcome is not Outcome.ALL:
            keep = 0 if outcome is Outcome.NOTHING else random.randint(0, len(self.pending))
            self.entries = dict(self.durable)
            for change in self.pending[:keep]:
                _set(self.entries, change)
            self.sync()
        for entry in self.entries.values():
            entry.crash(outcome, random)


# Names and what they stand for from now on (None: nothing); one change happens whole or not at all.
Change = tuple[tuple[str, Inode | Directory | None], ...]


def _set(entries: dict[str, Inode | Directory], change: Change) -> None:
    for name, value in change:
        if value is None:
            entries.pop(name, None)
        else:
            entries[name] = value


class FakeFile:
    def __init__(self, fs: FakeFileSystem, path: str, inode: Inode) -> None:
        self.path, self._fs, self._inode, self._life = path, fs, inode, fs.life
        self.closed = False
        self.syncs = 0

    def _check(self) -> None:
        assert self._life == self._fs.life, f"{self.path} was opened before the crash"
        assert not self.closed, f"{self.path} is closed"

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        self._check()
        data = b"".join(parts)
        self._fs.step()
        data, error = self._fs.admit(self.path, self._inode, data, position)
        if data:
            self._inode.pending.append((position, data))
            self._inode.apply(position, data)
            self._inode.written_ms = self._fs.now_ms
        if error is not None:
            raise error
        return len(data)

    def read(self, size: int, position: int) -> bytes:
        self._check()
        data = bytes(self._inode.data[position : position + size])
        self._fs.bytes_read[os.path.splitext(self.path)[1]] += len(data)
        return data

    def size(self) -> int:
        self._check()
        return len(self._inode.data)

    def truncate(self, size: int) -> None:
        self._check()
        self._fs.step()
        if self._fs.fail_truncate:
            raise OSError(errno.EIO, "truncate failed", self.path)
        self._inode.pending.append((size, None))
        self._inode.apply(size, None)

    def sync(self) -> None:
        self._check()
        self.syncs += 1
        self._fs.check_sync(self.path)
        self._inode.durable, self._inode.pending = bytes(self._inode.data), []

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "no descriptor in memory")

    def close(self) -> None:
        self.closed = True
        self._fs.locked.discard(self.path)


class FakeFileSystem:
    """See the head of this file. `life` counts crashes; files opened before the last one are dead."""

    def __init__(self) -> None:
        self.root = Directory()
        self.life = 0
        self.now_ms = 1_700_000_000_000  # the clock of files
        self.capacity: int | None = None  # bytes that may still be written
        self.fail_truncate = False
        self.fail_sync: str | None = None  # syncs of paths that hold this text fail
        self.fail_open: str | None = None  # making files whose path holds this text fails
        self.fail_rename: str | None = None  # renames of paths that hold this text fail
        self.locked: set[str] = set()
        self.bytes_read: Counter[str] = Counter()  # by the suffix of files' names
        self.steps_left: int | None = None  # after so many changes of the disk comes a PowerLoss

    # -- faults --------------------------------------------------------------------------------

    def admit(self, path: str, inode: Inode, data: bytes, position: int) -> tuple[bytes, OSError | None]:
        if self.capacity is None:
            return data, None
        if not self.capacity:
            return b"", OSError(errno.ENOSPC, "No space left on device", path)
        data = data[: self.capacity]
        self.capacity -= len(data)
        return data, None

    def step(self) -> None:
        """Called before each change."""
        if self.steps_left is not None:
            if self.steps_left == 0:
                raise PowerLoss
            self.steps_left -= 1

    def check_sync(self, path: str) -> None:
        self.step()
        if self.fail_sync is not None and self.fail_sync in path:
            raise OSError(errno.EIO, "Input/output error", path)

    def crash(self, outcome: Outcome = Outcome.NOTHING, random: Random | None = None) -> None:
        self.life += 1
        self.steps_left = None
        self.locked.clear()
        self.root.crash(outcome, random or Random(0))

    # -- FileSystem ----------------------------------------------------------------------------

    def find(self, path: str) -> Inode | Directory | None:
        here: Inode | Directory = self.root
        for name in filter(None, path.split("/")):
            if not isinstance(here, Directory) or name not in here.entries:
                return None
            here = here.entries[name]
        return here

    def _parent(self, path: str) -> tuple[Directory, str]:
        head, name = os.path.split(path)
        parent = self.find(head) if head.strip("/") else self.root
        if not isinstance(parent, Directory):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return parent, name

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        parent, name = self._parent(path)
        inode = parent.entries.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            if self.fail_open is not None and self.fail_open in path:
                raise OSError(errno.ENOSPC, "No space left on device", path)
            self.step()
            inode = Inode()
            parent.set((name, inode))
        assert isinstance(inode, Inode)
        return FakeFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def written_ms(self, path: str) -> int:
        here = self.find(path)
        if not isinstance(here, Inode):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return here.written_ms

    def list(self, path: str) -> list[str]:
        here = self.find(path)
        if here is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if isinstance(here, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return sorted(here.entries)

    def make_dir(self, path: str, *, private: bool = False) -> None:
        here = self.root
        for name in path.strip("/").split("/"):
            if name not in here.entries:
                self.step()
                here.set((name, Directory()))
            below = here.entries[name]
            assert isinstance(below, Directory)
            here = below

    def rename(self, old: str, new: str) -> None:
        if self.fail_rename is not None and self.fail_rename in old:
            raise OSError(errno.EIO, "Input/output error", old)
        parent, name = self._parent(old)
        target, new_name = self._parent(new)
        assert parent is target, "renames stay within a directory"
        self.step()
        value = parent.entries[name]
        parent.set((new_name, value), (name, None))

    def link(self, old: str, new: str) -> None:
        inode = self.find(old)
        if not isinstance(inode, Inode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", old)
        parent, name = self._parent(new)
        self.step()
        parent.set((name, inode))

    def remove(self, path: str) -> None:
        parent, name = self._parent(path)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        self.step()
        parent.set((name, None))

    def remove_tree(self, path: str) -> None:
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        self.check_sync(path)
        here = self.find(path) if path.strip("/") else self.root
        assert isinstance(here, Directory)
        here.sync()

    def space(self, path: str) -> tuple[int, int]:
        return 1 << 40, 1 << 39 if self.capacity is None else self.capacity

    def lock(self, path: str) -> File:
        if path in self.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        file = self.open(path, create=True)
        self.locked.add(path)
        return file


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000
