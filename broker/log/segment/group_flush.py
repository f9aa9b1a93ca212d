"""Group flush: makes many appended batches durable with one fdatasync.

A partition with unsynced bytes is marked. Worker threads sync the files of marked partitions, several
partitions at once. Batches appended meanwhile wait for the next sync of their partition. When a sync is done
the partition moves its high watermark, which releases waiting acknowledgements and readers.

If the disk is fast and few partitions are marked (see `QUICK`), the event loop syncs by itself: passing the
work to a thread and back would then cost more time than the sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple, Protocol

from eoslog.broker.config import FlushMode
from eoslog.broker.ports.ports import File

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
