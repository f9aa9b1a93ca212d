"""The broker's part in a backup: all that its data directory holds at one instant, to be copied at leisure.

Who wants a backup (`eoslog backup`) makes `.backup` in the data directory with a locked file `lock` in it,
and keeps the lock until it is done; the broker removes what is not locked. The broker gives the files of each
log a second name in there, one partition after another. Then, in one turn of its event loop, it does so again
for what has changed, adds the small files, and notes the length of each file that is written to. Nobody
writes in that turn: it is the instant. The other side copies the files, and of those only so much.

A broker that starts with the copy sees what `kill -9` at that instant would have left. As after a crash, what
is made of the logs may know more: of a transaction index only that is believed which a snapshot of the
producers, which is older, has seen; the sparse indexes of the segment that is written to are left out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from eoslog.broker.log.segment import files

if TYPE_CHECKING:
    from eoslog.broker.log.partition.partition import Partition
    from eoslog.broker.log.segment.segment import Segment
    from eoslog.broker.log.upkeep.upkeep import Partitions
    from eoslog.broker.ports.ports import Clock, FileSystem

_LOG = logging.getLogger(__name__)

BACKUP_INTERVAL_MS = 500
"""How often the broker looks whether somebody wants one."""

DIRECTORY, LOCK, ANSWER = ".backup", "lock", "answer.json"
UNUSED = f"{DIRECTORY}-"
"""How directories begin that are none yet, or none any more; the next start removes what a kill has left."""
_LEFT_OUT = frozenset({".lock", files.CLEAN_SHUTDOWN})


class CannotBackUp(Exception):
    """There is no backup to be had now; the text says why."""


class _Linked(NamedTuple):
    """What of a partition has a second name."""

    segments: list[Segment]
    aborted: bool  # the transaction index of the active one is there


class Backups:
    """All on the event loop."""

    def __init__(self, fs: FileSystem, root: str, partitions: Partitions, clock: Clock) -> None:
        """`root`: the data directory; `partitions` gives all that exist when it is called."""
        self._fs, self._root, self._partitions, self._clock = fs, root, partitions, clock
        self._place = os.path.join(root, DIRECTORY)

    async def look(self) -> None:
        """Do what is wanted, if anything is. Raises OSError."""
        if not self._fs.exists(self._place):
            return
        if not self._is_wanted():
            await asyncio.get_running_loop().run_in_executor(None, self._fs.remove_tree, self._place)
        elif not self._fs.exists(os.path.join(self._place, ANSWER)):
            await self._answer()

    def _is_wanted(self) -> bool:
        """Whether who has asked is there still."""
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
            _LOG.warning("no backup: %s", error)
            answer = {"error": str(error)}
        else:
            _LOG.info(
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
        """Give all files of a partition that a start may need a second name."""
        if partition.offline is not None:
            raise CannotBackUp(
                f"partition {partition} is offline ({partition.offline}). Mend that first; or stop the "
                "broker, and what there is can be backed up"
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
        """By partition the bytes of the files that are written to. Nobody else has a turn meanwhile."""
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
