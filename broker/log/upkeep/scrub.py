"""Looks for damage in the segments that a start does not read: after an orderly shutdown all of them, after a
crash those before the recovery point.

Each segment is read once in a run of the broker, slowly and in a thread, and every batch's CRC, order and
offsets are checked. Until then each read checks the bytes that it reads (`segments.read`), so readers get an
error at once. The scrub finds damage where nobody reads, and saves readers the checks.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from eoslog.broker.log.segment.results import Unchecked
from eoslog.broker.log.segment.scan import BODIES_CHUNK, DamagedBatch, batches, check_follows

if TYPE_CHECKING:
    from eoslog.broker.config import BrokerConfig
    from eoslog.broker.log.partition.partition import Partition
    from eoslog.broker.log.segment.segment import Segment
    from eoslog.broker.log.upkeep.upkeep import Partitions
    from eoslog.broker.ports.ports import FileSystem

logger = logging.getLogger(__name__)

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
