"""Removes partition directories, and at a start finishes what a crash interrupted.

It touches only files that a broker makes: the data directory may hold others too. It does not remove a
directory with records of an unknown partition either: `DataDirError`.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Container, Iterable, Mapping

from eoslog.broker.log.opening import topic_registry
from eoslog.broker.log.opening.data_dir import META, DataDirError
from eoslog.broker.log.segment import files
from eoslog.broker.log.upkeep import backup
from eoslog.broker.ports.ports import FileSystem

_PARTITION = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_REMOVED = re.compile(_PARTITION.pattern + r"\.[0-9a-f]{32}" + files.DELETED)
_OURS = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|swap|deleted))?"
    rf"|{files.PARTITION_METADATA}|{files.LEADER_EPOCHS}"
)
_WRITTEN_WHOLE = (
    META,
    topic_registry.FILE,
    files.RECOVERY_POINTS,
    files.LOG_STARTS,
    files.CLEANER_OFFSETS,
    files.CLEAN_SHUTDOWN,
    files.LIFE_EPOCH,
)


def rename_away(fs: FileSystem, root: str, directories: Iterable[str]) -> list[str]:
    """Rename partition directories of the data directory `root`. Returns their new names.

    So a new topic of the same name never finds old files. The next start removes what is still there.
    Raises OSError.
    """
    renamed = []
    for directory in directories:
        target = f"{directory}.{uuid.uuid4().hex}{files.DELETED}"
        fs.rename(directory, target)
        renamed.append(target)
    fs.sync_dir(root)
    return renamed


def tidy(fs: FileSystem, root: str, known: Mapping[bytes, int], deleting: Container[bytes]) -> None:
    """Remove what a crash left: directories of deleted topics, and of partitions that were never registered.

    `known`: the number of partitions by topic id. Raises DataDirError, BadFile, OSError.
    """
    for name in fs.list(root):
        path = os.path.join(root, name)
        if _REMOVED.fullmatch(name) or name.startswith(backup.UNUSED):
            fs.remove_tree(path)
        elif name.removesuffix(files.TEMPORARY) in _WRITTEN_WHOLE and name.endswith(files.TEMPORARY):
            fs.remove(path)
        elif _PARTITION.fullmatch(name) and _is_left_over(fs, root, path, known, deleting):
            for renamed in rename_away(fs, root, [path]):
                fs.remove_tree(renamed)


def _is_left_over(
    fs: FileSystem, root: str, path: str, known: Mapping[bytes, int], deleting: Container[bytes]
) -> bool:
    try:
        names = fs.list(path)
    except NotADirectoryError:
        return False
    if not all(_OURS.fullmatch(name.removesuffix(files.TEMPORARY)) for name in names):
        return False
    topic_id = None
    if files.PARTITION_METADATA in names:
        metadata = os.path.join(path, files.PARTITION_METADATA)
        topic_id = files.decode_partition_metadata(files.read_whole(fs, metadata), metadata)
        if topic_id in known and int(path.rpartition("-")[2]) < known[topic_id]:
            return False
    filled = any(_size(fs, os.path.join(path, name)) for name in names if files.LOG in name)
    if filled and topic_id not in deleting:
        listing = os.path.join(root, topic_registry.FILE)
        raise DataDirError(
            f"{path} holds records of a partition that {listing} does not know. "
            "Restore that file from a copy, or move the directory away"
        )
    return True


def _size(fs: FileSystem, path: str) -> int:
    file = fs.open(path)
    try:
        return file.size()
    finally:
        file.close()
