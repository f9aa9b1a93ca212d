"""Files of the data directory with one offset for each partition, in Kafka's format.

`log-start-offset-checkpoint`  where each log begins. Written durably before records below are removed or
                               hidden from readers: whatever a crash leaves of the removed segments, no
                               deleted record is visible again. A log without an entry begins at 0.
`cleaner-offset-checkpoint`    up to where each log is compacted. If it is lost, no log counts as compacted.
                               A log with an entry, even 0, may have gaps: its compaction has begun. If the
                               file cannot be read, that is assumed of every compacted topic's logs.
"""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import FileSystem


class OffsetCheckpoint:
    """One of these files."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Read the file at `path`, if it exists. Raises BadFile, OSError."""
        self._fs, self._path = fs, path
        self._offsets: dict[tuple[str, int], int] = {}
        if fs.exists(path):
            self._offsets = files.decode_offsets(files.read_whole(fs, path), path)

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
        files.write_whole(self._fs, self._path, files.encode_offsets(offsets))
        self._offsets = offsets


@dataclass(frozen=True)
class Checkpoints:
    """Both files of a data directory."""

    starts: OffsetCheckpoint
    cleaned: OffsetCheckpoint
    cleaned_forgotten: bool = False
    """The cleaner offsets were lost: any part of a log may have been compacted."""
