"""The two interfaces to the machine: file system and clock.

All code of the broker that touches the disk or reads the time gets these as arguments. So a test can lose
unsynced bytes, tear a write, fill the disk, fail an fsync, or move time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
import time
import weakref
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ShortWrite(OSError):
    """The system took only a part of the bytes: most likely the disk is full."""


class File(Protocol):
    """An open file with positioned reads and writes; there is no file cursor."""

    path: str

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        """Write the parts one after another at `position`, one system call; may be short. Raises OSError."""

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file. Raises OSError."""

    def size(self) -> int:
        """Bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes. Raises OSError."""

    def sync(self) -> None:
        """Return when all bytes written so far survive a power loss (fdatasync). Raises OSError."""

    def fileno(self) -> int:
        """The descriptor, for sendfile."""

    def close(self) -> None:
        """Close the file; nothing is synced."""


class FileSystem(Protocol):
    """The file operations that a log needs. All raise OSError as the system does."""

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless `create`.

        A `private` file is for its owner alone from then on.
        """

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def written_ms(self, path: str) -> int:
        """When a file was last written to, in milliseconds since the epoch."""

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_dir(self, path: str, *, private: bool = False) -> None:
        """Create one directory and the missing ones above it; no error if it is there. `private`: a new one
        is for its owner alone."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically, replacing a file at `new`."""

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; IsADirectoryError for a directory."""

    def remove(self, path: str) -> None:
        """Remove one file."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all within."""

    def sync_dir(self, path: str) -> None:
        """Make creates, renames and removes in a directory survive a power loss."""

    def space(self, path: str) -> tuple[int, int]:
        """Bytes that the volume of a directory has, and those that are free for this process."""

    def lock(self, path: str) -> File:
        """Take an exclusive lock that ends with the process; BlockingIOError if another holds it."""


class Clock(Protocol):
    """Time, so that tests can move it."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class OsFile:
    """A `File` of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        """See `File.write`."""
        return os.pwritev(self._fd, parts, position)

    def read(self, size: int, position: int) -> bytes:
        """See `File.read`. A read cut short by the system (2 GiB at a time on Linux) is continued."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size:
            more = os.pread(self._fd, size - have, position + have)
            if not more:
                break
            parts.append(more)
            have += len(more)
        return b"".join(parts) if len(parts) > 1 else data

    def size(self) -> int:
        """See `File.size`."""
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """See `File.sync`."""
        os.fdatasync(self._fd)

    def fileno(self) -> int:
        """See `File.fileno`."""
        return self._fd

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor; a second call does nothing. So does the end of the object."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class OsFileSystem:
    """The `FileSystem` of the operating system."""

    def open(self, path: str, *, create: bool = False, private: bool = False) -> File:
        """See `FileSystem.open`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o600 if private else 0o644)
        if private:
            os.fchmod(fd, 0o600)  # one that was there already, left by a crash
        return OsFile(path, fd)

    def exists(self, path: str) -> bool:
        """See `FileSystem.exists`."""
        return os.path.exists(path)

    def written_ms(self, path: str) -> int:
        """See `FileSystem.written_ms`."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def list(self, path: str) -> list[str]:
        """See `FileSystem.list`."""
        return sorted(os.listdir(path))

    def make_dir(self, path: str, *, private: bool = False) -> None:
        """See `FileSystem.make_dir`."""
        os.makedirs(path, 0o700 if private else 0o777, exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """See `FileSystem.rename`."""
        os.replace(old, new)

    def link(self, old: str, new: str) -> None:
        """See `FileSystem.link`: a hard link."""
        if os.path.isdir(old):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), old)
        os.link(old, new)

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """See `FileSystem.remove_tree`."""
        import shutil  # slow to import: it loads the archive formats, which a start does not need

        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """See `FileSystem.sync_dir`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        """See `FileSystem.space`."""
        volume = os.statvfs(path)
        return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail

    def lock(self, path: str) -> File:
        """See `FileSystem.lock`: flock, which the kernel drops when the process ends, however it ends."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(fd)
            raise
        return OsFile(path, fd)


class SystemClock:
    """The `Clock` of the operating system."""

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()


_LONGEST_NAME = 107  # bytes, behind the one that says that the name is of no file


class Claim:
    """A name that only one process of this machine has at a time. It leaves no file.

    It is given back when the process ends, however it ends. Only Linux has such names: elsewhere every
    process gets it.
    """

    def __init__(self, name: str) -> None:
        """Take the name, of which the first 107 bytes count. OSError EADDRINUSE if another process has it."""
        with socket.socket(socket.AF_UNIX) as held:
            if sys.platform == "linux":
                held.bind(b"\0" + name.encode()[:_LONGEST_NAME])
            self.close = weakref.finalize(self, os.close, held.detach())
