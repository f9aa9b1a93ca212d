"""The files that an interrupted process leaves in a partition's directory, and how they are cleaned up.

| found                                      | meaning                                | action               |
|--------------------------------------------|----------------------------------------|----------------------|
| `*.tmp`                                    | a small file that was being written    | remove it            |
| `*.deleted`                                | files of a removed segment             | remove them          |
| `BASE.log.cleaned`                         | a compaction that was not committed    | remove its files     |
| `BASE.log.swap`                            | a committed compaction: replaces all   | remove those, rename |
|                                            | segments in its range of offsets       | its files into place |
| other `BASE.*.swap`, no `BASE.log.cleaned` | the same, but its log is in place      | rename them too      |

Renaming `.log.cleaned` to `.log.swap` commits a compaction (see `commit`).
"""

from __future__ import annotations

import os

from eoslog.broker.log import files
from eoslog.broker.log.scan import headers
from eoslog.broker.ports import FileSystem


def finish(fs: FileSystem, directory: str) -> list[str]:
    """Clean up as the table says. It may be interrupted and repeated. Returns the names of the files left.

    Raises OSError, DamagedBatch.
    """
    names = fs.list(directory)
    unfinished = {name for name in names if name.endswith((files.CLEANED, files.SWAP))}
    if unfinished:
        for base in sorted({int(name[:20]) for name in unfinished}):
            _end_compaction(fs, directory, base)
        names = fs.list(directory)
    left = []
    for name in names:
        if name.endswith((files.TEMPORARY, files.REMOVED)):
            fs.remove(os.path.join(directory, name))
        else:
            left.append(name)
    return left


def _end_compaction(fs: FileSystem, directory: str, base: int) -> None:
    log = os.path.join(directory, files.offset_name(base, files.LOG))
    if fs.exists(log + files.CLEANED):
        give_up(fs, directory, base)
        return
    if fs.exists(log + files.SWAP):
        take_out(fs, directory, base, _end_of(fs, log + files.SWAP))
    move_in(fs, directory, base)
    give_up(fs, directory, base)


def prepare(fs: FileSystem, directory: str, base: int) -> None:
    """Get a compacted segment's indexes ready for `commit`. Raises OSError; `give_up` undoes it."""
    for suffix in files.OF_SEGMENT[1:]:
        path = os.path.join(directory, files.offset_name(base, suffix))
        if fs.exists(path + files.CLEANED):
            fs.rename(path + files.CLEANED, path + files.SWAP)
    fs.sync_dir(directory)


def commit(fs: FileSystem, directory: str, base: int) -> None:
    """Commit a compaction: from here on it can be finished but not undone. Raises OSError."""
    path = os.path.join(directory, files.offset_name(base, files.LOG))
    fs.rename(path + files.CLEANED, path + files.SWAP)
    fs.sync_dir(directory)


def _end_of(fs: FileSystem, path: str) -> int:
    """The offset after the last batch of a log file."""
    file = fs.open(path)
    try:
        return max(header.next_offset for _, header in headers(file, 0, file.size()))
    finally:
        file.close()


def give_up(fs: FileSystem, directory: str, base: int) -> None:
    """Remove the files of an uncommitted compaction; last its log, which marks it as uncommitted."""
    paths = [os.path.join(directory, files.offset_name(base, suffix)) for suffix in files.OF_SEGMENT]
    for path in paths[1:]:
        for name in (path + files.SWAP, path + files.CLEANED):
            if fs.exists(name):
                fs.remove(name)
    fs.sync_dir(directory)
    if fs.exists(paths[0] + files.CLEANED):
        fs.remove(paths[0] + files.CLEANED)


def take_out(fs: FileSystem, directory: str, base: int, end: int) -> list[str]:
    """Rename the files of the segments from `base` up to offset `end` to `.deleted`, durably."""
    renamed = []
    for suffix in (*files.OF_SEGMENT, files.SNAPSHOT):
        for offset in files.offsets_of(fs.list(directory), suffix):
            if base <= offset < end and (offset, suffix) != (base, files.SNAPSHOT):
                path = os.path.join(directory, files.offset_name(offset, suffix))
                fs.rename(path, path + files.REMOVED)
                renamed.append(path + files.REMOVED)
    fs.sync_dir(directory)
    return renamed


def move_in(fs: FileSystem, directory: str, base: int) -> None:
    """Rename a compaction's `.swap` files to the names of a segment, the log first, durably."""
    for suffix in files.OF_SEGMENT:
        path = os.path.join(directory, files.offset_name(base, suffix))
        if fs.exists(path + files.SWAP):
            fs.rename(path + files.SWAP, path)
    fs.sync_dir(directory)
