"""Copies a backup's files. The copy gets its name only when all of it is durable."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import partial

from eoslog.broker.log.files import for_each_parallel
from eoslog.broker.ports import OsFileSystem
from eoslog.commands.backup_source import BackupSource, NoBackup, SourceFile

_CHUNK = 8 << 20


def copied(source: BackupSource, to: str, progress: Callable[[int], None]) -> None:
    """Copy all files to the directory `to`, which must be empty or not exist.

    `progress` gets the bytes of each part. Raises NoBackup, OSError; then nothing of the copy is left.
    """
    to = os.path.abspath(to)
    _check(source, to)
    above = os.path.dirname(to)
    os.makedirs(above, exist_ok=True)
    _check_room(source, above)
    made = tempfile.mkdtemp(prefix=f"{os.path.basename(to)}.partial-", dir=above)
    try:
        fs, directories = OsFileSystem(), {made}
        for file in source.files:
            directories.add(os.path.dirname(os.path.join(made, file.name)))
        for directory in sorted(directories):
            fs.make_dir(directory)
        for_each_parallel(partial(_copy, made, _one_at_a_time(progress)), source.files)
        for_each_parallel(fs.sync_dir, sorted(directories, reverse=True))
        os.chmod(made, os.stat(source.directory).st_mode)
        os.rename(made, to)
    except BaseException:
        shutil.rmtree(made)
        raise
    fs.sync_dir(above)


def _check(source: BackupSource, to: str) -> None:
    inside = os.path.realpath(source.directory)
    if os.path.commonpath([inside, os.path.realpath(to)]) == inside:
        raise NoBackup(f"{to} is inside the data directory: give a place outside of it")
    if os.path.exists(to) and (not os.path.isdir(to) or os.listdir(to)):
        raise NoBackup(f"{to} exists already: give a new directory, so that no copy is overwritten")


def _check_room(source: BackupSource, directory: str) -> None:
    _, free = OsFileSystem().space(directory)
    if free < source.size:
        raise NoBackup(f"the copy takes {source.size} bytes, and {directory} has room for {free}")


def _one_at_a_time(progress: Callable[[int], None]) -> Callable[[int], None]:
    """The same, for calls from many threads."""
    lock = threading.Lock()

    def called(size: int) -> None:
        with lock:
            progress(size)

    return called


def _copy(made: str, progress: Callable[[int], None], file: SourceFile) -> None:
    target = os.path.join(made, file.name)
    with open(file.path, "rb", buffering=0) as old, open(target, "xb", buffering=0) as new:
        left = file.size
        while left:
            part = old.read(min(_CHUNK, left))
            if not part:
                raise NoBackup(f"{file.path} has {left} bytes less than the broker reported")
            view = memoryview(part)
            while view:
                view = view[new.write(view) :]
            left -= len(part)
            progress(len(part))
        shutil.copymode(file.path, target)
        os.fsync(new.fileno())
