"""Tracks up to where a log is durable, and takes the partition offline when a sync fails.

All calls come from the event loop's thread; only the syncs of the group flush run in other threads.

Readers see records up to the high watermark. With flush=fsync that is the end of what survives a power loss,
with flush=os it is the end of the log. After a failed sync, or a write that failed and could not be undone,
the partition is offline until its log can be read back from a working disk (`Partition.begin_return`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from eoslog.broker.log.partition.append_waiters import AppendWaiters
from eoslog.broker.log.partition.log import Log
from eoslog.broker.log.segment.group_flush import GroupFlush, Job
from eoslog.broker.log.segment.segment import Segment

_LOG = logging.getLogger(__name__)


class Durability:
    """The durability of one log. The group flush uses it as the partition (`flush.Flushable`)."""

    def __init__(self, log: Log, flush: GroupFlush, watch: AppendWaiters) -> None:
        """All current segments of the log must be synced."""
        self._log, self._flush, self._watch = log, flush, watch
        self.lazy = flush.mode == "os"
        self.begin()

    def begin(self) -> None:
        """Start again: the whole log was read from the disk."""
        self.high_watermark = self._log.end
        self.recovery_point = self._log.end  # all offsets below are durable
        self.synced_size = (
            self._log.segments.active.size if len(self._log.segments) else 0
        )  # of the active one
        self._rolled: list[Segment] = []  # since the last flush
        self._syncing: tuple[Segment, int]  # active segment and its size when the running flush began
        self._to_sync: list[Job] = []  # besides the active segment's file

    def __str__(self) -> str:
        return str(self._log)

    async def wait(self, offset: int) -> None:
        """Wait until the record at `offset` and all before it are durable as the flush mode defines it.

        Raises KafkaError KAFKA_STORAGE_ERROR if the disk failed, UNKNOWN_TOPIC_OR_PARTITION if the
        partition was removed meanwhile, ValueError if nothing was written at `offset`.
        """
        self._log.check_online()
        if offset < self.high_watermark:
            return
        if offset >= self._log.end:
            raise ValueError(f"partition {self} ends at {self._log.end}, before {offset}")
        await self._watch.wait(offset)

    # -- what was written ----------------------------------------------------------------------

    def written(self) -> None:
        """Note that something was appended to the log."""
        if self.lazy:
            self._advance()
        else:
            self._flush.mark(self)

    def seal(self, jobs: Sequence[Job]) -> None:
        """Sync the files of the active segment, in this order, before a new segment replaces it.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        sealing = [*self._to_sync, *jobs]
        if self.lazy:
            self._to_sync = sealing
            self._flush.mark(self)
        else:
            # Only the active segment may have unsynced bytes: else a crash could leave a hole in the log.
            self.sync_here(sealing)
            self._to_sync = []

    def sync_here(self, jobs: Sequence[Job]) -> None:
        """Sync in this thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        try:
            for job in jobs:
                job()
        except OSError as error:
            self._sync_failed(error)
            raise self._log.storage_error() from error

    def rolled(self, old: Segment) -> None:
        """Note that a new, empty segment has replaced `old` as the active one."""
        self._rolled.append(old)
        self.synced_size = 0

    # -- syncs ---------------------------------------------------------------------------------

    def begin_flush(self) -> tuple[int, Sequence[Job]]:
        """See `flush.Flushable`."""
        active = self._log.segments.active
        jobs = [*self._to_sync, active.file.sync]
        self._to_sync = []
        self._syncing = (active, active.size)
        return self._log.end, jobs

    def end_flush(self, offset: int, error: Exception | None) -> None:
        """See `flush.Flushable`."""
        if self._log.offline is not None:
            return
        if error is not None:
            self._sync_failed(error)
            return
        rolled, self._rolled = self._rolled, []
        for old in rolled:  # no thread is syncing them now
            old.seal()
        segment, size = self._syncing
        if segment is self._log.segments.active:
            self.synced_size = size
        self.recovery_point = max(self.recovery_point, offset)
        if not self.lazy:
            self._advance()

    def flush_now(self) -> None:
        """Make everything written so far durable, in this thread."""
        self._flush.flush_now(self)

    def _advance(self) -> None:
        """Move the high watermark and release those who wait for it."""
        mark = self._log.end if self.lazy else self.recovery_point
        if mark == self.high_watermark:
            return
        self.high_watermark = mark
        self._watch.passed(mark)

    # -- failures and the end ------------------------------------------------------------------

    def _sync_failed(self, error: Exception) -> None:
        """Take the partition offline, and cut off the bytes that the failed sync covered, if possible.

        The kernel may later report these bytes as synced though they are not on the disk. No reader has seen
        them yet.
        """
        text = f"sync failed ({error!r}); nothing after offset {self.recovery_point} was acknowledged"
        if not self.lazy:
            try:
                self._log.segments.active.file.truncate(self.synced_size)
            except OSError as second:
                text += f"; truncating the file failed too ({second})"
        self._go_offline(text)

    def fail(self, reason: str) -> NoReturn:
        """Take the partition offline: a disk operation is half done, so the log must be read again first."""
        self._go_offline(reason)
        raise self._log.storage_error()

    def _go_offline(self, reason: str) -> None:
        _LOG.error(
            "partition %s goes offline: %s. It comes back when the disk works again and has room",
            self,
            reason,
        )
        self._log.offline, self._log.may_return = reason, True
        self._flush.forget(self)
        self._watch.refuse(self._log.storage_error())

    @property
    def is_busy(self) -> bool:
        """Whether a worker thread holds the partition's files."""
        return self._flush.is_busy(self)

    def when_free(self, action: Callable[[], None]) -> None:
        """Call `action`, which closes files, as soon as no worker thread holds the partition's files."""
        self._flush.when_free(self, action)

    def close(self) -> None:
        """Fail all waiters, as the log was closed, and close its files when no thread holds them."""
        self._flush.forget(self)
        self._watch.refuse(self._log.gone())
        self.when_free(self._log.segments.close)
