"""Runs compaction: picks the log that needs it most, does the work in a thread, puts the result into the log.

A run that fails leaves the log as it was. The error is logged once, and the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from eoslog.broker.log.partition.partition_compaction import DirtyRatio
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.protocol.batch import CorruptBatch
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.compaction.cleaning_plan import SealedSegment
    from eoslog.broker.log.partition.partition import Partition
    from eoslog.broker.log.segment.segment import Segment
    from eoslog.broker.log.upkeep.upkeep import Partitions
    from eoslog.broker.ports.ports import Clock, FileSystem

logger = logging.getLogger(__name__)


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
        from eoslog.broker.log.compaction.cleaning_run import CleaningRun, CleaningStopped

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
