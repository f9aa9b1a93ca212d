"""The broker's part of a backup: it freezes the state of its data directory at one instant, to be copied.

The client (`eoslog backup`) creates `.backup` in the data directory with a locked file `lock` in it, and
keeps the lock until it is done. The broker removes a `.backup` that is not locked. The broker links the files
of each log into it, one partition after another. Then, in one turn of its event loop, it links again what has
changed, links the small files, and notes the length of each file that is written to. Nothing is written in
that turn, so it is the instant of the backup. The client then copies the files, and of a file that is written
to only the noted length.

A broker that starts from the copy finds what `kill -9` at that instant would have left. As after a crash,
files derived from a log may be newer than the log: a start uses a transaction index only up to the last
snapshot of the producers, which is older; the sparse indexes of the active segment are not copied.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.log import files
from eoslog.broker.log.reserve import RESERVE

if TYPE_CHECKING:
    from eoslog.broker.log.partition import Partition
    from eoslog.broker.log.segment import Segment
    from eoslog.broker.log.upkeep import Partitions
    from eoslog.broker.ports import Clock, FileSystem

logger = logging.getLogger(__name__)

BACKUP_INTERVAL_MS = 500
"""How often the broker checks whether a backup is requested."""

DIRECTORY, LOCK, ANSWER = ".backup", "lock", "answer.json"
UNUSED = f"{DIRECTORY}-"
"""Prefix of directories that are not a backup yet, or no longer. A start removes those that a kill left."""
_LEFT_OUT = frozenset({".lock", files.CLEAN_SHUTDOWN, RESERVE})


class CannotBackUp(Exception):
    """No backup is possible now. The message says why."""


class _Linked(NamedTuple):
    """The files of a partition that are linked."""

    segments: list[Segment]
    aborted: bool  # whether the active segment has a transaction index


class Backups:
    """Answers requests for a backup, on the event loop."""

    def __init__(self, fs: FileSystem, root: str, partitions: Partitions, clock: Clock) -> None:
        """`root`: the data directory. `partitions` returns all partitions that exist at the time."""
        self._fs, self._root, self._partitions, self._clock = fs, root, partitions, clock
        self._place = os.path.join(root, DIRECTORY)

    async def look(self) -> None:
        """Prepare a backup if one is requested, and remove one that is done. Raises OSError."""
        if not self._fs.exists(self._place):
            return
        if not self._is_wanted():
            await asyncio.get_running_loop().run_in_executor(None, self._fs.remove_tree, self._place)
        elif not self._fs.exists(os.path.join(self._place, ANSWER)):
            await self._answer()

    def _is_wanted(self) -> bool:
        """Whether the client still holds its lock."""
        try:
            self._fs.lock(os.path.join(self._place, LOCK)).close()
        except BlockingIOError:
            return True
        return False

    async def _answer(self) -> None:
        begun = time.monotonic()
        answer: dict[str, object]
        try:
            linked = await self._link_all()
            instant = time.monotonic()
            answer = {"now_ms": self._clock.now_ms(), "sizes": self._note(linked)}
        except (CannotBackUp, OSError) as error:
            logger.warning("no backup: %s", error)
            answer = {"error": str(error)}
        else:
            logger.info(
                "a backup of %d partitions: prepared in %.1f s, noted in %.0f ms",
                len(linked), instant - begun, (time.monotonic() - instant) * 1000,
            )  # fmt: skip
        data = json.dumps(answer).encode()
        files.write_whole(self._fs, os.path.join(self._place, ANSWER), data, sync=False, sync_dir=False)

    async def _link_all(self) -> dict[Partition, _Linked]:
        linked: dict[Partition, _Linked] = {}
        for partition in list(self._partitions()):
            if not partition.closed:
                linked[partition] = self._link(partition)
                await asyncio.sleep(0)
        return linked

    def _link(self, partition: Partition) -> _Linked:
        """Link all files of a partition that a start may need."""
        if partition.offline is not None:
            raise CannotBackUp(
                f"partition {partition} is offline ({partition.offline}). Repair it first; or stop the "
                "broker, and back up its files as they are"
            )
        name, segments = os.path.basename(partition.directory), partition.segments
        place = os.path.join(self._place, name)
        if self._fs.exists(place):
            self._fs.remove_tree(place)
        self._fs.make_dir(place)
        bases = {files.offset_name(segment.base_offset, "") for segment in segments}
        active = segments[-1]
        for each in self._fs.list(partition.directory):
            stem, suffix = os.path.splitext(each)
            of_active = stem == files.offset_name(active.base_offset, "")
            if of_active and suffix in (files.INDEX, files.TIME_INDEX):
                continue
            if stem in bases and suffix in files.OF_SEGMENT:
                self._link_into(place, partition.directory, each)
            elif suffix == files.SNAPSHOT:
                with suppress(FileNotFoundError):  # a newer one has taken its place
                    self._link_into(place, partition.directory, each)
        for each in (files.PARTITION_METADATA, files.LEADER_EPOCHS):
            if self._fs.exists(os.path.join(partition.directory, each)):
                self._link_into(place, partition.directory, each)
        return _Linked(segments, bool(active.transactions.entries))

    def _link_into(self, place: str, directory: str, name: str) -> None:
        self._fs.link(os.path.join(directory, name), os.path.join(place, name))

    def _note(self, linked: dict[Partition, _Linked]) -> dict[str, dict[str, int]]:
        """The sizes of the files that are written to, by partition. Nothing else runs meanwhile."""
        present = [partition for partition in self._partitions() if not partition.closed]
        sizes = {os.path.basename(one.directory): self._sizes(one, linked) for one in present}
        for name in self._fs.list(self._root):
            if name not in sizes and name not in _LEFT_OUT and not name.endswith(files.TEMPORARY):
                with suppress(IsADirectoryError):
                    self._link_into(self._place, self._root, name)
        return sizes

    def _sizes(self, partition: Partition, linked: dict[Partition, _Linked]) -> dict[str, int]:
        segments = partition.segments
        active = segments[-1] if segments else None
        now = _Linked(segments, bool(active and active.transactions.entries))
        if active is None or linked.get(partition) != now:
            linked[partition] = self._link(partition)
            active = partition.segments[-1]
        base = active.base_offset
        return {
            files.offset_name(base, files.LOG): active.size,
            files.offset_name(base, files.TXN_INDEX): active.transactions.size,
        }
