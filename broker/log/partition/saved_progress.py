"""Saves indexes and snapshots of the producers, so that a start need not read the whole log."""

from __future__ import annotations

from collections.abc import Callable

from eoslog.broker.log.partition.active_segment import ActiveSegment
from eoslog.broker.log.partition.durability import Durability
from eoslog.broker.log.partition.log import Log
from eoslog.broker.log.partition.partition_producers import PartitionProducers
from eoslog.broker.log.segment import files, producer_snapshot
from eoslog.broker.log.segment.group_flush import sync_and_close


class SavedProgress:
    """Saves them now and then, for a start after a crash, and at an orderly shutdown."""

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
