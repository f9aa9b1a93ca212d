"""A file that only takes up room, so that a broker on a full disk can still note what makes room again.

To shorten a topic's retention, to move a log's start, to delete a topic, and to start after a crash, a
broker must write a little first. On a disk with 0 bytes free the reserve is emptied for that, in one turn of
the event loop, so that no client's write gets its bytes. Then it takes back what is left.

Its content is random, so that no file system compresses it. Nothing relies on the file: one that is missing
or short is made whole as soon as there is room.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from typing import TypeVar

from eoslog.broker.ports import FileSystem, ShortWrite

logger = logging.getLogger(__name__)

RESERVE = ".reserve"
"""Its name in the data directory."""

RESERVE_BYTES = 1 << 20

READY_BYTES = 64 << 20
"""A broker whose disk has less room is not ready: its next segment, index or snapshot may be refused."""

FOR_ENDS = RESERVE_BYTES // 2
"""What of it ends of transactions leave: an open transaction keeps segments, so its end makes room, too."""

T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Reserve:
    """The reserve of one data directory. All calls come from one thread."""

    def __init__(self, fs: FileSystem, root: str) -> None:
        """Find what there is of it."""
        self._fs, self._root, self._path = fs, root, os.path.join(root, RESERVE)
        self._owed = False  # it was emptied, and takes back whatever is free

    @property
    def size(self) -> int:
        """Bytes that it takes up now; 0 if it cannot be opened."""
        try:
            file = self._fs.open(self._path)
            try:
                return file.size()
            finally:
                file.close()
        except OSError:
            return 0

    def lend(self, action: Callable[[], T], keep: int = 0) -> T:
        """The result of `action`; if the disk is full, it is called again with the reserve's room.

        `keep`: bytes of the reserve that are not for it. Raises what it raises.
        """
        try:
            return action()
        except OSError as error:
            full = error.errno in _FULL or isinstance(error, ShortWrite)
            if not full or not self._release(keep):
                raise
        try:
            return action()
        finally:
            self.fill()

    def open_for_start(self) -> None:
        """Empty it if the disk is nearly full: a start must write. `fill` ends that."""
        try:
            free = self._fs.space(self._root)[1]
        except OSError as error:
            logger.warning("how full the disk is cannot be read: %s", error)
            return
        if free < READY_BYTES and (size := self.size) and self._release():
            text = "only %d bytes of the disk are free: this start or end may use the %d bytes of %s"
            logger.warning(text, free, size, self._path)

    def fill(self) -> None:
        """Make it whole if that leaves as much room again; after it was emptied, as far as there is room."""
        if (size := self.size) >= RESERVE_BYTES:
            return
        try:
            if self._owed or self._fs.space(self._root)[1] >= 2 * RESERVE_BYTES:
                self._owed = False
                self._write(size)
        except OSError as error:
            logger.debug("%s is not whole: %s", self._path, error)

    def _write(self, size: int) -> None:
        file = self._fs.open(self._path, create=True)
        try:
            while size < RESERVE_BYTES:
                written = file.write([os.urandom(RESERVE_BYTES - size)], size)
                if not written:
                    return
                size += written
        finally:
            file.sync()
            file.close()
        self._fs.sync_dir(self._root)

    def _release(self, keep: int = 0) -> bool:
        """Empty it down to `keep` bytes. Whether that has made room."""
        if self.size <= keep:
            return False
        try:
            file = self._fs.open(self._path)
            try:
                file.truncate(keep)
                self._owed = True
                file.sync()  # some file systems give the room back only then
            finally:
                file.close()
        except OSError as error:
            logger.warning("%s could not be emptied: %s", self._path, error)
            return False
        return True
