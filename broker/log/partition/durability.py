"""Up to where a log is durable, and who waits for that; what becomes of it when a sync fails.

All calls come from one thread, the event loop's; only the syncs of the group flush run beside it.

The high watermark is the end of what readers see: with flush=fsync the part that survives a power loss,
with flush=os the end of the log. Once a sync or the taking back of a write has failed the partition is
offline, until the log can be read back from a disk that works again (`Partition.begin_return`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NoReturn

from eoslog.broker.log.partition.log import Log
from eoslog.broker.log.partition.watch import Watch
from eoslog.broker.log.segment.flush import GroupFlush, Job
from eoslog.broker.log.segment.segment import Segment

_LOG = logging.getLogger(__name__)


class Durability:
    """Of one log; to the group flush it is the partition (`flush.Flushable`)."""

    def __init__(self, log: Log, flush: GroupFlush, watch: Watch) -> None:
        """All segments that the log has now are synced."""
        self._log, self._flush, self._watch = log, flush, watch
        self.lazy = flush.mode == "os"
        self.begin()

    def begin(self) -> None:
        """All that the log holds has been read from the disk."""
        self.high_watermark = self._log.end
        self.recovery_point = self._log.end  # all below is durable
        self.synced_size = (
            self._log.segments.active.size if len(self._log.segments) else 0
        )  # of the active one
        self._rolled: list[Segment] = []  # since the last flush
        self._syncing: tuple[Segment, int]  # active segment and its size when the running flush began
        self._to_sync: list[Job] = []  # beside the active segment's file

    def __str__(self) -> str:
        return str(self._log)

    async def wait(self, offset: int) -> None:
        """Return when the record at `offset` and all before it are durable under the flush mode.

        Raises KafkaError KAFKA_STORAGE_ERROR if the disk failed, UNKNOWN_TOPIC_OR_PARTITION if the
        partition was removed meanwhile, ValueError if nothing was written at `offset`.
        """
        self._log.check_online()
        if offset < self.high_watermark:
            return
        if offset >= self._log.end:
            raise ValueError(f"partition {self} ends at {self._log.end}: not at {offset}")
        await self._watch.wait(offset)

    # -- what was written ----------------------------------------------------------------------

    def written(self) -> None:
        """There is more in the log than before."""
        if self.lazy:
            self._advance()
        else:
            self._flush.mark(self)

    def seal(self, jobs: Sequence[Job]) -> None:
        """Sync, in this order, the files of the active segment: another one takes its place.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        sealing = [*self._to_sync, *jobs]
        if self.lazy:
            self._to_sync = sealing
            self._flush.mark(self)
        else:
            # Only the active segment may hold unsynced bytes, else a crash could tear a hole into the log.
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
        """A new segment, which is empty, has taken the place of this one."""
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
        for old in rolled:  # no thread syncs them now
            old.seal()
        segment, size = self._syncing
        if segment is self._log.segments.active:
            self.synced_size = size
        self.recovery_point = max(self.recovery_point, offset)
        if not self.lazy:
            self._advance()

    def flush_now(self) -> None:
        """Make all that is written durable, in this thread."""
        self._flush.flush_now(self)

    def _advance(self) -> None:
        """Move the high watermark, let go who waits for it."""
        mark = self._log.end if self.lazy else self.recovery_point
        if mark == self.high_watermark:
            return
        self.high_watermark = mark
        self._watch.passed(mark)

    # -- failures and the end ------------------------------------------------------------------

    def _sync_failed(self, error: Exception) -> None:
        """Bytes that a failed sync left behind must never look good again, though the kernel may say so.

        They were shown to nobody, so they are cut off where that is still possible.
        """
        text = f"sync failed ({error!r}); nothing after offset {self.recovery_point} was acknowledged"
        if not self.lazy:
            try:
                self._log.segments.active.file.truncate(self.synced_size)
            except OSError as second:
                text += f"; cutting that off failed too ({second})"
        self._go_offline(text)

    def fail(self, reason: str) -> NoReturn:
        """The disk has left something half done: nothing can be trusted until it was read again."""
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
        """Do `action`, which closes files, as soon as no worker thread holds the partition's files."""
        self._flush.when_free(self, action)

    def close(self) -> None:
        """The log was closed: who waits is told, and its files go when they are free."""
        self._flush.forget(self)
        self._watch.refuse(self._log.gone())
        self.when_free(self._log.segments.close)
