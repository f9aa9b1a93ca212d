"""Periodic work on all logs: retention, removal of unused files, saving progress for the next start, bringing
back partitions that a failed disk took offline.

If the disk fails, the partition is logged and left as it is. The next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from eoslog.broker.log.recovery.recovery import DamagedLog
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition.partition import Partition
    from eoslog.broker.ports.ports import Clock

logger = logging.getLogger(__name__)

REMOVE_INTERVAL_MS = 10_000
"""How often unused files are removed."""

BUSY_INTERVAL_MS, BUSY, IDLE = 1000, 64 << 20, 1 << 20
"""`save_progress` is called at this interval with `BUSY` bytes, and with `IDLE` bytes at each checkpoint."""

RETURN_INTERVAL_MS = 5000
"""How often the broker tries to bring offline partitions back."""

T = TypeVar("T")
Partitions = Callable[[], Iterable["Partition"]]


class Upkeep:
    """Runs on the event loop, which can do other work between two partitions."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        """`partitions` returns all partitions that exist at the time."""
        self._partitions, self._clock = partitions, clock
        self._refusals: dict[Partition, str] = {}  # why each is still offline, as last logged

    async def retain(self) -> None:
        """Remove the segments that retention allows. Called every log.retention.check.interval.ms."""
        for partition in list(self._partitions()):
            try:
                removed = partition.retain(self._clock.now_ms())
            except (KafkaError, OSError) as error:
                logger.error(
                    "partition %s: segments past retention could not be removed: %s", partition, error
                )
                continue
            if removed:
                await asyncio.sleep(0)

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
        """Remove the files of segments that left the log file.delete.delay.ms ago."""
        for partition in list(self._partitions()):
            try:
                partition.remove_files(self._clock.now_ms())
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
