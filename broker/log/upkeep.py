"""What is done to all logs now and then: retention, removal of files out of use, progress for the next start.

A partition whose disk fails is logged and left as it is; the next round tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.ports import Clock

_LOG = logging.getLogger(__name__)

REMOVE_INTERVAL_MS = 10_000
"""How often files that are out of use are looked for."""

BUSY_INTERVAL_MS, BUSY, IDLE = 1000, 64 << 20, 1 << 20
"""`save_progress` is called at this interval for so many bytes, and with each checkpoint for fewer."""

Partitions = Callable[[], Iterable["Partition"]]


class Upkeep:
    """All on the event loop, which goes on with other things between two partitions."""

    def __init__(self, partitions: Partitions, clock: Clock) -> None:
        """`partitions` gives all that exist when it is called."""
        self._partitions, self._clock = partitions, clock

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
        busy = [partition for partition in self._partitions() if partition.unchecked >= least]
        for partition in busy:
            try:
                job = partition.begin_progress()
                await asyncio.get_running_loop().run_in_executor(None, job)
                partition.end_progress()
            except (KafkaError, OSError) as error:
                partition.progress_failed()
                _LOG.error("partition %s: a start after a crash will read more of it: %s", partition, error)
        return bool(busy)

    async def remove_files(self) -> None:
        """Remove the files of segments that went file.delete.delay.ms ago."""
        for partition in list(self._partitions()):
            try:
                partition.remove_files(self._clock.now_ms())
            except OSError as error:
                _LOG.error("partition %s: a file of a removed segment stays for now: %s", partition, error)
