"""What every part of a partition stands on: what it holds, up to where it is durable, why it is offline.

All calls come from one thread, the event loop's; only the syncs of the group flush run beside it.

The high watermark is the end of what readers see: with flush=fsync the part that survives a power loss,
with flush=os the end of the log. Once a sync or the taking back of a write has failed the partition is
offline, until the log can be read back from a disk that works again (`begin_return`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import randint
from typing import NoReturn

from eoslog.broker.log.partition.watch import Watch
from eoslog.broker.log.segment import snapshot
from eoslog.broker.log.segment.answers import Place
from eoslog.broker.log.segment.checkpoint import Checkpoints
from eoslog.broker.log.segment.flush import GroupFlush, Job, sync_and_close
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.segments import Segments
from eoslog.broker.log.segment.settings import LogSettings
from eoslog.broker.ports.ports import FileSystem
from eoslog.broker.rules.producer import ProducerStates
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)


class PartitionBase:
    """See the head of this file. Attributes are for reading only; offsets count records."""

    def __init__(
        self,
        fs: FileSystem,
        place: Place,
        settings: LogSettings,
        flush: GroupFlush,
        checkpoints: Checkpoints,
        segments: list[Segment],
        producers: ProducerStates,
        leader_epoch: int = 0,
    ) -> None:
        """`segments`: open, at least one, all synced. Use `opening.open_partition`."""
        self.topic, self.index, self.topic_id, self.directory = place
        self.settings = settings
        self.leader_epoch = leader_epoch  # of all that is written in this life
        self.wrote = False  # whether something was
        self.offline: str | None = None  # why, if it is
        self.may_return = False  # from being offline: the disk failed, and nothing is known to be damaged
        self._said_unreadable = ""  # the last error of a reader that was logged
        self._fs = fs
        self._flush = flush
        self._lazy = flush.mode == "os"
        self._checkpoints = checkpoints
        self._removed: list[tuple[int, str]] = []  # when a file may go (broker's clock, ms), and its path
        self._watch = Watch()
        self._held: dict[object, int] = {}  # by whom: where readers of committed data stop until then
        self.subscribe = self._watch.subscribe  # called when the high watermark or last stable offset moves
        self.unsubscribe = self._watch.unsubscribe
        self._closed = False
        self._begin(segments, producers)

    def _begin(self, segments: list[Segment], producers: ProducerStates) -> None:
        """What the files say is what the partition is."""
        self._log = Segments(segments)
        self._producers = producers
        first = segments[0].base_offset if segments else 0
        self.log_start_offset = max(first, self._checkpoints.starts.get(self.topic, self.index))
        self.log_end_offset = segments[-1].next_offset if segments else self.log_start_offset
        self.high_watermark = self.log_end_offset
        self.recovery_point = self.log_end_offset  # all below is durable
        self._roll_after_ms = self._jittered()
        self._synced_size = segments[-1].size if segments else 0  # of the active segment
        self._rolled: list[Segment] = []  # since the last flush
        self._syncing: tuple[Segment, int]  # active segment and its size when the running flush began
        self._to_sync: list[Job] = []  # beside the active segment's file
        self._appended = self._checked = 0  # bytes since then; those that a start need not read again
        self._snapshots: list[int] = []  # offsets of the last ones taken within the active segment
        self._in_progress = False  # a job of `begin_progress` may be writing
        self._saved_end = -1  # the log's end when indexes and snapshot were last on the disk

    def __repr__(self) -> str:
        return f"<Partition {self}>"

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def closed(self) -> bool:
        """Whether it was closed or removed."""
        return self._closed

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data stop: the first record that is undecided, or held back."""
        stable = min((self._producers.last_stable_offset(self.high_watermark), *self._held.values()))
        return max(stable, self.log_start_offset)

    def hold_back(self, holder: object) -> None:
        """What is not stable yet stays so until the holder lets go: the high watermark does not wait."""
        self._held.setdefault(holder, self.last_stable_offset)

    def let_go(self, holder: object) -> None:
        """Readers may see what the holder held back; nothing happens if that is nothing."""
        if self._held.pop(holder, None) is not None:
            self._watch.stir()

    def _jittered(self) -> int:
        """After which span of timestamps the active segment is full; another one each time."""
        limit = self.settings.roll_after_ms
        return limit - randint(0, min(self.settings.segment_jitter_ms, limit))

    # -- a new segment -------------------------------------------------------------------------

    def _roll(self) -> Segment:
        """Start a new segment. Raises OSError; the old one then stays the active one."""
        old, end = self._log.active, self.log_end_offset
        saved = old.save_indexes()
        sealing = [*self._to_sync, old.file.sync, *(sync_and_close(file) for file in saved)]
        if self._lazy:
            self._to_sync = sealing
            self._flush.mark(self)
        else:
            # Only the active segment may hold unsynced bytes, else a crash could tear a hole into the log.
            self._sync_here(sealing)
            self._to_sync = []
        self._sync_here([old.transactions.sync])
        snapshot.save(self._fs, self.directory, end, self._producers.all())
        try:
            new = Segment.create(self._fs, self.directory, end, self.settings.index_interval_bytes)
            self._fs.sync_dir(self.directory)
        except OSError as error:
            self._drop_empty(end, error)
            raise
        self._log.add(new)
        self._rolled.append(old)
        self._synced_size = 0
        self._roll_after_ms = self._jittered()
        return new

    def _drop_empty(self, base: int, cause: OSError) -> None:
        """Remove a segment that could not be made: it would lie in the middle of the log later on."""
        try:
            Segment.remove(self._fs, self.directory, base)
        except OSError as error:
            self._fail(f"a new segment could be neither made ({cause}) nor removed ({error})")

    def _sync_here(self, jobs: Sequence[Job]) -> None:
        try:
            for job in jobs:
                job()
        except OSError as error:
            self._sync_failed(error)
            raise self._storage_error() from error

    # -- durability ----------------------------------------------------------------------------

    async def wait_durable(self, offset: int) -> None:
        """Return when the record at `offset` and all before it are durable under the flush mode.

        Raises KafkaError KAFKA_STORAGE_ERROR if the disk failed, UNKNOWN_TOPIC_OR_PARTITION if the
        partition was removed meanwhile, ValueError if nothing was written at `offset`.
        """
        self._check_online()
        if offset < self.high_watermark:
            return
        if offset >= self.log_end_offset:
            raise ValueError(f"partition {self} ends at {self.log_end_offset}: not at {offset}")
        await self._watch.wait(offset)

    def begin_flush(self) -> tuple[int, Sequence[Job]]:
        """See `flush.Flushable`."""
        active = self._log.active
        jobs = [*self._to_sync, active.file.sync]
        self._to_sync = []
        self._syncing = (active, active.size)
        return self.log_end_offset, jobs

    def end_flush(self, offset: int, error: Exception | None) -> None:
        """See `flush.Flushable`."""
        if self.offline is not None:
            return
        if error is not None:
            self._sync_failed(error)
            return
        rolled, self._rolled = self._rolled, []
        for old in rolled:  # no thread syncs them now
            old.seal()
        segment, size = self._syncing
        if segment is self._log.active:
            self._synced_size = size
        self.recovery_point = max(self.recovery_point, offset)
        if not self._lazy:
            self._advance()

    def _advance(self) -> None:
        """Move the high watermark, let go who waits for it."""
        mark = self.log_end_offset if self._lazy else self.recovery_point
        if mark == self.high_watermark:
            return
        self.high_watermark = mark
        self._watch.passed(mark)

    def _sync_failed(self, error: Exception) -> None:
        """Bytes that a failed sync left behind must never look good again, though the kernel may say so.

        They were shown to nobody, so they are cut off where that is still possible.
        """
        text = f"sync failed ({error!r}); nothing after offset {self.recovery_point} was acknowledged"
        if not self._lazy:
            try:
                self._log.active.file.truncate(self._synced_size)
            except OSError as second:
                text += f"; cutting that off failed too ({second})"
        self._go_offline(text)

    def _fail(self, reason: str) -> NoReturn:
        self._go_offline(reason)
        raise self._storage_error()

    def _go_offline(self, reason: str) -> None:
        _LOG.error(
            "partition %s goes offline: %s. It comes back when the disk works again and has room",
            self,
            reason,
        )
        self.offline, self.may_return = reason, True
        self._flush.forget(self)
        self._watch.refuse(self._storage_error())

    def _storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self} is offline: {self.offline}")

    def _check_online(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")
        if self.offline is not None:
            raise self._storage_error()
