"""One partition: its log, what its producers did, what is durable, and who waits for that.

    append -> checks -> producer rules -> one write -> state -> (group flush) -> high watermark

Its parts: `partition_base` (state, durability, failures), `partition_reads`, `partition_upkeep` (retention,
deleted records), `partition_cleaning` (compaction), and here what writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from eoslog.broker.log.partition.partition_cleaning import PartitionCleaning
from eoslog.broker.log.recovery.reading_back import Durable, ReadBack, prepare, read_back
from eoslog.broker.log.recovery.recovery import Known
from eoslog.broker.log.segment import epochs, files, snapshot
from eoslog.broker.log.segment.answers import Appended
from eoslog.broker.log.segment.checks import STORED_START, check_batch, stored_start, with_append_time
from eoslog.broker.log.segment.flush import sync_and_close
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.broker.log.segment.segment import LostFile
from eoslog.broker.log.segment.segments import Segments
from eoslog.broker.ports.ports import Buffer
from eoslog.broker.rules.producer import ProducerState
from eoslog.protocol.batch import BatchHeader, read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch, read_control
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)


class Partition(PartitionCleaning):
    """See the head of this file. Attributes are for reading only; offsets count records."""

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
        try:
            base = self._write(view, header)
        except KafkaError:
            if header.producer_id >= 0:
                self._producers.not_written(header)
            raise
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
            last = base + header.last_offset_delta
            if not segment.fits(len(view), last, self.settings.segment_bytes) or segment.spans(
                header.max_timestamp, self._roll_after_ms
            ):
                segment = self._roll()
            if not self.wrote:
                path = os.path.join(self.directory, files.LEADER_EPOCHS)
                epochs.begun(self._fs, path, self.leader_epoch, base, self.log_start_offset)
                self.wrote = True
            stored = header._replace(base_offset=base)
            segment.append([stored_start(header, base, self.leader_epoch), view[STORED_START:]], stored)
        except LostFile as error:
            self._fail(str(error))
        except (DamagedBatch, OSError) as error:
            _LOG.error("partition %s: nothing was written: %s", self, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {self}: nothing was written: {error}"
            ) from error
        self.log_end_offset = stored.next_offset
        self._appended += len(view)
        return base

    def _written(self) -> None:
        if self._lazy:
            self._advance()
        else:
            self._flush.mark(self)

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

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises KafkaError INVALID_PRODUCER_EPOCH for an epoch below the one that is known here."""
        self._producers.check_epoch(producer_id, epoch)

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers idle for longer than producer.id.expiration.ms; answers their ids."""
        return self._producers.expire(now_ms, self.settings.producer_id_expiration_ms)

    # -- coming back ---------------------------------------------------------------------------

    def begin_return(self, now_ms: int) -> Callable[[], ReadBack] | None:
        """Let go of the files of a partition that is offline. The job that is answered reads them again.

        The job may run in any thread, and raises DamagedLog, DamagedBatch, OSError: then call this again some
        time. Call `end_return` with what it answers. None: something is still at work on the files.
        """
        if self._in_progress or self._flush.is_busy(self):
            return None
        self._log.close()
        durable = None
        if not self._lazy and len(self._log):
            durable = Durable(self._log.active.base_offset, self._synced_size)
        known = Known(self.recovery_point, leader_epoch=self.leader_epoch)
        start, settings = self._checkpoints.starts.get(self.topic, self.index), self.settings

        def job() -> ReadBack:
            prepare(self._fs, self.directory, durable)
            return read_back(self._fs, self.directory, settings, known, start, now_ms, [])

        return job

    def end_return(self, found: ReadBack) -> None:
        """The partition is online again, with what was read back; if it was closed meanwhile, it stays so."""
        if self._closed:
            Segments(found.segments).close()
            return
        self._begin(*found)
        self.offline, self.may_return = None, False
        self._watch.stir()

    def stay_offline(self, reason: str) -> None:
        """What was read back cannot be used: only a start, after a repair, brings the partition back."""
        _LOG.error("partition %s stays offline: %s", self, reason)
        self.offline, self.may_return = reason, False

    # -- closing -------------------------------------------------------------------------------

    def save(self) -> None:
        """Make everything durable and write indexes and a snapshot, for an orderly end. Raises OSError."""
        if not self.changed:
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
        self.is_saved()

    @property
    def changed(self) -> bool:
        """Whether there is anything to `save`."""
        usable = self.offline is None and not self._closed
        return usable and self._saved_end != self.log_end_offset

    def is_saved(self) -> None:
        """Indexes and a snapshot are on the disk as they are now: `save` has nothing to do until a write."""
        self._saved_end = self.log_end_offset

    def close(self) -> None:
        """Close the files; who waits gets UNKNOWN_TOPIC_OR_PARTITION. `save` first, unless it is removed."""
        if self._closed:
            return
        self._closed = True
        self._flush.forget(self)
        gone = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {self} was removed or closed")
        self._watch.refuse(gone)
        self._flush.when_free(self, self._log.close)
