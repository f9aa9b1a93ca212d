"""Files of the data directory: their names, Kafka's small formats, and how they are written whole."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from eoslog.broker.log.reserve import Reserve
from eoslog.broker.ports import File, FileSystem, ShortWrite

# -- names and formats -----------------------------------------------------------------------------
# File names and small text files of a data directory, in Kafka's formats (checkpoints, partition.metadata).
#
# Small files are replaced whole: the new one is written beside the old one, synced and renamed, and the
# directory is synced.


LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
TEMPORARY = ".tmp"
DELETED = "-delete"  # of the directory of a deleted partition
REMOVED = ".deleted"  # of a file of a removed segment
CLEANED = ".cleaned"  # of a file that a compaction writes
SWAP = ".swap"  # of such a file when it is about to enter the log

OF_SEGMENT = (LOG, INDEX, TIME_INDEX, TXN_INDEX)

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"  # of a partition: the first offset of each epoch
LIFE_EPOCH = ".life-epoch"  # of the directory: the leader epoch of the last run
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


class BadFile(ValueError):
    """A small file of the data directory cannot be understood. The message names it."""


def offset_name(offset: int, suffix: str) -> str:
    """The file name of a segment's or snapshot's offset: 20 digits and the suffix."""
    return f"{offset:020d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets of all names that consist of 20 digits and the suffix, in ascending order."""
    return sorted(
        int(name[:20])
        for name in names
        if name.endswith(suffix) and len(name) == 20 + len(suffix) and name[:20].isdigit()
    )


def write_whole(
    fs: FileSystem,
    path: str,
    data: bytes,
    *,
    sync: bool = True,
    sync_dir: bool = True,
    temporary: str = "",
    private: bool = False,
    reserve: Reserve | None = None,
) -> None:
    """Replace a file's content, all or nothing even if power fails. Raises OSError.

    Without `sync_dir` the caller must sync the directory before it relies on the file. Without `sync` a power
    loss may leave the file empty: only for files that nothing relies on. `private`: for its owner alone.
    `reserve`: may be used on a full disk.
    """
    if reserve is not None:
        reserve.lend(
            lambda: write_whole(
                fs, path, data, sync=sync, sync_dir=sync_dir, temporary=temporary, private=private
            )
        )
        return
    temporary = temporary or path + TEMPORARY
    file = fs.open(temporary, create=True, private=private)
    try:
        file.truncate(0)
        if file.write([data], 0) != len(data):
            raise ShortWrite(f"{temporary}: wrote only part of {len(data)} bytes (disk full?)")
        if sync:
            file.sync()
    finally:
        file.close()
    fs.rename(temporary, path)
    if sync_dir:
        fs.sync_dir(os.path.dirname(path))


def read_whole(fs: FileSystem, path: str) -> bytes:
    """All bytes of a file. Raises OSError."""
    file = fs.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()


def encode_checkpoint(rows: Iterable[str]) -> bytes:
    """Kafka's checkpoint format: version 0, number of rows, rows."""
    lines = list(rows)
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_checkpoint(data: bytes, path: str) -> list[list[str]]:
    """The rows of a checkpoint, split at blanks. An empty file has no rows. Raises BadFile."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    rows = [line.split() for line in lines[2:]]
    if lines[0] != "0" or len(lines) < 2 or lines[1] != str(len(rows)):
        raise BadFile(f"{path} is not a complete checkpoint file of version 0; remove it to rebuild it")
    return rows


def encode_offsets(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """A checkpoint of offsets, one line `topic partition offset` for each."""
    return encode_checkpoint(f"{topic} {index} {offset}" for (topic, index), offset in offsets.items())


def decode_offsets(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """Read what `encode_offsets` wrote. Raises BadFile."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in decode_checkpoint(data, path)}
    except ValueError as error:
        raise BadFile(f"{path} cannot be read ({error}); remove it to rebuild it") from error


