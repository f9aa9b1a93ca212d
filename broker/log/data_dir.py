"""The data directory: its lock, owner and registry of topics, and the removal of what is left in it."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import uuid
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from eoslog.broker.log import backup, files, leader_epochs
from eoslog.broker.log.files import BadFile, Checkpoints, OffsetCheckpoint, decode_uuid, encode_uuid
from eoslog.broker.log.reserve import Reserve
from eoslog.broker.ports import Claim, FileSystem

# -- the registry of topics ------------------------------------------------------------------------
# The registry of topics, `topics.json` in the data directory, and its format. Written whole, see `files`.


REGISTRY = "topics.json"
_REGISTRY_VERSION = 1


@dataclass(frozen=True)
class TopicEntry:
    """A topic that exists. `configs`: only those that were set on it."""

    name: str
    topic_id: bytes
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True)
class TopicRegistry:
    """All topics, and the ids of those being deleted, whose directories may still be there."""

    topics: tuple[TopicEntry, ...] = ()
    deleting: frozenset[bytes] = frozenset()

    @property
    def partitions(self) -> dict[bytes, int]:
        """The number of partitions of each topic that exists, by topic id."""
        return {entry.topic_id: entry.partitions for entry in self.topics}


def encode(topics: Iterable[TopicEntry], deleting: Iterable[bytes]) -> bytes:
    """The file's content."""
    registry = {
        "version": _REGISTRY_VERSION,
        "topics": [
            {
                "name": entry.name,
                "id": encode_uuid(entry.topic_id),
                "partitions": entry.partitions,
                "configs": entry.configs,
            }
            for entry in topics
        ],
        "deleting": [encode_uuid(topic_id) for topic_id in deleting],
    }
    return json.dumps(registry, indent=1).encode()


def decode(data: bytes, path: str) -> TopicRegistry:
    """Read what `encode` wrote. Raises BadFile naming the path."""
    try:
        registry = json.loads(data)
        if registry["version"] != _REGISTRY_VERSION:
            raise ValueError(f"version {registry['version']}")
        entries = (
            TopicEntry(str(e["name"]), decode_uuid(e["id"]), int(e["partitions"]), dict(e["configs"]))
            for e in registry["topics"]
        )
        return TopicRegistry(tuple(entries), frozenset(map(decode_uuid, registry["deleting"])))
    except (ValueError, KeyError, TypeError) as error:
        raise BadFile(f"{path} cannot be understood ({error!r}); restore it from a copy") from error


# -- the directory ---------------------------------------------------------------------------------
# The data directory itself: its lock, its owner, and how the last broker left it.
#
# `.lock`                               held by the running broker (flock), released when its process ends
# `meta.properties`                     cluster id and node id, in Kafka's format
# `.kafka_cleanshutdown`                exists if the last broker shut down in order
# `.life-epoch`                         the leader epoch of the last run, see `epochs`
# `recovery-point-offset-checkpoint`    up to which offset each partition was durable at the last check
# `.reserve`                            takes up room, see `reserve`
# and the two of `files.Checkpoints`.


logger = logging.getLogger(__name__)

META = "meta.properties"
_CLEAN = b'{"version":0,"brokerEpoch":-1}'


class DataDirError(Exception):
    """The data directory cannot be used. The message says which directory and why."""


