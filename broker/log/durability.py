"""A log up to where it is durable: what its parts share, one sync for many, and those who wait for it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple, NoReturn, Protocol, TypeVar

from eoslog.broker.config import FlushMode
from eoslog.broker.log import files
from eoslog.broker.log.files import Checkpoints
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.reserve import FOR_ENDS
from eoslog.broker.log.segment import Segment, Segments
from eoslog.broker.ports import Buffer, File, FileSystem
from eoslog.protocol.errors import ErrorCode, KafkaError

T = TypeVar("T")

# -- results ---------------------------------------------------------------------------------------
# The name of a partition, and the results of its methods.


class Appended(NamedTuple):
    """Where a batch lies. `log_append_time` is -1 unless the topic stamps records with the broker's time."""

    base_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int


class ReadResult(NamedTuple):
    """Batches as stored. The first may begin below the requested offset, the last may be cut."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None  # (producer id, first offset); None unless `committed` was given


class PartitionPlace(NamedTuple):
    """The identity of a partition, and its directory."""

    topic: str
    number: int
    topic_id: bytes
    directory: str


class Unchecked(NamedTuple):
    """The part of a segment that must still be checked: `size` bytes of a file, with the offsets from `base`
    up to, not including, `end`. `end` None: the segment is written to, and ends where the file ended. `gaps`:
    compaction may have left gaps."""

    path: str
    size: int
    base: int
    end: int | None
    gaps: bool


# -- group flush -----------------------------------------------------------------------------------
# Group flush: makes many appended batches durable with one fdatasync.
#
# A partition with unsynced bytes is marked. Worker threads sync the files of marked partitions, several
# partitions at once. Batches appended meanwhile wait for the next sync of their partition. When a sync is
# done the partition moves its high watermark, which releases waiting acknowledgements and readers.
#
# If the disk is fast and few partitions are marked (see `QUICK`), the event loop syncs by itself: passing the
# work to a thread and back would then cost more time than the sync.


Job = Callable[[], object]
OnSync = Callable[[float, bool], None]
"""Called after each sync of a partition, on the event loop's thread: seconds, and whether it failed."""

QUICK = 0.001  # seconds that the event loop may spend on syncs in one turn
MOST_TURNS = 4
"""Turns of the loop that a mark may wait for more marks, as long as each turn brings some."""

_EXPECTED = 0.002  # seconds, the assumed time of a sync before the first one
_WEIGHT = 0.125  # of the latest sync in the average


def sync_and_close(file: File) -> Job:
    """A job that syncs a file and closes it, even if the sync fails."""

    def job() -> None:
        try:
            file.sync()
        finally:
            file.close()

    return job


class Flushable(Protocol):
    """What the flush needs of a partition. Only the jobs run outside the event loop's thread."""

    def begin_flush(self) -> tuple[int, Sequence[Job]]:
        """The offset up to which the jobs make the log durable, and the jobs, to be run in order."""

    def end_flush(self, offset: int, error: Exception | None) -> None:
        """The jobs have ended. After an error the bytes that they had to sync may not be on the disk."""


