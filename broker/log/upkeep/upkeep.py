"""What is done to all logs now and then: retention, removal of files out of use, progress for the next start,
the return of what a failing disk has taken offline.

A partition whose disk fails is logged and left as it is; the next round tries again.
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

_LOG = logging.getLogger(__name__)

REMOVE_INTERVAL_MS = 10_000
"""How often files that are out of use are looked for."""

BUSY_INTERVAL_MS, BUSY, IDLE = 1000, 64 << 20, 1 << 20
"""`save_progress` is called at this interval for so many bytes, and with each checkpoint for fewer."""

RETURN_INTERVAL_MS = 5000
"""How often partitions that are offline are looked at: whether the disk works again."""

T = TypeVar("T")
Partitions = Callable[[], Iterable["Partition"]]


class Upkeep:
    """All on the event loop, which goes on with other things between two partitions."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        """`partitions` gives all that exist when it is called."""
        self._partitions, self._clock = partitions, clock
        self._refusals: dict[Partition, str] = {}  # why each is offline still, as it was logged last

    async def retain(self) -> None:
        """Remove what retention lets go: each log.retention.check.interval.ms."""
        for partition in list(self._partitions()):
            try:
                removed = partition.retain(self._clock.now_ms())
            except (KafkaError, OSError) as error:
                _LOG.error("partition %s keeps segments that should go: %s", partition, error)
                continue
            if removed:
                await asyncio.sleep(0)

    async def save_progress(self, least: int) -> bool:
        """Save what spares a start after a crash the reading of `least` bytes of a log; True if any was.

        The recovery points are to be written after it, as only what is below them will be trusted.
        """
        busy = [partition for partition in self._partitions() if partition.progress.unchecked >= least]
        for partition in busy:
            try:
                job = partition.progress.begin_saving()
                await _in_thread(job)
                partition.progress.end_saving()
            except (KafkaError, OSError) as error:
                partition.progress.saving_failed()
                _LOG.error("partition %s: a start after a crash will read more of it: %s", partition, error)
        return bool(busy)

    async def remove_files(self) -> None:
        """Remove the files of segments that went file.delete.delay.ms ago."""
        for partition in list(self._partitions()):
            try:
                partition.remove_files(self._clock.now_ms())
            except OSError as error:
                _LOG.error("partition %s: a file of a removed segment stays for now: %s", partition, error)

    async def bring_back(self, on_return: Callable[[Partition], None]) -> None:
        """Try to open again what is offline; `on_return` is called before anybody else sees it online.

        Each `RETURN_INTERVAL_MS`. A log that turns out to be damaged stays offline until the next start.
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
                    _LOG.warning(
                        "partition %s is back: its log was read again and ends at offset %d",
                        partition, partition.log_end_offset,
                    )  # fmt: skip
        self._refusals = {p: text for p, text in self._refusals.items() if p.may_return and not p.closed}

    def _stays(self, partition: Partition, error: OSError) -> None:
        """Say why, unless that was said before."""
        if self._refusals.get(partition) != str(error):
            self._refusals[partition] = str(error)
            _LOG.warning("partition %s is offline still: %s", partition, error)


async def _in_thread(job: Callable[[], T]) -> T:
    """Run it to its end, also if we are cancelled: when the broker has ended and given its lock back, nothing
    of it may touch a file that is the next one's."""
    running = asyncio.get_running_loop().run_in_executor(None, job)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
