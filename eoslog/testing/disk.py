"""A real directory whose disk fails on demand: writes, syncs, space, and the power.

It wraps the operating system's file system. `unsynced` tracks what is not synced, so that a power loss can
undo it, for a broker in this process or in one of its own. After a power loss, or when a broker in a thread
is killed, the disk is dead: every later call of that broker fails, so that nothing more reaches the files.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from eoslog.broker.ports import Buffer, File, FileSystem, OsFileSystem
from eoslog.testing.unsynced import Keep, Unsynced

Call = Literal["write", "sync"]


@dataclass
class DiskRule:
    """A fault of the writes or syncs of files whose path contains `path`: `times` of them, from the nth on.

    `times` 0: for ever. Paths are relative to the data directory, with a slash in front.
    """

    number: int
    call: Call
    nth: int = 1
    times: int = 1
    path: str = ""
    error: int = 0  # errno; 0: none
    seconds: float = 0.0
    met: int = 0
    happened: int = 0

    def strikes(self, call: Call, path: str) -> bool:
        """Whether the rule strikes this call. Counts the calls that match."""
        if call != self.call or self.path not in path:
            return False
        self.met += 1
        due = self.met >= self.nth and (not self.times or self.met < self.nth + self.times)
        self.happened += due
        return due


class FaultyFile:
    """A file of a `FaultyFileSystem`."""

    def __init__(self, fs: FaultyFileSystem, inner: File) -> None:
        self._fs, self._inner = fs, inner
        self.path = inner.path

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        """See `File.write`."""
        self._fs.meet("write", self.path)
        with self._fs.lock_of_all:
            self._fs.check()
            length = self._fs.room(sum(map(len, parts)), self.path)
            if length < sum(map(len, parts)):
                parts = [b"".join(parts)[:length]]
            self._changing(position, length)
            return self._inner.write(parts, position)

    def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        with self._fs.lock_of_all:
            self._fs.check()
            self._changing(size, 0)
            self._inner.truncate(size)

    def _changing(self, position: int, length: int) -> None:
        size = self._inner.size()
        replaced = (min(size, position + length) if length else size) - position
        before = self._inner.read(replaced, position) if replaced > 0 else b""
        self._fs.unsynced.changing(self.path, position, before, size, length)

    def read(self, size: int, position: int) -> bytes:
        """See `File.read`."""
        self._fs.check()
        return self._inner.read(size, position)

    def size(self) -> int:
        """See `File.size`."""
        self._fs.check()
        return self._inner.size()

    def sync(self) -> None:
        """See `File.sync`."""
        self._fs.meet("sync", self.path)
        with self._fs.lock_of_all:
            self._fs.check()
            mark = self._fs.unsynced.mark(self.path)
        self._inner.sync()
        with self._fs.lock_of_all:
            self._fs.check()
            self._fs.unsynced.synced(self.path, mark)

    def fileno(self) -> int:
        """See `File.fileno`."""
        return self._inner.fileno()

    def close(self) -> None:
        """See `File.close`."""
        self._fs.opened.discard(self)
        self._inner.close()


class FaultyFileSystem:
    """A `FileSystem` on top of the real one. `lock_of_all` guards the undo log; syncs run without it."""

    def __init__(self, data: str, inner: FileSystem | None = None) -> None:
        """`data` is the data directory. Removed files are kept beside it, not in it, until a sync."""
        self._inner = inner or OsFileSystem()
        self._data = os.path.abspath(data)
        self.unsynced = Unsynced(self._data + ".unsynced")
        self.lock_of_all = threading.RLock()
        self.opened: set[FaultyFile] = set()
        self.rules: dict[int, DiskRule] = {}
        self._room: int | None = None
        self.refused = 0
        """Writes of which nothing fitted, since the disk was said to be full."""
        self._dead = False

    # -- faults --------------------------------------------------------------------------------

    def full_after(self, size: int | None) -> None:
        """Let the disk be full after `size` more bytes. None: no limit."""
        self._room, self.refused = size, 0

    def meet(self, call: Call, path: str) -> None:
        """Raise or wait if a rule says so."""
        wait, error = 0.0, 0
        place = os.path.abspath(path).removeprefix(self._data)
        with self.lock_of_all:
            self.check()
            for rule in self.rules.values():
                if rule.strikes(call, place):
                    wait, error = max(wait, rule.seconds), rule.error or error
        if wait:
            time.sleep(wait)
        if error:
            raise OSError(error, os.strerror(error), path)

    def room(self, size: int, path: str) -> int:
        """The number of bytes of a write that fit. Raises OSError if none do."""
        if self._room is None:
            return size
        if not self._room and size:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        fits = min(size, self._room)
        self._room -= fits
        return fits

    def check(self) -> None:
        """Raise OSError if the machine is dead."""
        if self._dead:
            raise OSError(errno.ESHUTDOWN, "the machine of this broker is dead (a fault on demand)")

    def die(self) -> None:
        """Let every later call fail. Closes locks and files, as the end of a process does."""
        with self.lock_of_all:
            self._dead = True
            for file in list(self.opened):
                file.close()

    def lose_power(self, keep: Keep, seed: int) -> int:
        """Die, and lose what was not synced. Returns the number of lost changes."""
        with self.lock_of_all:
            self.die()
            return self.unsynced.lose(keep, Random(seed))

    # -- FileSystem ----------------------------------------------------------------------------

    def _opened(self, inner: File) -> File:
        file = FaultyFile(self, inner)
        self.opened.add(file)
        return file

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """See `FileSystem.open`."""
        path = os.path.abspath(path)
        with self.lock_of_all:
            self.check()
            new = create and not self._inner.exists(path)
            file = self._opened(self._inner.open(path, create=create, private=private))
            if new:
                self.unsynced.created(path)
            return file

    def exists(self, path: str) -> bool:
        """See `FileSystem.exists`."""
        self.check()
        return self._inner.exists(path)

    def written_ms(self, path: str) -> int:
        """See `FileSystem.written_ms`."""
        self.check()
        return self._inner.written_ms(path)

    def list(self, path: str) -> list[str]:
        """See `FileSystem.list`."""
        self.check()
        return self._inner.list(path)

    def make_dir(self, path: str, *, private: bool = False) -> None:
        """See `FileSystem.make_dir`."""
        path, missing = os.path.abspath(path), []
        with self.lock_of_all:
            self.check()
            while not self._inner.exists(path):
                missing.append(path)
                path = os.path.dirname(path)
            for each in reversed(missing):
                self._inner.make_dir(each, private=private and each == missing[0])
                self.unsynced.created(each)

    def rename(self, old: str, new: str) -> None:
        """See `FileSystem.rename`."""
        old, new = os.path.abspath(old), os.path.abspath(new)
        with self.lock_of_all:
            self.check()
            replaced = None
            if self._inner.exists(new) and self._inner.exists(old):
                replaced = self.unsynced.put_aside(new, replaced=True)
                self._follow(new, replaced)
            self._inner.rename(old, new)
            self._follow(old, new)
            self.unsynced.renamed(old, new, replaced)

    def _follow(self, old: str, new: str) -> None:
        """Give open files their new path."""
        for file in self.opened:
            if file.path == old or file.path.startswith(old + os.sep):
                file.path = new + file.path[len(old) :]

    def link(self, old: str, new: str) -> None:
        """See `FileSystem.link`."""
        old, new = os.path.abspath(old), os.path.abspath(new)
        with self.lock_of_all:
            self.check()
            self._inner.link(old, new)
            self.unsynced.created(new)

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`."""
        path = os.path.abspath(path)
        with self.lock_of_all:
            self.check()
            if not self._inner.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            place = self.unsynced.put_aside(path)
            self._follow(path, place)
            self.unsynced.removed(path, place)

    def remove_tree(self, path: str) -> None:
        """See `FileSystem.remove_tree`."""
        self.remove(path)

    def sync_dir(self, path: str) -> None:
        """See `FileSystem.sync_dir`."""
        self.meet("sync", path)
        self._inner.sync_dir(path)
        with self.lock_of_all:
            self.check()
            self.unsynced.directory_synced(os.path.abspath(path))

    def space(self, path: str) -> tuple[int, int]:
        """See `FileSystem.space`."""
        self.check()
        return self._inner.space(path)

    def lock(self, path: str) -> File:
        """See `FileSystem.lock`."""
        path = os.path.abspath(path)
        with self.lock_of_all:
            self.check()
            new = not self._inner.exists(path)
            file = self._opened(self._inner.lock(path))
            if new:
                self.unsynced.created(path)
            return file
