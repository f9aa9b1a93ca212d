"""The log that all parts of a partition share, up to where it is durable, and who waits for that.

All calls come from the event loop's thread; only the syncs of the group flush run in other threads.

Readers see records up to the high watermark. With flush=fsync that is the end of what survives a power loss,
with flush=os it is the end of the log. After a failed sync, or a write that failed and could not be undone,
the partition is offline until its log can be read back from a working disk (`Partition.begin_return`).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import NoReturn

from eoslog.broker.log.segment import files
from eoslog.broker.log.segment.checkpoint import Checkpoints
from eoslog.broker.log.segment.group_flush import GroupFlush, Job
from eoslog.broker.log.segment.log_settings import LogSettings
from eoslog.broker.log.segment.results import PartitionPlace
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.segments import Segments
from eoslog.broker.ports.ports import FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError


class Log:
    """A log's identity, segments, begin and end, and whether it can be used. Offsets count records."""

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


logger = logging.getLogger(__name__)


class Durability:
    """Tracks up to where one log is durable, and takes it offline when a sync fails.

    The group flush uses it as the partition (`flush.Flushable`).
    """

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
        logger.error(
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


class AppendWaiters:
    """Waiters until an offset is durable, and callbacks after any change. All on the event loop's thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._callbacks: dict[Callable[[], None], None] = {}

    def wait(self, offset: int) -> asyncio.Future[None]:
        """A future that is done when `passed` is called with a higher offset. Needs the running loop."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, future))
        return future

    def passed(self, mark: int) -> None:
        """Release those who wait for an offset below `mark`, and call all callbacks."""
        if self._waiting:
            done = [future for offset, future in self._waiting if offset < mark]
            self._waiting = [entry for entry in self._waiting if entry[0] >= mark]
            for future in done:
                if not future.done():
                    future.set_result(None)
        self.notify()

    def refuse(self, error: KafkaError) -> None:
        """Raise the error for all who wait, and call all callbacks."""
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(error)
        self.notify()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each change from now on."""
        self._callbacks[callback] = None

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Stop calling `callback`. Does nothing if it was not subscribed."""
        self._callbacks.pop(callback, None)

    def notify(self) -> None:
        """Call all callbacks."""
        for callback in tuple(self._callbacks):
            callback()