def encode_uuid(value: bytes) -> str:
    """Kafka's text form of 16 bytes: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    """Read what `encode_uuid` wrote. Raises ValueError."""
    value = base64.urlsafe_b64decode(text + "==")
    if len(value) != 16:
        raise ValueError(f"{text!r} is not an id of 16 bytes")
    return value


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The partition.metadata file of a partition's directory."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def decode_partition_metadata(data: bytes, path: str) -> bytes:
    """The topic id in a partition.metadata file. Raises BadFile."""
    rows = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    try:
        return decode_uuid(rows["topic_id"])
    except (KeyError, ValueError) as error:
        raise BadFile(f"{path} has no valid topic id ({error!r})") from error


def decode_properties(data: bytes) -> dict[str, str]:
    """Read a Java properties file of plain `name=value` lines."""
    pairs = (line.split("=", 1) for line in data.decode("utf-8", "replace").splitlines())
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0][:1] != "#"}


def encode_properties(values: Mapping[str, str]) -> bytes:
    """Lines that `decode_properties` reads."""
    return "".join(f"{name}={value}\n" for name, value in values.items()).encode()


# -- the files of a segment ------------------------------------------------------------------------
# The files of one segment: their names, and how they are created and removed.


class SegmentFiles:
    """The files of the segment at a base offset. `ending`: added to their names until it is in the log."""

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, ending: str = "") -> None:
        self.fs, self.base_offset = fs, base_offset
        self._directory, self._ending = directory, ending

    def path(self, suffix: str) -> str:
        """The path of the file with this suffix."""
        return os.path.join(self._directory, offset_name(self.base_offset, suffix) + self._ending)

    def paths(self) -> list[str]:
        """The paths of all files that a segment may have."""
        return [self.path(suffix) for suffix in OF_SEGMENT]

    def create(self) -> File:
        """Create empty files, without a transaction index. Returns the `.log` file, open. Raises OSError."""
        if self.fs.exists(self.path(TXN_INDEX)):  # left by a segment that was removed: it would grow
            self.fs.remove(self.path(TXN_INDEX))
        for suffix in (INDEX, TIME_INDEX):
            self._create(suffix).close()
        return self._create(LOG)

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


# -- checkpoints of offsets ------------------------------------------------------------------------
# Files of the data directory with one offset for each partition, in Kafka's format.
#
# `log-start-offset-checkpoint`  where each log begins. Written durably before records below are removed or
#                                hidden from readers: whatever a crash leaves of the removed segments, no
#                                deleted record is visible again. A log without an entry begins at 0.
# `cleaner-offset-checkpoint`    up to where each log is compacted. If it is lost, no log counts as compacted.
#                                A log with an entry, even 0, may have gaps: its compaction has begun. If the
#                                file cannot be read, that is assumed of every compacted topic's logs.


class OffsetCheckpoint:
    """One of these files."""

    def __init__(self, fs: FileSystem, path: str, reserve: Reserve | None = None) -> None:
        """Read the file at `path`, if it exists. Raises BadFile, OSError."""
        self._fs, self._path, self._reserve = fs, path, reserve
        self._offsets: dict[tuple[str, int], int] = {}
        if fs.exists(path):
            self._offsets = decode_offsets(read_whole(fs, path), path)

    def get(self, topic: str, index: int) -> int:
        """The offset of a partition, 0 if it has no entry."""
        return self._offsets.get((topic, index), 0)

    def knows(self, topic: str, index: int) -> bool:
        """Whether the partition has an entry."""
        return (topic, index) in self._offsets

    def put(self, topic: str, index: int, offset: int) -> None:
        """Set a partition's offset, durably. Raises OSError; then it is unchanged."""
        self._save(self._offsets | {(topic, index): offset})

    def forget(self, topic: str, index: int) -> None:
        """Drop the entry of a deleted partition. Raises OSError."""
        if (topic, index) in self._offsets:
            self._save({key: offset for key, offset in self._offsets.items() if key != (topic, index)})

    def _save(self, offsets: dict[tuple[str, int], int]) -> None:
        write_whole(self._fs, self._path, encode_offsets(offsets), reserve=self._reserve)
        self._offsets = offsets


@dataclass(frozen=True)
class Checkpoints:
    """Both files of a data directory."""

    starts: OffsetCheckpoint
    cleaned: OffsetCheckpoint
    cleaned_forgotten: bool = False
    """The cleaner offsets were lost: any part of a log may have been compacted."""
    reserve: Reserve | None = None
    """May be used on a full disk for what makes room."""


# -- many at once ----------------------------------------------------------------------------------
# Does the same for many partitions, several at once: a disk syncs many files in about the time of one.


Item = TypeVar("Item")

_FEW = 16


def for_each_parallel(action: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call `action` for each item: for a few items in this thread and in order, for more in worker threads.

    Returns when all calls have ended. Raises the first error.
    """
    if len(items) <= _FEW:
        for item in items:
            action(item)
        return
    with ThreadPoolExecutor(_FEW, thread_name_prefix="disk") as pool:
        for done in [pool.submit(action, item) for item in items]:
            done.result()