class DataDir:
    """An opened, locked data directory."""

    def __init__(self, fs: FileSystem, path: str, node_id: int, now_ms: int) -> None:
        """Create the directory if needed, lock it, take a new leader epoch. Raises DataDirError, OSError."""
        self.path = path
        self._fs = fs
        self._claim: Claim | None = None
        try:
            self._make()
            self._lock = fs.lock(os.path.join(path, ".lock"))
        except BlockingIOError:
            raise DataDirError(
                f"data directory {path} is locked: another broker is running on it. Stop that one, or give "
                "this one its own directory"
            ) from None
        except OSError as error:
            raise DataDirError(f"data directory {path} cannot be used: {error}") from error
        try:
            self.reserve = Reserve(fs, path)
            self.reserve.open_for_start()
            self.cluster_id = self._load_meta(node_id)
            self.recovery_points = self._load_points()
            self.checkpoints = self._load_checkpoints()
            life = self.file(files.LIFE_EPOCH)
            self.leader_epoch = leader_epochs.next_epoch(fs, life, now_ms, self._take)
            self.clean = self._take_clean_mark()
        except BaseException:
            self.close()
            raise

    def _make(self) -> None:
        """Create the directory and its missing parents, and sync the parent of each."""
        path = os.path.abspath(self.path)
        above = []
        while not self._fs.exists(path):
            path = os.path.dirname(path)
            above.append(path)
        self._fs.make_dir(self.path, private=True)
        if not above and not self._fs.exists(self.file(META)):
            above.append(os.path.dirname(path))  # it may be new, and not synced yet
        for parent in above:
            self._fs.sync_dir(parent)

    def file(self, name: str) -> str:
        """The path of a name in the directory."""
        return os.path.join(self.path, name)

    def _load_meta(self, node_id: int) -> str:
        path = self.file(META)
        if self._fs.exists(path):
            values = files.decode_properties(files.read_whole(self._fs, path))
            if not values.get("cluster.id") or values.get("node.id") != str(node_id):
                raise DataDirError(
                    f"{path} belongs to node.id={values.get('node.id')} of cluster "
                    f"{values.get('cluster.id')}, this broker is node.id={node_id}"
                )
            return values["cluster.id"]
        cluster_id = new_id_text()
        values = {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": new_id_text(),
        }
        files.write_whole(self._fs, path, files.encode_properties(values))
        return cluster_id

    def _take(self, epoch: int) -> bool:
        """Claim a leader epoch; False if another broker has it, which runs on a copy of this directory."""
        try:
            self._claim = Claim(f"eoslog/{epoch}/{self.cluster_id}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            logger.warning(
                "%s: a broker on a copy of this directory runs in leader epoch %d; this one takes a later "
                "one. Both have cluster id %s: let no client use one and then the other",
                self.path,
                epoch,
                self.cluster_id,
            )
            return False
        return True

    def _load_points(self) -> dict[tuple[str, int], int]:
        path = self.file(files.RECOVERY_POINTS)
        if not self._fs.exists(path):
            return {}
        try:
            return files.decode_offsets(files.read_whole(self._fs, path), path)
        except files.BadFile as error:
            # Without the recovery points more of each log is checked: slower, but just as safe.
            logger.warning("%s; every log is checked from its start", error)
            return {}

    def _load_checkpoints(self) -> Checkpoints:
        try:
            starts = OffsetCheckpoint(self._fs, self.file(files.LOG_STARTS), self.reserve)
        except files.BadFile as error:
            raise DataDirError(
                f"{error}; without it deleted records may be visible again until retention removes them"
            ) from error
        path = self.file(files.CLEANER_OFFSETS)
        try:
            cleaned = OffsetCheckpoint(self._fs, path)
        except files.BadFile as error:
            logger.warning("%s; compacted logs are compacted from their start again", error)
            self._fs.remove(path)
            return Checkpoints(starts, OffsetCheckpoint(self._fs, path), True, self.reserve)
        return Checkpoints(starts, cleaned, reserve=self.reserve)

    def forget(self, topic: str, index: int) -> None:
        """Drop the entries of a deleted partition, before one with its name is created. Raises OSError."""
        self.checkpoints.starts.forget(topic, index)
        self.checkpoints.cleaned.forget(topic, index)
        if (topic, index) in self.recovery_points:
            points = {key: offset for key, offset in self.recovery_points.items() if key != (topic, index)}
            self.checkpoint(points)
            self.recovery_points = points

    def _take_clean_mark(self) -> bool:
        path = self.file(files.CLEAN_SHUTDOWN)
        if not self._fs.exists(path):
            return False
        self._fs.remove(path)
        self._fs.sync_dir(self.path)
        return True

    def checkpoint(self, points: Mapping[tuple[str, int], int]) -> None:
        """Write the recovery points. Raises OSError."""
        path, data = self.file(files.RECOVERY_POINTS), files.encode_offsets(points)
        files.write_whole(self._fs, path, data, reserve=self.reserve)

    def mark_clean(self) -> None:
        """Write the mark of an orderly shutdown: all logs end at their recovery points. Raises OSError."""
        files.write_whole(self._fs, self.file(files.CLEAN_SHUTDOWN), _CLEAN)

    def close(self) -> None:
        """Release the lock and the leader epoch."""
        if self._claim is not None:
            self._claim.close()
        self._lock.close()


def new_id() -> bytes:
    """16 random bytes, not all zero, whose text form does not begin with a dash, as Kafka requires."""
    while True:
        value = uuid.uuid4().bytes
        if not files.encode_uuid(value).startswith("-"):
            return value


def new_id_text() -> str:
    """The text form of a new id."""
    return files.encode_uuid(new_id())


# -- partition removal -----------------------------------------------------------------------------
# Removes partition directories, and at a start finishes what a crash interrupted.
#
# It touches only files that a broker makes: the data directory may hold others too. It does not remove a
# directory with records of an unknown partition either: `DataDirError`.


_PARTITION = re.compile(r"[a-zA-Z0-9._-]+-\d+")
_REMOVED = re.compile(_PARTITION.pattern + r"\.[0-9a-f]{32}" + files.DELETED)
_OURS = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.(cleaned|swap|deleted))?"
    rf"|{files.PARTITION_METADATA}|{files.LEADER_EPOCHS}"
)
_WRITTEN_WHOLE = (
    META,
    REGISTRY,
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
        listing = os.path.join(root, REGISTRY)
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
