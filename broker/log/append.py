"""The end of a log: writes batches, begins segments, knows producers, saves progress for the next start."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from random import randint

from eoslog.broker.log import files, leader_epochs, producer_snapshot
from eoslog.broker.log.durability import AppendWaiters, Durability, Log, sync_and_close
from eoslog.broker.log.files import SegmentFiles
from eoslog.broker.log.scan import DamagedBatch
from eoslog.broker.log.segment import LostFile, Segment
from eoslog.broker.rules.producer_state import ProducerStates
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, packed
from eoslog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class ActiveSegment:
    """Writes batches to the active segment, and starts new segments."""

    def __init__(self, log: Log, durability: Durability, producers: PartitionProducers) -> None:
        self._log, self._durability, self._producers = log, durability, producers
        self.wrote = False  # whether anything was written in this run of the broker
        self.begin()

    def begin(self) -> None:
        """Start again: the log was read from the disk."""
        self.appended = 0  # bytes since then
        self.jitter()

    def jitter(self) -> None:
        """Choose, at random, the span of timestamps after which the active segment is full."""
        limit = self._log.settings.roll_after_ms
        self.roll_after_ms = limit - randint(0, min(self._log.settings.segment_jitter_ms, limit))

    def write(self, view: memoryview, header: BatchHeader, *, urgent: bool = False) -> int:
        """Write the records of the batch at the end of the log, under this header. Returns the base offset.

        `urgent`: it ends a transaction, see `Log.urgently`. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        log = self._log
        base = log.end
        stored = header._replace(base_offset=base, leader_epoch=log.leader_epoch)
        try:
            if urgent:
                log.urgently(partial(self._write, view, stored))
            else:
                self._write(view, stored)
        except LostFile as error:
            self._durability.fail(str(error))
        except (DamagedBatch, OSError) as error:
            logger.error("partition %s: nothing was written: %s", log, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {log}: nothing was written: {error}"
            ) from error
        log.end = stored.next_offset
        self.appended += len(view)
        return base

    def _write(self, view: memoryview, stored: BatchHeader) -> None:
        log = self._log
        segment = log.segments.active
        if not segment.fits(len(view), stored.last_offset, log.settings.segment_bytes) or segment.spans(
            stored.max_timestamp, self.roll_after_ms
        ):
            segment = self.roll()
        if not self.wrote:
            path = os.path.join(log.directory, files.LEADER_EPOCHS)
            leader_epochs.begun(log.fs, path, log.leader_epoch, stored.base_offset, log.start)
            self.wrote = True
        segment.append([packed(stored), view[HEADER_SIZE:]], stored)

    def roll(self) -> Segment:
        """Start a new segment. Raises OSError; then the old one stays active."""
        log = self._log
        old, end = log.segments.active, log.end
        saved = old.save_indexes()
        self._durability.seal([old.file.sync, *(sync_and_close(file) for file in saved)])
        self._durability.sync_here([old.transactions.sync])
        producer_snapshot.save(log.fs, log.directory, end, self._producers.states.all())
        try:
            new = Segment.create(log.fs, log.directory, end, log.settings.index_interval_bytes)
            log.fs.sync_dir(log.directory)
        except OSError as error:
            self._drop_empty(end, error)
            raise
        log.segments.add(new)
        self._durability.rolled(old)
        self.jitter()
        return new

    def _drop_empty(self, base: int, cause: OSError) -> None:
        """Remove a segment that could not be created: later it would lie in the middle of the log."""
        try:
            SegmentFiles(self._log.fs, self._log.directory, base).remove()
        except OSError as error:
            self._durability.fail(f"a new segment could be neither created ({cause}) nor removed ({error})")


