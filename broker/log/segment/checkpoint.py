"""Files of the data directory that hold one offset of each partition, in Kafka's format.

`log-start-offset-checkpoint`  where logs begin. Written durably before anything below is removed or refused
                               to readers, so whatever a crash leaves of the removed segments, no deleted
                               record is seen again. A log that is not in it begins at 0.
`cleaner-offset-checkpoint`    up to where logs are compacted. Lost, the whole log counts as not compacted.
                               A log that is in it, be it with 0, may have gaps: compaction has begun there.
                               If it cannot be read every log that is to be compacted counts as such a one.
"""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.broker.log.segment import files
from eoslog.broker.ports.ports import FileSystem


class OffsetCheckpoint:
    """One such file."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        """Read the file at `path`, if it is there. Raises BadFile, OSError."""
        self._fs, self._path = fs, path
        self._offsets: dict[tuple[str, int], int] = {}
        if fs.exists(path):
            self._offsets = files.decode_offsets(files.read_whole(fs, path), path)

    def get(self, topic: str, index: int) -> int:
        """The offset of a partition, 0 if it is not known here."""
        return self._offsets.get((topic, index), 0)

    def knows(self, topic: str, index: int) -> bool:
        """Whether it has the partition."""
        return (topic, index) in self._offsets

    def put(self, topic: str, index: int, offset: int) -> None:
        """Note a partition's offset, durably. Raises OSError; then it stays what it was."""
        self._save(self._offsets | {(topic, index): offset})

    def forget(self, topic: str, index: int) -> None:
        """Drop what a deleted partition of this name has left. Raises OSError."""
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
    """What was compacted is not known any more; all of it may have been."""
