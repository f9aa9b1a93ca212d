"""One partition: its log, what its producers did, what is durable, and who waits for that.

All calls come from one thread, the event loop's; only the syncs of the group flush run beside it.

    append -> checks -> producer rules -> one write -> state -> (group flush) -> high watermark

The high watermark is the end of what readers see: with flush=fsync the part that survives a power loss,
with flush=os the end of the log. Once a sync or the taking back of a write has failed the partition is
offline, until the broker is started again and has checked the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NoReturn

from eoslog.broker.log import snapshot
from eoslog.broker.log.answers import LEADER_EPOCH, Appended, Place, ReadResult
from eoslog.broker.log.checks import STORED_START, check_batch, stored_start, with_append_time
from eoslog.broker.log.flush import GroupFlush, Job, sync_and_close
from eoslog.broker.log.scan import DamagedBatch
from eoslog.broker.log.segment import LostFile, Segment
from eoslog.broker.log.segments import Segments
from eoslog.broker.log.settings import LogSettings
from eoslog.broker.log.watch import Watch
from eoslog.broker.ports import Buffer, FileSystem
from eoslog.broker.rules.producer import ProducerState, ProducerStates
from eoslog.protocol.batch import (
    ABORT,
    COMMIT,
    BatchHeader,
    CorruptBatch,
    control_batch,
    read_control,
    read_header,
)
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)


class Partition:
    """See the head of this file. Attributes are for reading only; offsets count records."""

    def __init__(
        self,
        fs: FileSystem,
        place: Place,
        settings: LogSettings,
        flush: GroupFlush,
        segments: list[Segment],
        producers: ProducerStates,
    ) -> None:
        """`segments`: open, at least one, all synced. Use `opening.open_partition`."""
        self.topic, self.index, self.topic_id, self.directory = place
        self.settings = settings
        self.offline: str | None = None  # why, if it is
        self._fs = fs
        self._flush = flush
        self._lazy = flush.mode == "os"
        self._log = Segments(segments)
        self._producers = producers
        self.log_start_offset = segments[0].base_offset if segments else 0
        self.log_end_offset = segments[-1].next_offset if segments else 0
        self.high_watermark = self.log_end_offset
        self.recovery_point = self.log_end_offset  # all below is durable
        self._synced_size = segments[-1].size if segments else 0  # of the active segment
        self._syncing: tuple[Segment, int]  # active segment and its size when the running flush began
        self._to_sync: list[Job] = []  # beside the active segment's file
        self._watch = Watch()
        self.subscribe = self._watch.subscribe  # called when the high watermark or last stable offset moves
        self.unsubscribe = self._watch.unsubscribe
        self._closed = False

    def __repr__(self) -> str:
        return f"<Partition {self}>"

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    # -- writing -------------------------------------------------------------------------------

    def append(
        self, batch: Buffer, *, now_ms: int, coordinator: bool = False, from_zero: bool = False
    ) -> Appended:
        """Write one record batch at the end of the log.

        With `coordinator` it is the broker's own: control batches are allowed, sequences not looked at.
        With `from_zero` a producer not known here has to begin with sequence 0 (transactions of KIP-890).
        Raises KafkaError with nothing changed: see `checks` and `rules.producer` for the codes, and
        KAFKA_STORAGE_ERROR where the disk fails. The batch is durable once `wait_durable` says so.
        """
        self._check_online()
        view = memoryview(batch)
        header = check_batch(view, self.settings, now_ms, coordinator=coordinator)
        if header.is_control:
            control = read_control(view, 0, header)
            if control.type in (COMMIT, ABORT):
                return self._write_marker(
                    view, header, control.type == COMMIT, control.coordinator_epoch, now_ms
                )
        elif header.producer_id >= 0:
            written = self._producers.check(header, coordinator=coordinator, from_zero=from_zero)
            if written is not None:
                return Appended(written.first_offset, written.last_offset, -1, self.log_start_offset, True)
        append_time = -1
        if self.settings.log_append_time and not coordinator:
            view = memoryview(with_append_time(view, now_ms))
            header, append_time = read_header(view), now_ms
        base = self._write(view, header)
        if header.producer_id >= 0 and not header.is_control:
            self._producers.apply(header, base, now_ms)
        self._written()
        return Appended(base, base + header.last_offset_delta, append_time, self.log_start_offset, False)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Write the control record that ends a transaction here; it may come more than once.

        `transaction_version`: see `ProducerStates.check_marker`.
        Raises KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        self._producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        kind = COMMIT if commit else ABORT
        batch = control_batch(kind, producer_id, producer_epoch, coordinator_epoch, now_ms)
        view = memoryview(batch)
        return self._write_marker(view, read_header(view), commit, coordinator_epoch, now_ms)

    def _write_marker(
        self, view: memoryview, header: BatchHeader, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        pid, epoch = header.producer_id, header.producer_epoch
        self._producers.check_marker(pid, epoch, coordinator_epoch)
        base = self._write(view, header)
        aborted = self._producers.apply_marker(pid, epoch, coordinator_epoch, commit, base, now_ms)
        if aborted is not None:
            try:
                self._log.active.transactions.append(aborted)
            except OSError as error:
                # The marker is in the log, its index entry is not: readers would take aborted for committed.
                self._fail(f"the transaction index cannot be written ({error})")
        self._written()
        return Appended(base, base, -1, self.log_start_offset, False)

    def _write(self, view: memoryview, header: BatchHeader) -> int:
        """Put the batch at the end of the log under its offset, which is answered."""
        base = self.log_end_offset
        segment = self._log.active
        try:
            if not segment.fits(len(view), base + header.last_offset_delta, self.settings.segment_bytes):
                segment = self._roll()
            stored = header._replace(base_offset=base)
            segment.append([stored_start(header, base, LEADER_EPOCH), view[STORED_START:]], stored)
        except LostFile as error:
            self._fail(str(error))
        except OSError as error:
            _LOG.error("partition %s: nothing was written: %s", self, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self}: nothing was written: {error}"
            ) from error
        self.log_end_offset = stored.next_offset
        return base

    def _written(self) -> None:
        if self._lazy:
            self._advance()
        else:
            self._flush.mark(self)

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
        self._synced_size = 0
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
        _LOG.error("partition %s goes offline: %s. Check the disk, then start the broker again", self, reason)
        self.offline = reason
        self._flush.forget(self)
        self._watch.refuse(self._storage_error())

    def _storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self} is offline: {self.offline}")

    def _check_online(self) -> None:
        if self._closed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")
        if self.offline is not None:
            raise self._storage_error()

    # -- reading -------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed data stop: the first record whose transaction is undecided."""
        return self._producers.last_stable_offset(self.high_watermark)

    def read(self, offset: int, max_bytes: int, *, committed: bool, min_one: bool = True) -> ReadResult:
        """Batches from the one that holds `offset`, at most `max_bytes` of them, from one segment.

        With `min_one` the first batch is given whole even if it is larger, else nothing if it is.
        Never past the high watermark; with `committed` never past the last stable offset.
        Raises KafkaError OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        stable = self.last_stable_offset
        bound = stable if committed else self.high_watermark
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {self} holds {self.log_start_offset} to {self.log_end_offset}, not {offset}",
            )
        records: Buffer = b""
        aborted: list[tuple[int, int]] | None = [] if committed else None
        if offset < bound:
            try:
                records, upper = self._log.read(offset, bound, max_bytes, min_one)
                if committed and records:
                    aborted = self._log.aborted(offset, upper)
            except (DamagedBatch, OSError) as error:
                raise self._unreadable(error) from error
        return ReadResult(records, self.high_watermark, stable, self.log_start_offset, aborted)

    def offset_for(self, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record of at least `timestamp` (ms), None if there is none."""
        self._check_online()
        below = self.last_stable_offset if committed else self.high_watermark
        try:
            return self._log.offset_for(timestamp, below)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp, None if there is no record."""
        self._check_online()
        try:
            return self._log.max_timestamp(self.high_watermark)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def scan(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every whole batch from the one that holds `start` to the end of the log, CRC checked.

        Raises KafkaError KAFKA_STORAGE_ERROR naming file and position of a damaged batch.
        """
        self._check_online()
        try:
            yield from self._log.batches(max(start, self.log_start_offset))
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> KafkaError:
        _LOG.error("partition %s cannot be read: %s", self, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self} cannot be read: {error}")

    # -- producers and transactions ------------------------------------------------------------

    def ongoing(self, producer_id: int) -> int | None:
        """First offset of the producer's open transaction, None if it has none."""
        return self._producers.ongoing(producer_id)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of all open transactions, the oldest first."""
        return self._producers.open_transactions()

    def producers(self) -> list[ProducerState]:
        """All that is known of the producers, for DescribeProducers."""
        return self._producers.all()

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers idle for longer than producer.id.expiration.ms; answers their ids."""
        return self._producers.expire(now_ms, self.settings.producer_id_expiration_ms)

    # -- closing -------------------------------------------------------------------------------

    def save(self) -> None:
        """Make everything durable and write indexes and a snapshot, for an orderly end. Raises OSError."""
        if self.offline is not None or self._closed:
            return
        self._flush.flush_now(self)
        if self.offline is not None:
            raise OSError(f"partition {self} could not be flushed: {self.offline}")
        active = self._log.active
        active.transactions.sync()
        for file in active.save_indexes():
            sync_and_close(file)()
        snapshot.save(self._fs, self.directory, self.log_end_offset, self._producers.all())
        self._fs.sync_dir(self.directory)
        snapshot.drop_others(
            self._fs, self.directory, {s.base_offset for s in self._log} | {self.log_end_offset}
        )

    def close(self) -> None:
        """Close the files; who waits gets UNKNOWN_TOPIC_OR_PARTITION. `save` first, unless it is removed."""
        if self._closed:
            return
        self._closed = True
        self._flush.forget(self)
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")
        self._watch.refuse(gone)
        self._flush.when_free(self, self._log.close)
