"""Removes records: those that clients delete, and the oldest segments that are too large or too old together.

The log's start moves first, durably (`OffsetCheckpoint`), then for readers; only then files are touched. So
a crash at any point leaves no deleted record visible and no hole. Files are renamed to `.deleted`, and
removed some time later or at the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eoslog.broker.log import files
from eoslog.broker.log.append import ActiveSegment, PartitionProducers
from eoslog.broker.log.durability import Durability, Log
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.segment import Segment
from eoslog.protocol.errors import ErrorCode, KafkaError


class SegmentSpan(NamedTuple):
    """A segment as retention sees it. `end`: the base offset of the next segment, or the log's end."""

    end: int
    size: int
    newest: int  # ms: the largest time of its records, or of its last write if none has a time


def expendable(
    spans: Sequence[SegmentSpan], settings: LogSettings, now_ms: int, log_start: int, stable: int
) -> int:
    """How many of the oldest segments may be removed. The last span is the active segment.

    It is included only if it is not empty; the caller must roll it first. Segments go from the oldest on, if
    they are below the log's start, over its size or over its age. Only records that every reader could see
    go: nothing above the high watermark, or at or above the last stable offset. The latter is stricter than
    Kafka, which also removes records of an open transaction: its commit would then show only a part of them.
    """
    gone = 0
    while gone < len(spans) - 1 and spans[gone].end <= log_start:
        gone += 1
    if not settings.deleted:
        return gone
    most = len(spans) if spans[-1].size else len(spans) - 1
    while most > gone and spans[most - 1].end > stable:
        most -= 1
    if settings.retention_bytes >= 0:
        over = sum(span.size for span in spans[gone:]) - settings.retention_bytes
        while gone < most and over >= spans[gone].size:
            over -= spans[gone].size
            gone += 1
    if settings.retention_ms >= 0:
        while gone < most and now_ms - spans[gone].newest > settings.retention_ms:
            gone += 1
    return gone


logger = logging.getLogger(__name__)

HIGH_WATERMARK = -1
"""Means the high watermark in `delete_records`."""


class Trimming:
    """Removes deleted records, and the segments past retention."""

    def __init__(
        self,
        log: Log,
        durability: Durability,
        producers: PartitionProducers,
        tail: ActiveSegment,
        discarded: DiscardedSegments,
    ) -> None:
        self._log, self._durability, self._producers = log, durability, producers
        self._tail, self._discarded = tail, discarded

    # -- deleted records -----------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Delete all records below `offset` (-1: the high watermark), durably. Returns the log's start.

        An offset below the log's start changes nothing. The next `retain` removes the files.
        Raises KafkaError POLICY_VIOLATION for a topic that is only compacted, OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR.
        """
        self._log.check_online()
        if self._log.settings.compacted and not self._log.settings.deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self._log} cannot be deleted: cleanup.policy of {self._log.topic} is compact, "
                "not delete",
            )
        mark = self._durability.high_watermark
        wanted = mark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= mark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records of {self._log} can be deleted up to offset {mark}, its high watermark, "
                f"not up to {offset}",
            )
        try:
            self._log.begin_at(wanted)
        except OSError as error:
            logger.error("partition %s: no record was deleted: %s", self._log, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self._log}: no record was deleted: {error}"
            ) from error
        return self._log.start

    # -- retention -----------------------------------------------------------------------------

    def retain(self, now_ms: int) -> int:
        """Remove the segments past retention, and those below the log's start. Returns how many.

        Raises KafkaError KAFKA_STORAGE_ERROR and OSError; then the log is unchanged, or begins later.
        """
        if not self._log.usable:
            return 0
        count = expendable(
            self._spans(), self._log.settings, now_ms, self._log.start, self._producers.last_stable_offset
        )
        if count == 0:
            return 0
        if count == len(self._log.segments):
            self._tail.roll()
        start = self._log.segments[count].base_offset
        self._log.begin_at(start)
        gone = self._log.segments.drop_first(count)
        logger.info("partition %s now begins at %d: %d segments removed", self._log, self._log.start, count)
        self._discard(gone, now_ms)
        return count

    def _spans(self) -> list[SegmentSpan]:
        """The segments, oldest first, as retention sees them."""
        bases = [segment.base_offset for segment in self._log.segments]
        timed = self._log.settings.deleted and self._log.settings.retention_ms >= 0
        return [
            SegmentSpan(end, segment.size, self._newest(segment) if timed else 0)
            for segment, end in zip(self._log.segments, [*bases[1:], self._log.end], strict=True)
        ]

    def _newest(self, segment: Segment) -> int:
        """The largest time of its records. Those without a time age from the last write on, as in Kafka."""
        newest = segment.newest()
        return newest if newest >= 0 else self._log.fs.written_ms(segment.path)

    def _discard(self, segments: list[Segment], now_ms: int) -> None:
        """Rename the files of segments that have left the log, oldest first."""
        for segment in segments:
            self._durability.when_free(segment.retire)
            for path in (*segment.paths(), self._log.path(segment.base_offset, files.SNAPSHOT)):
                if self._log.fs.exists(path):
                    try:
                        self._log.fs.rename(path, path + files.REMOVED)
                    except OSError:  # a longer name may need room in the directory
                        self._log.fs.remove(path)
                    else:
                        self._discarded.add([path + files.REMOVED], now_ms)
        self._log.fs.sync_dir(self._log.directory)


class DiscardedSegments:
    """Files that a log no longer needs: renamed to `.deleted`, removed later or at the next start."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._files: list[tuple[int, str]] = []  # when a file may go (broker's clock, ms), and its path

    def add(self, paths: Iterable[str], now_ms: int) -> None:
        """Add files that were renamed now."""
        due = now_ms + self._log.settings.file_delete_delay_ms
        self._files += [(due, path) for path in paths]

    def remove(self, now_ms: int, *, at_once: bool) -> None:
        """Remove the files that were renamed at least file.delete.delay.ms ago, or all. Raises OSError.

        Who reads one has it open, and reads on.
        """
        if self._log.closed:
            return
        while self._files and (at_once or self._files[0][0] <= now_ms):
            path = self._files[0][1]
            if self._log.fs.exists(path):
                self._log.fs.remove(path)
            del self._files[0]
