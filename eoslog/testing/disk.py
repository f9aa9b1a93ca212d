"""A real directory whose disk fails on demand: writes, syncs, space, and the power."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Literal

from eoslog.broker.ports import Buffer, File, FileSystem, OsFileSystem

# -- writes that are not synced --------------------------------------------------------------------
# An undo log of writes that are not synced, to imitate a power loss on a real directory.
#
# The files contain what the broker wrote, as the page cache does. The undo log stores how to undo each change
# since the last sync of its file or directory. A power loss undoes the changes; a sync drops the entries.
#
# - A write or truncate is undone by the bytes that were there before.
# - A new file or directory is undone by removing it, a rename by renaming back.
# - What is removed or replaced is kept aside, in a directory of our own, until its directory is synced.
#
# `Keep.NOTHING` undoes every change. `Keep.SOME` lets a random first part of each file's and each directory's
# changes survive and tears the next write, as a disk does that is interrupted in a write.


_COARSE = 1000  # changes of one file; beyond that, appends are merged into one entry


class Keep(Enum):
    """Which unsynced changes survive a power loss."""

    NOTHING = "nothing"
    SOME = "some"


@dataclass(eq=False, slots=True)
class Inode:
    """A file with unsynced changes, by its present path."""

    path: str
    changes: list[Overwrite] = field(default_factory=list)
    safe: int = 0  # changes that syncs have removed from the list
    marked: int = 0  # changes that a started sync covers, including the safe ones


@dataclass(eq=False, slots=True)
class Overwrite:
    """The bytes that were replaced at `position`, and the file's size before; `length` bytes were written."""

    inode: Inode
    position: int
    before: bytes
    size: int
    length: int

    @property
    def appended(self) -> bool:
        """Whether the change only made the file longer."""
        return not self.before and self.position == self.size

    def undo(self, keep: int = 0) -> None:
        """Undo it, except for the first `keep` bytes that were written."""
        with open(self.inode.path, "r+b") as file:
            if self.before[keep:]:
                file.seek(self.position + keep)
                file.write(self.before[keep:])
            file.truncate(max(self.size, self.position + keep if keep else 0))


@dataclass(eq=False, slots=True)
class DirectoryChange:
    """A change of a directory, and how to undo it. `aside`: what is kept for that."""

    directory: str
    undo: Callable[[], None]
    aside: str | None = None


