"""The state that all parts of a partition share: its identity, its segments, where its log begins and ends,
and whether it can be used."""

from __future__ import annotations

import os

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.checkpoint import Checkpoints
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.segment.results import PartitionPlace
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.segments import Segments
from eoslog.broker.ports.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError


class Log:
    """See the head of this file. Offsets count records."""

    def __init__(
        self,
        fs: FileSystem,
        place: PartitionPlace,
        settings: LogSettings,
        checkpoints: Checkpoints,
        segments: list[Segment],
        leader_epoch: int,
    ) -> None:
        self.topic, self.index, self.topic_id, self.directory = place
        self.fs, self.settings, self.checkpoints = fs, settings, checkpoints
        self.leader_epoch = leader_epoch  # of all batches written in this run of the broker
        self.offline: str | None = None  # the reason, if the partition is offline
        self.may_return = False  # may come back online: the disk failed, but no damage is known
        self.closed = False
        self.begin(segments)

    def begin(self, segments: list[Segment]) -> None:
        """Take start and end of the log from its files."""
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
        """Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION if it is closed, KAFKA_STORAGE_ERROR if offline."""
        if self.closed:
            raise self.gone()
        if self.offline is not None:
            raise self.storage_error()

    def gone(self) -> KafkaError:
        """The error for requests to a closed partition."""
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")

    def storage_error(self) -> KafkaError:
        """The error for requests to an offline partition."""
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self} is offline: {self.offline}")

    @property
    def has_gaps(self) -> bool:
        """Whether compaction may have removed records. Nothing else leaves gaps between batches."""
        return self.checkpoints.cleaned.knows(self.topic, self.index)

    def begin_at(self, offset: int) -> None:
        """Move the log's start up to `offset`, durably. Raises OSError; then the start is unchanged."""
        if offset > self.start:
            self.checkpoints.starts.put(self.topic, self.index, offset)
            self.start = offset

    def path(self, offset: int, suffix: str) -> str:
        """The path of the file with this suffix that begins at `offset`."""
        return os.path.join(self.directory, files.offset_name(offset, suffix))