class GroupFlush:
    """The one flush of a broker. `mode` "os": files are synced only at a roll and at the end, as in Kafka."""

    def __init__(self, mode: FlushMode = "fsync", threads: int = 4) -> None:
        self.mode = mode
        self.on_sync: OnSync | None = None
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dirty: dict[Flushable, None] = {}  # in the order they were marked
        self._busy: set[Flushable] = set()
        self._afterwards: list[tuple[Flushable, Callable[[], None]]] = []
        self._kicked = False
        self._marks = 0  # since the last turn of the loop
        self._turns = 0  # waited for more marks
        self._seconds = _EXPECTED  # a sync, on average
        self._idle = asyncio.Event()

    def start(self) -> None:
        """Start to flush, on the running event loop. Partitions marked earlier are flushed now."""
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="flush")
        if self._dirty:
            self._kick()

    async def stop(self) -> None:
        """Flush all marked partitions, then end the threads. Later marks wait for `flush_now`."""
        if self._pool is None:
            return
        while self._dirty or self._busy:
            self._idle.clear()
            self._kick()
            await self._idle.wait()
        self._pool.shutdown()
        self._pool = self._loop = None

    def abandon(self) -> None:
        """End the threads without flushing: for a broker that a test has killed, whose loop has stopped."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def mark(self, partition: Flushable) -> None:
        """Note that a partition has unsynced bytes. Cheap; marks within the same turn of the loop are one."""
        self._dirty[partition] = None
        self._marks += 1
        if not self._kicked and self._loop is not None:
            self._kicked = True
            self._loop.call_soon(self._gather)

    def forget(self, partition: Flushable) -> None:
        """Drop a partition's mark: it is closed or has failed."""
        self._dirty.pop(partition, None)

    def is_busy(self, partition: Flushable) -> bool:
        """Whether a worker thread holds the partition's files."""
        return partition in self._busy

    def when_free(self, partition: Flushable, action: Callable[[], None]) -> None:
        """Call `action`, which closes files, as soon as no worker thread holds the partition's files."""
        if partition in self._busy:
            self._afterwards.append((partition, action))
        else:
            action()

    def flush_now(self, partition: Flushable) -> None:
        """Flush one partition now, in this thread. No worker thread may hold its files."""
        self.forget(partition)
        offset, jobs = partition.begin_flush()
        self._end(partition, offset, _run(jobs))

    def _end(self, partition: Flushable, offset: int, synced: _Synced) -> None:
        self._seconds += (synced.seconds - self._seconds) * _WEIGHT
        if self.on_sync is not None:
            self.on_sync(synced.seconds, synced.error is not None)
        partition.end_flush(offset, synced.error)

    def _gather(self) -> None:
        """Flush once a turn of the loop has brought no more marks: batches sent in a row share a sync."""
        if self._marks and self._turns < MOST_TURNS and self._loop is not None:
            self._marks, self._turns = 0, self._turns + 1
            self._loop.call_soon(self._gather)
        else:
            self._kick()

    def _kick(self) -> None:
        self._marks = self._turns = 0
        self._kicked = False
        if self._pool is None:
            return
        due = [p for p in self._dirty if p not in self._busy]
        here = self._seconds * len(due) < QUICK
        for partition in due:
            if partition in self._dirty:  # the end of another's flush may have closed it
                self.flush_now(partition) if here else self._hand_over(partition)
        if not self._busy:
            self._idle.set()

    def _hand_over(self, partition: Flushable) -> None:
        assert self._pool is not None
        self.forget(partition)
        offset, jobs = partition.begin_flush()
        self._busy.add(partition)
        future = self._pool.submit(_run, jobs)
        future.add_done_callback(self._hand_back(partition, offset))

    def _hand_back(self, partition: Flushable, offset: int) -> Callable[[Future[_Synced]], None]:
        loop = self._loop
        assert loop is not None

        def done(future: Future[_Synced]) -> None:
            loop.call_soon_threadsafe(self._done, partition, offset, future)

        return done

    def _done(self, partition: Flushable, offset: int, future: Future[_Synced]) -> None:
        self._busy.discard(partition)
        try:
            self._end(partition, offset, future.result())
        finally:
            due = [action for owner, action in self._afterwards if owner is partition]
            self._afterwards = [entry for entry in self._afterwards if entry[0] is not partition]
            for action in due:
                action()
            self._kick()


class _Synced(NamedTuple):
    """The result of a partition's jobs, and how long they took."""

    error: Exception | None
    seconds: float


def _run(jobs: Sequence[Job]) -> _Synced:
    """Run the jobs in order until one fails. The error is returned, as the partition must handle it."""
    begun = perf_counter()
    error = None
    try:
        for job in jobs:
            job()
    except Exception as failure:  # of any kind: the bytes may not be on the disk
        error = failure
    return _Synced(error, perf_counter() - begun)


# -- the log, and who waits for it -----------------------------------------------------------------
# The log that all parts of a partition share, up to where it is durable, and who waits for that.
#
# All calls come from the event loop's thread; only the syncs of the group flush run in other threads.
#
# Readers see records up to the high watermark. With flush=fsync that is the end of what survives a power
# loss, with flush=os it is the end of the log. After a failed sync, or a write that failed and could not be
# undone, the partition is offline until its log can be read back from a working disk
# (`Partition.begin_return`).


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

    def urgently(self, action: Callable[[], T]) -> T:
        """The result of `action`, which may use a part of the reserve on a full disk."""
        reserve = self.checkpoints.reserve
        return action() if reserve is None else reserve.lend(action, FOR_ENDS)

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