class Unsynced:
    """The undo log of one directory tree. Not thread-safe: the file system has a lock."""

    def __init__(self, aside: str) -> None:
        """`aside`: a directory for removed files, in the same file system as the tree, but outside of the
        tree.
        """
        self._aside = aside
        self._log: list[Overwrite | DirectoryChange] = []
        self._inodes: dict[str, Inode] = {}
        self._kept = 0
        self.clear()

    # -- files ---------------------------------------------------------------------------------

    def changing(self, path: str, position: int, before: bytes, size: int, length: int) -> None:
        """Note that a file of `size` bytes will be written, or cut (`length` 0), at `position`."""
        inode = self._inodes.setdefault(path, Inode(path))
        new = Overwrite(inode, position, before, size, length)
        if len(inode.changes) > _COARSE and inode.safe + len(inode.changes) > inode.marked:
            last = inode.changes[-1]
            if last.appended and new.appended and last.position + last.length == position:
                last.length += length
                return
        inode.changes.append(new)
        self._log.append(new)

    def mark(self, path: str) -> int:
        """The number of changes of a file so far: a sync that begins now covers them."""
        inode = self._inodes.get(path)
        if inode is None:
            return 0
        inode.marked = inode.safe + len(inode.changes)
        return inode.marked

    def synced(self, path: str, mark: int) -> None:
        """Note that the first `mark` changes of a file are safe."""
        inode = self._inodes.get(path)
        if inode is None or mark <= inode.safe:
            return
        safe = inode.changes[: mark - inode.safe]
        del inode.changes[: len(safe)]
        inode.safe = mark
        self._drop(safe)

    def _drop(self, changes: Sequence[Overwrite | DirectoryChange]) -> None:
        dropped = set(map(id, changes))
        self._log = [change for change in self._log if id(change) not in dropped]

    # -- directories ---------------------------------------------------------------------------

    def created(self, path: str) -> None:
        """Note that a file or directory was created."""
        self._enter(path, lambda: _remove(path))

    def renamed(self, old: str, new: str, replaced: str | None) -> None:
        """Note that `old` became `new`; `replaced` is where the former `new` is kept."""
        self._move(old, new)

        def undo() -> None:
            os.rename(new, old)
            self._move(new, old)
            if replaced is not None:
                os.rename(replaced, new)
                self._move(replaced, new)

        self._enter(new, undo, replaced)

    def put_aside(self, path: str, *, replaced: bool = False) -> str:
        """Keep a file or directory for now and take it out of the tree. Returns where it is.

        One that will be `replaced` stays in the tree until then, so that it is never missing.
        """
        os.makedirs(self._aside, exist_ok=True)
        self._kept += 1
        place = os.path.join(self._aside, str(self._kept))
        (os.link if replaced else os.rename)(path, place)
        self._move(path, place)
        return place

    def removed(self, path: str, place: str) -> None:
        """Note that what was at `path` was put aside, at `place`, and is removed for the broker."""

        def undo() -> None:
            os.rename(place, path)
            self._move(place, path)

        self._enter(path, undo, place)

    def directory_synced(self, path: str) -> None:
        """Note that all changes of the entries of a directory are safe."""
        safe = [
            entry for entry in self._log if isinstance(entry, DirectoryChange) and entry.directory == path
        ]
        self._drop(safe)
        for entry in safe:
            if entry.aside is not None:
                self._forget(entry.aside)

    def _enter(self, path: str, undo: Callable[[], None], aside: str | None = None) -> None:
        self._log.append(DirectoryChange(os.path.dirname(path), undo, aside))

    def _forget(self, place: str) -> None:
        _remove(place)
        for path in [path for path in self._inodes if path == place or path.startswith(place + os.sep)]:
            self._drop(self._inodes.pop(path).changes)

    def _move(self, old: str, new: str) -> None:
        """Note a new path for a file or directory, and all that is in it."""

        def moved(path: str) -> str:
            return new + path[len(old) :] if path == old or path.startswith(old + os.sep) else path

        for inode in self._inodes.values():
            inode.path = moved(inode.path)
        self._inodes = {inode.path: inode for inode in self._inodes.values()}
        for entry in self._log:
            if isinstance(entry, DirectoryChange):
                entry.directory = moved(entry.directory)

    # -- the power fails -----------------------------------------------------------------------

    def lose(self, keep: Keep, random: Random) -> int:
        """Undo what is not synced, the newest first. Returns how many changes there were."""
        lost, left = len(self._log), _Survivors(self._log, keep, random)
        for change in reversed(self._log):
            if isinstance(change, DirectoryChange):
                if not left.survives(change.directory):
                    change.undo()
            elif not left.survives(change.inode):
                change.undo(left.torn(change))
        self.clear()
        return lost

    def clear(self) -> None:
        """Drop all entries: nothing of the tree as it is now will be undone."""
        self._log, self._inodes = [], {}
        shutil.rmtree(self._aside, ignore_errors=True)


class _Survivors:
    """Which changes survive a power loss: in each file and directory the first few, see `Keep`."""

    def __init__(self, log: list[Overwrite | DirectoryChange], keep: Keep, random: Random) -> None:
        self._left: dict[object, int] = {}
        self._kept: dict[object, int] = {}
        self._keep, self._random = keep, random
        for change in log:
            owner: str | Inode = change.directory if isinstance(change, DirectoryChange) else change.inode
            self._left[owner] = self._left.get(owner, 0) + 1
        for each, count in self._left.items():
            self._kept[each] = random.randint(0, count) if keep is Keep.SOME else 0

    def survives(self, owner: object) -> bool:
        """Whether a change survives. Call once for each change, the newest first."""
        self._left[owner] -= 1
        return self._left[owner] < self._kept[owner]

    def torn(self, change: Overwrite) -> int:
        """How many bytes of the first lost write reach the disk even so."""
        first_lost = self._left[change.inode] == self._kept[change.inode]
        if self._keep is Keep.SOME and first_lost and change.length:
            return self._random.randint(0, change.length - 1)
        return 0


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


# -- the disk --------------------------------------------------------------------------------------
# It wraps the operating system's file system. `unsynced` tracks what is not synced, so that a power loss can
# undo it, for a broker in this process or in one of its own. After a power loss, or when a broker in a thread
# is killed, the disk is dead: every later call of that broker fails, so that nothing more reaches the files.


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
        size, free = self._inner.space(path)
        return size, free if self._room is None else min(free, self._room)

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
