"""The files of one segment: their names, and how they are created and removed."""

from __future__ import annotations

import os

from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import File, FileSystem


class SegmentFiles:
    """The files of the segment at a base offset. `ending`: added to their names until it is in the log."""

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, ending: str = "") -> None:
        self.fs, self.base_offset = fs, base_offset
        self._directory, self._ending = directory, ending

    def path(self, suffix: str) -> str:
        """The path of the file with this suffix."""
        return os.path.join(self._directory, files.offset_name(self.base_offset, suffix) + self._ending)

    def paths(self) -> list[str]:
        """The paths of all files that a segment may have."""
        return [self.path(suffix) for suffix in files.OF_SEGMENT]

    def create(self) -> File:
        """Create empty files, without a transaction index. Returns the `.log` file, open. Raises OSError."""
        if self.fs.exists(self.path(files.TXN_INDEX)):  # left by a segment that was removed: it would grow
            self.fs.remove(self.path(files.TXN_INDEX))
        for suffix in (files.INDEX, files.TIME_INDEX):
            self._create(suffix).close()
        return self._create(files.LOG)

    def _create(self, suffix: str) -> File:
        file = self.fs.open(self.path(suffix), create=True)
        try:
            file.truncate(0)
        except BaseException:
            file.close()
            raise
        return file

    def renamed(self) -> None:
        """Note that the files of a cleaned segment now have the names of a segment of the log."""
        self._ending = ""

    def remove(self) -> None:
        """Remove the files that exist. Raises OSError."""
        for path in self.paths():
            if self.fs.exists(path):
                self.fs.remove(path)
