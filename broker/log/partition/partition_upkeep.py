"""What a partition does to what it already holds: retention, deleted records, changed settings.

Whatever removes records moves the log's start first, durably (`checkpoint`), then for readers, and only then
touches files: a crash at any point leaves no deleted record visible and no hole. Files are renamed to
`.deleted` and removed some time later, or at the next start.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from eoslog.broker.log.partition.partition_reads import PartitionReads
from eoslog.broker.log.partition.retention import Span, expendable
from eoslog.broker.log.segment import files, snapshot
from eoslog.broker.log.segment.flush import sync_and_close
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.settings import LogSettings
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)

HIGH_WATERMARK = -1
"""Stands for the high watermark in `delete_records`."""


class PartitionUpkeep(PartitionReads):
    """The upkeep part."""

    def reconfigure(self, settings: LogSettings) -> None:
        """Take over changed settings; what is written from now on obeys them."""
        self.settings = settings
        self._roll_after_ms = self._jittered()

    @property
    def size(self) -> int:
        """Bytes of all segments' record batches."""
        return sum(segment.size for segment in self._log)

    # -- deleted records -----------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """Delete all records below `offset` (-1: the high watermark); answers the log's start.

        It is durable when this returns. An offset below the log's start changes nothing. Files go with
        the next `retain`. Raises KafkaError POLICY_VIOLATION for a topic that is only compacted,
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if self.settings.compacted and not self.settings.deleted:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self} cannot be deleted: cleanup.policy of {self.topic} is compact, not delete",
            )
        wanted = self.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records of {self} can be deleted up to offset {self.high_watermark}, its high watermark, "
                f"not up to {offset}",
            )
        try:
            self._begin_at(wanted)
        except OSError as error:
            _LOG.error("partition %s: no record was deleted: %s", self, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self}: no record was deleted: {error}"
            ) from error
        return self.log_start_offset

    def _begin_at(self, offset: int) -> None:
        """Move the log's start, durably. Raises OSError; it then stays where it was."""
        if offset > self.log_start_offset:
            self._checkpoints.starts.put(self.topic, self.index, offset)
            self.log_start_offset = offset

    # -- progress that a start after a crash builds on ------------------------------------------

    @property
    def unchecked(self) -> int:
        """Bytes that such a start would have to read again, about."""
        return self._appended - self._checked

    def begin_progress(self) -> Callable[[], None]:
        """Save the active segment's indexes and a snapshot; the job that is answered makes them durable.

        The job may run in any thread. Raises OSError, as does the job: then call `progress_failed`.
        """
        self._check_online()
        self._in_progress = True
        self._checked, active = self._appended, self._log.active
        path = self._path(self.log_end_offset, files.SNAPSHOT)
        self._snapshots = [*self._snapshots[-1:], self.log_end_offset]
        data = snapshot.encode(self._producers.all())
        syncs = [active.transactions.sync, *(sync_and_close(file) for file in active.save_indexes())]

        def job() -> None:
            for sync in syncs:
                sync()
            # Not under the name that a roll at this very offset uses at the same time.
            files.write_whole(self._fs, path, data, temporary=path + ".progress" + files.TEMPORARY)

        return job

    def end_progress(self) -> None:
        """The job is done: older snapshots of the active segment are not needed any more. Raises OSError."""
        self._in_progress = False
        if not self._closed and self.offline is None:
            keep = {segment.base_offset for segment in self._log} | set(self._snapshots)
            snapshot.drop_others(self._fs, self.directory, keep)

    def progress_failed(self) -> None:
        """What became of the files is not known: the next time they are written whole."""
        self._in_progress = False
        if not self._closed and self.offline is None:
            self._log.active.rewrite_indexes()

    # -- retention -----------------------------------------------------------------------------

    def retain(self, now_ms: int) -> int:
        """Remove the segments that retention lets go, and those below the log's start; answers how many.

        Raises KafkaError KAFKA_STORAGE_ERROR and OSError; the log is then as it was, or begins later.
        """
        if self.offline is not None or self._closed:
            return 0
        count = expendable(
            self._spans(), self.settings, now_ms, self.log_start_offset, self.last_stable_offset
        )
        if count == 0:
            return 0
        if count == len(self._log):
            self._roll()
        start = self._log[count].base_offset
        self._begin_at(start)
        gone = self._log.drop_first(count)
        _LOG.info("partition %s begins at %d now: %d segments removed", self, self.log_start_offset, count)
        self._discard(gone, now_ms)
        return count

    def _spans(self) -> list[Span]:
        """The segments, oldest first, as retention sees them."""
        bases = [segment.base_offset for segment in self._log]
        timed = self.settings.deleted and self.settings.retention_ms >= 0
        return [
            Span(end, segment.size, segment.newest() if timed else -1)
            for segment, end in zip(self._log, [*bases[1:], self.log_end_offset], strict=True)
        ]

    def _discard(self, segments: list[Segment], now_ms: int) -> None:
        """Take the files of segments, which are not in the log any more, out of the way, the oldest first."""
        due = now_ms + self.settings.file_delete_delay_ms
        for segment in segments:
            self._flush.when_free(self, segment.retire)
            for path in (*segment.paths(), self._path(segment.base_offset, files.SNAPSHOT)):
                if self._fs.exists(path):
                    self._fs.rename(path, path + files.REMOVED)
                    self._removed.append((due, path + files.REMOVED))
        self._fs.sync_dir(self.directory)

    def _path(self, offset: int, suffix: str) -> str:
        return os.path.join(self.directory, files.offset_name(offset, suffix))

    def remove_files(self, now_ms: int) -> None:
        """Remove the files of segments that were taken out of the way long enough ago. Raises OSError."""
        if self._closed:
            return
        while self._removed and self._removed[0][0] <= now_ms:
            path = self._removed[0][1]
            if self._fs.exists(path):
                self._fs.remove(path)
            del self._removed[0]
