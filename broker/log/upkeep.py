"""Periodic work on all logs: retention, removal of unused files, saving progress for the next start, bringing
back partitions that a failed disk took offline.

If the disk fails, the partition is logged and left as it is. The next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from eoslog.broker.log.compaction import DirtyRatio
from eoslog.broker.log.durability import Unchecked
from eoslog.broker.log.recovery import DamagedLog
from eoslog.broker.log.reserve import READY_BYTES, Reserve
from eoslog.broker.log.scan import BODIES_CHUNK, DamagedBatch, batches, check_follows
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.compaction import SealedSegment
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.log.segment import Segment
    from eoslog.broker.ports import Clock, FileSystem

logger = logging.getLogger(__name__)

REMOVE_INTERVAL_MS = 10_000
"""How often unused files are removed, and on a full disk all that retention allows."""

BUSY_INTERVAL_MS, BUSY, IDLE = 1000, 64 << 20, 1 << 20
"""`save_progress` is called at this interval with `BUSY` bytes, and with `IDLE` bytes at each checkpoint."""

RETURN_INTERVAL_MS = 5000
"""How often the broker tries to bring offline partitions back."""

T = TypeVar("T")
Partitions = Callable[[], Iterable["Partition"]]


class Upkeep:
    """Runs on the event loop, which can do other work between two partitions."""

    def __init__(
        self,
        partitions: Partitions,
        clock: Clock,
        free: Callable[[], int] = lambda: READY_BYTES,
        reserve: Reserve | None = None,
    ) -> None:
        """`partitions` returns all partitions that exist at the time, `free` the bytes of the disk that are
        free. It may raise OSError."""
        self._partitions, self._clock, self._free, self._reserve = partitions, clock, free, reserve
        self._refusals: dict[Partition, str] = {}  # why each is still offline, as last logged
        self._kept: dict[Partition, str] = {}  # why what retention allows is still there, as last logged

    async def retain(self) -> None:
        """Remove the segments that retention allows. Called every log.retention.check.interval.ms."""
        kept: dict[Partition, str] = {}
        for partition in list(self._partitions()):
            try:
                job = partial(partition.retain, self._clock.now_ms())
                removed = job() if self._reserve is None else self._reserve.lend(job)
            except (KafkaError, OSError) as error:
                kept[partition] = str(error)
                if self._kept.get(partition) != str(error):
                    text = "partition %s: segments past retention are still there: %s. Tried again each %s s"
                    logger.warning(text, partition, error, REMOVE_INTERVAL_MS // 1000)
                continue
            if removed:
                if self._is_full():  # so that the next partition needs no reserve
                    self._remove_of(partition, at_once=True)
                await asyncio.sleep(0)
        for partition in self._kept.keys() - kept.keys():
            logger.info("partition %s: segments past retention are removed again", partition)
        self._kept = kept

    async def save_progress(self, least: int) -> bool:
        """Save the progress of each log of which a start after a crash would read `least` bytes or more.

        Returns whether there was one. Write the recovery points afterwards: a start trusts only what is below
        them.
        """
        busy = [partition for partition in self._partitions() if partition.progress.unchecked >= least]
        for partition in busy:
            try:
                job = partition.progress.begin_saving()
                await _in_thread(job)
                partition.progress.end_saving()
            except (KafkaError, OSError) as error:
                partition.progress.saving_failed()
                logger.error("partition %s: a start after a crash will read more of it: %s", partition, error)
        return bool(busy)

    async def remove_files(self) -> None:
        """Remove the files of segments that left the log file.delete.delay.ms ago.

        On a full disk nothing waits: neither for this delay, nor for log.retention.check.interval.ms. What
        could not be removed before waits as little.
        """
        full = self._is_full()
        self._remove(at_once=full)
        if full or self._kept:
            await self.retain()
            self._remove(at_once=True)
        if self._reserve is not None:
            self._reserve.fill()

    def _is_full(self) -> bool:
        try:
            return self._free() < READY_BYTES
        except OSError as error:
            logger.error("how full the disk is cannot be read: %s", error)
            return False

    def _remove(self, *, at_once: bool) -> None:
        for partition in list(self._partitions()):
            self._remove_of(partition, at_once=at_once)

    def _remove_of(self, partition: Partition, *, at_once: bool) -> None:
        try:
            partition.remove_files(self._clock.now_ms(), at_once=at_once)
        except OSError as error:
            logger.error("partition %s: cannot remove a file of a removed segment: %s", partition, error)

    async def bring_back(self, on_return: Callable[[Partition], None]) -> None:
        """Try to reopen offline partitions. `on_return` is called before anything else sees one online.

        Called every `RETURN_INTERVAL_MS`. A log that is found damaged stays offline until the next start.
        """
        for partition in [p for p in self._partitions() if p.may_return and not p.closed]:
            try:
                job = partition.begin_return(self._clock.now_ms())
                if job is None:
                    continue
                found = await _in_thread(job)
            except (DamagedLog, DamagedBatch) as error:
                partition.stay_offline(str(error))
            except OSError as error:
                self._stays(partition, error)
            else:
                partition.end_return(found)
                self._refusals.pop(partition, None)
                if not partition.closed:
                    on_return(partition)
                if not partition.closed and partition.offline is None:
                    logger.warning(
                        "partition %s is back: its log was read again and ends at offset %d",
                        partition, partition.log_end_offset,
                    )  # fmt: skip
        self._refusals = {p: text for p, text in self._refusals.items() if p.may_return and not p.closed}

    def _stays(self, partition: Partition, error: OSError) -> None:
        """Log why the partition is still offline, unless that was the last thing logged about it."""
        if self._refusals.get(partition) != str(error):
            self._refusals[partition] = str(error)
            logger.warning("partition %s is still offline: %s", partition, error)


async def _in_thread(job: Callable[[], T]) -> T:
    """Run `job` to its end even if this task is cancelled: once the broker has released its lock, none of its
    threads may touch files of the next broker."""
    running = asyncio.get_running_loop().run_in_executor(None, job)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


# -- compaction ------------------------------------------------------------------------------------
# Runs compaction: picks the log that needs it most, does the work in a thread, puts the result into the log.
#
# A run that fails leaves the log as it was. The error is logged once, and the next round tries again.


class Cleaner:
    """Does one run at a time, in one thread, which the first run starts."""

    def __init__(self, fs: FileSystem, partitions: Partitions, clock: Clock, config: BrokerConfig) -> None:
        """`partitions` returns all partitions that exist at the time."""
        self._fs, self._partitions, self._clock, self._config = fs, partitions, clock, config
        self._stop = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._failed: set[Partition] = set()

    async def clean(self) -> None:
        """Compact all logs that need it, if log.cleaner.enable is set. Called each log.cleaner.backoff.ms."""
        if not self._config.storage.cleaner_enable:
            return
        done: set[Partition] = set()
        self._failed = {partition for partition in self._failed if not partition.closed}
        while (partition := self._dirtiest(done)) is not None and not self._stop.is_set():
            done.add(partition)
            try:
                await self._run(partition)
            except (DamagedBatch, CorruptBatch, KafkaError, ValueError, OSError) as error:
                self._log_once(partition, error)
            else:
                self._failed.discard(partition)

    def _dirtiest(self, done: set[Partition]) -> Partition | None:
        """The partition, not among `done`, that needs compaction most; None if none does."""
        found: list[tuple[DirtyRatio, Partition]] = []
        for partition in self._partitions():
            if partition in done:
                continue
            try:
                dirty_ratio = partition.compacting.dirty_ratio(self._clock.now_ms())
            except (DamagedBatch, OSError) as error:
                done.add(partition)
                self._log_once(partition, error)
            else:
                if dirty_ratio is not None:
                    found.append((dirty_ratio, partition))
        return max(found, key=lambda entry: entry[0])[1] if found else None

    def _log_once(self, partition: Partition, error: Exception) -> None:
        text = str(error) or repr(error)
        level = logging.DEBUG if partition in self._failed or partition.closed else logging.ERROR
        logger.log(level, "partition %s is not compacted, its log is unchanged: %s", partition, text)
        self._failed.add(partition)

    async def _run(self, partition: Partition) -> None:
        from eoslog.broker.log.cleaning import CleaningRun, CleaningStopped

        plan = partition.compacting.plan(self._clock.now_ms())
        run = CleaningRun(self._fs, plan, self._config.storage.cleaner_dedupe_buffer_size, self._stop)
        loop = asyncio.get_running_loop()
        pool = self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        try:
            end = await loop.run_in_executor(pool, run.map)
            for group in plan.groups:
                if group[0].segment.base_offset >= end:
                    break
                new = await loop.run_in_executor(pool, run.clean, group)
                if new is not None and not self._take_over(partition, new, group):
                    return
        except CleaningStopped:
            return
        if not partition.closed:
            partition.compacting.cleaned_up_to(end)
            before = sum(source.size for source in plan.sources)
            logger.info(
                "partition %s is compacted up to offset %d; before, that was %d bytes", partition, end, before
            )

    def _take_over(self, partition: Partition, new: Segment, group: list[SealedSegment]) -> bool:
        try:
            taken = partition.compacting.take_over(new, group, self._clock.now_ms())
        except OSError:
            partition.compacting.drop_cleaned(new)
            raise
        if not taken:
            partition.compacting.drop_cleaned(new)
        return taken

    def close(self) -> None:
        """Stop the run, if there is one. The next start removes what it wrote."""
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown()


# -- scrub -----------------------------------------------------------------------------------------
# Looks for damage in the segments that a start does not read: after an orderly shutdown all of them, after a
# crash those before the recovery point.
#
# Each segment is read once in a run of the broker, slowly and in a thread, and every batch's CRC, order and
# offsets are checked. Until then each read checks the bytes that it reads (`Segments.read`), so readers get
# an error at once. The scrub finds damage where nobody reads, and saves readers the checks.


SCRUB_INTERVAL_MS = 10_000
"""How often the scrub looks for unchecked segments; also the time from the start to the first scrub."""


class ScrubStopped(Exception):
    """The scrub was stopped before it was done."""


def check(fs: FileSystem, one: Unchecked, pause: Pause) -> None:
    """Read a segment and check its batches. Raises DamagedBatch, OSError, ScrubStopped."""
    file, before, paused = fs.open(one.path), one.base, 0
    try:
        for position, header, _ in batches(file, 0, one.size):
            check_follows(one.path, position, header, before, gaps=one.gaps)
            before = header.next_offset
            if position >= paused + BODIES_CHUNK:
                pause(position - paused)
                paused = position
    finally:
        file.close()
    if one.end is not None and before < one.end:
        reason = f"offset {before} is missing, the file ends before it"
        raise DamagedBatch(one.path, one.size, reason)
    pause(one.size - paused)


class Pause:
    """Limits reading to a rate. Called after each piece that was read. Raises Stopped."""

    def __init__(self, bytes_per_second: int, stop: threading.Event) -> None:
        self._rate, self._stop = bytes_per_second, stop
        self._due = time.monotonic()

    def __call__(self, size: int) -> None:
        """Wait as long as reading `size` bytes may take at the rate."""
        now = time.monotonic()
        self._due = max(self._due, now - 1) + size / self._rate
        if self._stop.wait(max(0.0, self._due - now)):
            raise ScrubStopped


class Scrubber:
    """Checks one segment at a time, in one thread, which the first one starts."""

    def __init__(self, fs: FileSystem, partitions: Partitions, config: BrokerConfig) -> None:
        """`partitions` returns all partitions that exist at the time."""
        self._fs, self._partitions, self._config = fs, partitions, config
        self._stop = threading.Event()
        self._pool: ThreadPoolExecutor | None = None
        self._told = False  # what the first pass has found

    async def scrub(self) -> None:
        """Check all unchecked segments. Called every `SCRUB_INTERVAL_MS`; does nothing if
        log.scrub.bytes.per.second is 0."""
        rate = self._config.storage.scrub_bytes_per_second
        if not rate:
            return
        began, segments, size, damaged = time.monotonic(), 0, 0, 0
        pause = Pause(rate, self._stop)
        for partition in list(self._partitions()):
            for segment, one in partition.unchecked_segments():
                try:
                    damaged += not await self._check(partition, segment, one, pause)
                except ScrubStopped:
                    return
                segments, size = segments + 1, size + one.size
        if segments:
            # The first pass says that what a start left unread is checked; later ones have a segment or two.
            logger.log(
                logging.DEBUG if self._told else logging.INFO,
                "%d segments, %d bytes were read and checked in %.1f s: %d damaged",
                segments, size, time.monotonic() - began, damaged,
            )  # fmt: skip
            self._told = True

    async def _check(self, partition: Partition, segment: Segment, one: Unchecked, pause: Pause) -> bool:
        """Whether the segment is undamaged, or no longer in the log."""
        pool = self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="scrub")
        try:
            await asyncio.get_running_loop().run_in_executor(pool, check, self._fs, one, pause)
        except (DamagedBatch, OSError) as error:
            if not partition.has(segment):
                return True
            segment.damage = str(error)
            logger.error(
                "partition %s is damaged: %s. Readers get an error there; see operating.md#damage",
                partition, error,
            )  # fmt: skip
            return False
        segment.checked = True
        return True

    def close(self) -> None:
        """Stop the scrub, if it is running."""
        self._stop.set()
        if self._pool is not None:
            self._pool.shutdown()