class PartitionProducers:
    """The producers' states, and the last stable offset, which holders may hold back."""

    def __init__(
        self, log: Log, durability: Durability, watch: AppendWaiters, states: ProducerStates
    ) -> None:
        self._log, self._durability, self._watch = log, durability, watch
        self.states = states
        self._held: dict[object, int] = {}  # by holder: where readers of committed data stop until it lets go

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data stop: at the first record that is undecided or held back."""
        decided = self.states.last_stable_offset(self._durability.high_watermark)
        return max(min((decided, *self._held.values())), self._log.start)

    def hold_back(self, holder: object) -> None:
        """Keep the last stable offset where it is until the holder lets go. The high watermark may rise."""
        self._held.setdefault(holder, self.last_stable_offset)

    def let_go(self, holder: object) -> None:
        """Let readers see what the holder held back. Does nothing if it held nothing back."""
        if self._held.pop(holder, None) is not None:
            self._watch.notify()


class SavedProgress:
    """Periodically saves indexes and producer snapshots, so that a start need not read the whole log.

    At an orderly shutdown it saves them once more.
    """

    def __init__(
        self, log: Log, durability: Durability, producers: PartitionProducers, tail: ActiveSegment
    ) -> None:
        self._log, self._durability, self._producers, self._tail = log, durability, producers, tail
        self.begin()

    def begin(self) -> None:
        """Start again: the log was read from the disk."""
        self._checked = 0  # bytes appended since then that a start need not read again
        self._snapshots: list[int] = []  # offsets of the last snapshots within the active segment
        self.is_running = False  # a job of `begin_saving` may be writing
        self._saved_end = -1  # the log's end when indexes and snapshot were last saved

    # -- for a start after a crash -------------------------------------------------------------

    @property
    def unchecked(self) -> int:
        """Bytes that a start after a crash would have to read again, about."""
        return self._tail.appended - self._checked

    def begin_saving(self) -> Callable[[], None]:
        """Save the active segment's indexes and a snapshot. The returned job makes them durable.

        The job may run in any thread. This and the job raise OSError: then call `saving_failed`.
        """
        log = self._log
        log.check_online()
        self.is_running = True
        self._checked, active = self._tail.appended, log.segments.active
        path = log.path(log.end, files.SNAPSHOT)
        self._snapshots = [*self._snapshots[-1:], log.end]
        data = producer_snapshot.encode(self._producers.states.all())
        syncs = [active.transactions.sync, *(sync_and_close(file) for file in active.save_indexes())]

        def job() -> None:
            for sync in syncs:
                sync()
            # Not the temporary name that a roll at the same offset may be using now.
            files.write_whole(log.fs, path, data, temporary=path + ".progress" + files.TEMPORARY)

        return job

    def end_saving(self) -> None:
        """The job is done: remove older snapshots of the active segment. Raises OSError."""
        self.is_running = False
        if self._log.usable:
            keep = {segment.base_offset for segment in self._log.segments} | set(self._snapshots)
            producer_snapshot.drop_others(self._log.fs, self._log.directory, keep)

    def saving_failed(self) -> None:
        """The job has failed: the files' content is not known, so the next save writes them whole."""
        self.is_running = False
        if self._log.usable:
            self._log.segments.active.rewrite_indexes()

    # -- for a start after an orderly shutdown -------------------------------------------------

    def save(self) -> None:
        """Sync everything, and save indexes and a snapshot, for an orderly shutdown. Raises OSError."""
        if not self.changed:
            return
        log = self._log
        self._durability.flush_now()
        if log.offline is not None:
            raise OSError(f"partition {log} could not be flushed: {log.offline}")
        active = log.segments.active
        active.transactions.sync()
        for file in active.save_indexes():
            sync_and_close(file)()
        producer_snapshot.save(log.fs, log.directory, log.end, self._producers.states.all())
        log.fs.sync_dir(log.directory)
        producer_snapshot.drop_others(
            log.fs, log.directory, {s.base_offset for s in log.segments} | {log.end}
        )
        self.is_saved()

    @property
    def changed(self) -> bool:
        """Whether there is something to `save`."""
        return self._log.usable and self._saved_end != self._log.end

    def is_saved(self) -> None:
        """Note that indexes and snapshot on the disk are up to date: until a write, `save` does nothing."""
        self._saved_end = self._log.end
