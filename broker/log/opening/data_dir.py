"""The data directory itself: its lock, its owner, and how the last broker left it.

`.lock`                               held by the running broker (flock), released when its process ends
`meta.properties`                     cluster id and node id, in Kafka's format
`.kafka_cleanshutdown`                exists if the last broker shut down in order
`.life-epoch`                         the leader epoch of the last run, see `epochs`
`recovery-point-offset-checkpoint`    up to which offset each partition was durable at the last check
and the files of `checkpoint`.
"""

from __future__ import annotations

import errno
import logging
import os
import uuid
from collections.abc import Mapping

from eoslog.broker.log.segment import files, leader_epochs
from eoslog.broker.log.segment.checkpoint import Checkpoints, OffsetCheckpoint
from eoslog.broker.ports.ports import Claim, FileSystem

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
            starts = OffsetCheckpoint(self._fs, self.file(files.LOG_STARTS))
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
            return Checkpoints(starts, OffsetCheckpoint(self._fs, path), cleaned_forgotten=True)
        return Checkpoints(starts, cleaned)

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
        files.write_whole(self._fs, self.file(files.RECOVERY_POINTS), files.encode_offsets(points))

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
