"""What is done to all logs now and then: retention, and the removal of files that are out of use.

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

    async def remove_files(self) -> None:
        """Remove the files of segments that went file.delete.delay.ms ago."""
        for partition in list(self._partitions()):
            try:
                partition.remove_files(self._clock.now_ms())
            except OSError as error:
                _LOG.error("partition %s: a file of a removed segment stays for now: %s", partition, error)
