"""What all parts of a partition look at: which one it is, its segments, where its log begins and ends, and
whether it can be used."""

from __future__ import annotations

import os

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.answers import Place
from eoslog.broker.log.segment.checkpoint import Checkpoints
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.segments import Segments
from eoslog.broker.log.segment.settings import LogSettings
from eoslog.broker.ports.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError


class Log:
    """See the head of this file. Offsets count records."""

    def __init__(
        self,
        fs: FileSystem,
        place: Place,
        settings: LogSettings,
        checkpoints: Checkpoints,
        segments: list[Segment],
        leader_epoch: int,
    ) -> None:
        self.topic, self.index, self.topic_id, self.directory = place
        self.fs, self.settings, self.checkpoints = fs, settings, checkpoints
        self.leader_epoch = leader_epoch  # of all that is written in this life
        self.offline: str | None = None  # why, if it is
        self.may_return = False  # from being offline: the disk failed, and nothing is known to be damaged
        self.closed = False
        self.begin(segments)

    def begin(self, segments: list[Segment]) -> None:
        """What the files say is what the log is."""
        self.segments = Segments(segments)
        first = segments[0].base_offset if segments else 0
        self.start = max(first, self.checkpoints.starts.get(self.topic, self.index))
        self.end = segments[-1].next_offset if segments else self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def usable(self) -> bool:
        """Whether it is neither offline nor closed."""
        return self.offline is None and not self.closed

    def check_online(self) -> None:
        """Raises KafkaError if it is not: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR."""
        if self.closed:
            raise self.gone()
        if self.offline is not None:
            raise self.storage_error()

    def gone(self) -> KafkaError:
        """What those get who ask for a partition that is closed."""
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")

    def storage_error(self) -> KafkaError:
        """What those get who ask for a partition that is offline."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self} is offline: {self.offline}")

    @property
    def has_gaps(self) -> bool:
        """Whether compaction may have taken records; nothing else leaves gaps between batches."""
        return self.checkpoints.cleaned.knows(self.topic, self.index)

    def begin_at(self, offset: int) -> None:
        """Move the log's start, durably. Raises OSError; it then stays where it was."""
        if offset > self.start:
            self.checkpoints.starts.put(self.topic, self.index, offset)
            self.start = offset

    def path(self, offset: int, suffix: str) -> str:
        """Where the file that begins at `offset` lies."""
        return os.path.join(self.directory, files.offset_name(offset, suffix))
