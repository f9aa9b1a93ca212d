"""One partition: its log, its producers, its durability, and those who wait for it.

    append -> checks -> producer rules -> one write -> state -> (group flush) -> high watermark

Each of its parts is a class: the log, which all share, its durability and who waits for it (`durability`);
the writing end, the producers and the saved progress (`append`); reads, retention and compaction. This module
has the path of a batch, and what needs all parts: coming back online, and closing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from eoslog.broker.log import files
from eoslog.broker.log.append import ActiveSegment, PartitionProducers, SavedProgress
from eoslog.broker.log.batch_checks import as_stored, check_client, check_walked, header_of, walk_records
from eoslog.broker.log.compaction import Compacting
from eoslog.broker.log.durability import (
    Appended,
    AppendWaiters,
    Durability,
    GroupFlush,
    Log,
    PartitionPlace,
    ReadResult,
    Unchecked,
)
from eoslog.broker.log.files import Checkpoints, for_each_parallel
from eoslog.broker.log.log_settings import LogSettings
from eoslog.broker.log.reads import PartitionReads
from eoslog.broker.log.recovery import (
    DamagedLog,
    Durable,
    KnownLog,
    ReadBack,
    RecoveryFinding,
    prepare,
    read_back,
)
from eoslog.broker.log.retention import DiscardedSegments, Trimming
from eoslog.broker.log.scan import DamagedBatch
from eoslog.broker.log.segment import Segment, Segments
from eoslog.broker.ports import Buffer, FileSystem
from eoslog.broker.rules.producer_state import ProducerState, ProducerStates
from eoslog.protocol.batch import BatchHeader, read_header
from eoslog.protocol.control import ABORT, COMMIT, control_batch, read_control
from eoslog.protocol.errors import KafkaError

if TYPE_CHECKING:
    from eoslog.protocol.walk import Walked

logger = logging.getLogger(__name__)


class Partition:
    """The path of a batch, and what needs all parts of a partition. Other code only reads the attributes."""

    def __init__(
        self,
        fs: FileSystem,
        place: PartitionPlace,
        settings: LogSettings,
        flush: GroupFlush,
        checkpoints: Checkpoints,
        segments: list[Segment],
        states: ProducerStates,
        leader_epoch: int = 0,
    ) -> None:
        """`segments`: open, at least one, all synced. Use `opening.open_partition`."""
        self.topic, self.index, self.topic_id, self.directory = place
        self.leader_epoch = leader_epoch  # of all batches written in this run of the broker
        log = Log(fs, place, settings, checkpoints, segments, leader_epoch)
        watch, discarded = AppendWaiters(), DiscardedSegments(log)
        durability = Durability(log, flush, watch)
        producers = PartitionProducers(log, durability, watch, states)
        tail = ActiveSegment(log, durability, producers)
        self.durability = durability
        self._log, self._watch, self._discarded = log, watch, discarded
        self._producers, self._tail = producers, tail
        self._readings = PartitionReads(log, durability, producers)
        self.progress = SavedProgress(log, durability, producers, tail)
        self._trimming = Trimming(log, durability, producers, tail, discarded)
        self.compacting = Compacting(log, durability, producers, discarded)
        self.subscribe = watch.subscribe  # called when the high watermark or last stable offset moves
        self.unsubscribe = watch.unsubscribe

    def __repr__(self) -> str:
        return f"<Partition {self}>"

    def __str__(self) -> str:
        return str(self._log)

    @property
    def settings(self) -> LogSettings:
        """The current settings of its topic."""
        return self._log.settings

    def reconfigure(self, settings: LogSettings) -> None:
        """Use changed settings from now on."""
        self._log.settings = settings
        self._tail.jitter()

    # -- state ---------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record; all below are deleted."""
        return self._log.start

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record to be written."""
        return self._log.end

    @property
    def high_watermark(self) -> int:
        """The offset up to which readers see records."""
        return self.durability.high_watermark

    @property
    def recovery_point(self) -> int:
        """All offsets below are durable."""
        return self.durability.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """See `PartitionProducers.last_stable_offset`."""
        return self._producers.last_stable_offset

    @property
    def offline(self) -> str | None:
        """The reason, if the partition is offline."""
        return self._log.offline

    @property
    def may_return(self) -> bool:
        """Whether it may come back online: the disk failed, but no damage is known."""
        return self._log.may_return

    @property
    def closed(self) -> bool:
        """Whether it was closed or removed."""
        return self._log.closed

    @property
    def wrote(self) -> bool:
        """Whether anything was written in this run of the broker."""
        return self._tail.wrote

    @property
    def size(self) -> int:
        """Bytes of all segments' record batches."""
        return sum(segment.size for segment in self._log.segments)

    # -- writing -------------------------------------------------------------------------------

    def append(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        coordinator: bool = False,
        from_zero: bool = False,
        header: BatchHeader | None = None,
        walked: Walked | None = None,
        urgent: bool = False,
    ) -> Appended:
        """Write one record batch at the end of the log.

        `header`: the batch's header, if it is already read and checked. `walked`: what its records say, if
        they have been walked. See `batch_checks`.
        `coordinator`: the batch is the broker's own: control batches are allowed, sequences are not checked.
        `urgent`: the batch may use a part of the reserve on a full disk.
        `from_zero`: a producer that is unknown here must begin with sequence 0 (transactions of KIP-890).
        Raises KafkaError with nothing changed: see `batch_checks` and `rules.producer_state` for the codes,
        and KAFKA_STORAGE_ERROR if the disk fails. The batch is durable once `wait_durable` returns.
        """
        self._log.check_online()
        view = memoryview(batch)
        settings = self._log.settings
        header = header or header_of(view)
        if not coordinator:
            if walked is None:
                check_client(header, settings)
                walked = walk_records(view, header, settings)
            check_walked(view, header, walked, settings, now_ms)
        if header.is_control:
            control = read_control(view, 0, header)
            if control.type in (COMMIT, ABORT):
                return self._write_marker(
                    view, header, control.type == COMMIT, control.coordinator_epoch, now_ms
                )
        elif header.producer_id >= 0:
            written = self._producers.states.check(header, coordinator=coordinator, from_zero=from_zero)
            if written is not None:
                return Appended(written.first_offset, written.last_offset, -1, self._log.start)
        if walked is not None:
            header = as_stored(view, header, walked, settings, now_ms)
        append_time = now_ms if walked is not None and settings.log_append_time else -1
        try:
            base = self._tail.write(view, header, urgent=urgent)
        except KafkaError:
            if header.producer_id >= 0:
                self._producers.states.not_written(header)
            raise
        if header.producer_id >= 0 and not header.is_control:
            self._producers.states.apply(header, base, now_ms)
        self.durability.written()
        return Appended(base, base + header.last_offset_delta, append_time, self._log.start)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """Write the control record that ends a transaction here. It may be written more than once.

        `transaction_version`: see `ProducerStates.check_marker`.
        Raises KafkaError INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR.
        """
        self._log.check_online()
        self._producers.states.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )
        kind = COMMIT if commit else ABORT
        batch = control_batch(kind, producer_id, producer_epoch, coordinator_epoch, now_ms)
        view = memoryview(batch)
        return self._write_marker(view, read_header(view), commit, coordinator_epoch, now_ms)

    def _write_marker(
        self, view: memoryview, header: BatchHeader, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        pid, epoch = header.producer_id, header.producer_epoch
        self._producers.states.check_marker(pid, epoch, coordinator_epoch)
        base = self._tail.write(view, header, urgent=True)
        aborted = self._producers.states.apply_marker(pid, epoch, coordinator_epoch, commit, base, now_ms)
        if aborted is not None:
            try:
                self._log.urgently(partial(self._log.segments.active.transactions.append, aborted))
            except OSError as error:
                # The log has the marker, the index does not: readers would take aborted data for committed.
                self.durability.fail(f"the transaction index cannot be written ({error})")
        self.durability.written()
        return Appended(base, base, -1, self._log.start)

    def wait_durable(self, offset: int) -> Coroutine[Any, Any, None]:
        """See `Durability.wait`."""
        return self.durability.wait(offset)

    # -- producers and transactions ------------------------------------------------------------

    def ongoing(self, producer_id: int) -> int | None:
        """First offset of the producer's open transaction, None if it has none."""
        return self._producers.states.ongoing(producer_id)

    def open_transactions(self) -> list[tuple[int, int]]:
        """(producer id, first offset) of all open transactions, oldest first."""
        return self._producers.states.open_transactions()

    def producers(self) -> list[ProducerState]:
        """The states of all producers, for DescribeProducers."""
        return self._producers.states.all()

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises KafkaError INVALID_PRODUCER_EPOCH if `epoch` is below the one known here."""
        self._producers.states.check_epoch(producer_id, epoch)

    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers idle for longer than producer.id.expiration.ms. Returns their ids."""
        return self._producers.states.expire(now_ms, self._log.settings.producer_id_expiration_ms)

    def hold_back(self, holder: object) -> None:
        """See `PartitionProducers.hold_back`."""
        self._producers.hold_back(holder)

    def let_go(self, holder: object) -> None:
        """See `PartitionProducers.let_go`."""
        self._producers.let_go(holder)

    # -- reading -------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, committed: bool, min_one: bool = True) -> ReadResult:
        """See `PartitionReads.read`."""
        return self._readings.read(offset, max_bytes, committed=committed, min_one=min_one)

    def read_with_outcomes(self, offset: int, max_bytes: int, *, committed: bool) -> ReadResult:
        """See `PartitionReads.read_with_outcomes`."""
        return self._readings.read_with_outcomes(offset, max_bytes, committed=committed)

    def offset_for(self, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
        """See `PartitionReads.offset_for`."""
        return self._readings.offset_for(timestamp, committed=committed)

    def max_timestamp(self) -> tuple[int, int] | None:
        """See `PartitionReads.max_timestamp`."""
        return self._readings.max_timestamp()

    def epoch_at(self, offset: int) -> int:
        """See `PartitionReads.epoch_at`."""
        return self._readings.epoch_at(offset)

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """See `PartitionReads.epoch_end`."""
        return self._readings.epoch_end(epoch)

    def scan(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """See `PartitionReads.scan`."""
        return self._readings.scan(start)

    @property
    def segments(self) -> list[Segment]:
        """See `PartitionReads.segments`."""
        return self._readings.segments

    def unchecked_segments(self) -> list[tuple[Segment, Unchecked]]:
        """See `PartitionReads.unchecked_segments`."""
        return self._readings.unchecked_segments()

    def has(self, segment: Segment) -> bool:
        """See `PartitionReads.has`."""
        return self._readings.has(segment)

    @property
    def damaged_segments(self) -> int:
        """See `PartitionReads.damaged_segments`."""
        return self._readings.damaged_segments

    # -- upkeep --------------------------------------------------------------------------------

    def delete_records(self, offset: int) -> int:
        """See `Trimming.delete_records`."""
        return self._trimming.delete_records(offset)

    def retain(self, now_ms: int) -> int:
        """See `Trimming.retain`."""
        return self._trimming.retain(now_ms)

    def remove_files(self, now_ms: int, *, at_once: bool = False) -> None:
        """See `DiscardedSegments.remove`."""
        self._discarded.remove(now_ms, at_once=at_once)

    # -- coming back online --------------------------------------------------------------------

    def begin_return(self, now_ms: int) -> Callable[[], ReadBack] | None:
        """Close the files of an offline partition. The returned job reads them again.

        The job may run in any thread; call `end_return` with its result. It raises DamagedLog, DamagedBatch,
        OSError: then call this again later. Returns None if a job is still using the files.
        """
        if self.progress.is_running or self.durability.is_busy:
            return None
        log = self._log
        log.segments.close()
        durable = None
        if not self.durability.lazy and len(log.segments):
            durable = Durable(log.segments.active.base_offset, self.durability.synced_size)
        known = KnownLog(self.recovery_point, leader_epoch=self.leader_epoch)
        start, settings = log.checkpoints.starts.get(self.topic, self.index), log.settings

        def job() -> ReadBack:
            prepare(log.fs, log.directory, durable)
            return read_back(log.fs, log.directory, settings, known, start, now_ms, [])

        return job

    def end_return(self, found: ReadBack) -> None:
        """Bring the partition online with the log that was read back, unless it was closed meanwhile."""
        if self._log.closed:
            Segments(found.segments).close()
            return
        self._log.begin(found.segments)
        self._producers.states = found.producers
        self.durability.begin()
        self._tail.begin()
        self.progress.begin()
        self._log.offline, self._log.may_return = None, False
        self._watch.notify()

    def stay_offline(self, reason: str, *, may_return: bool = False) -> None:
        """Mark it offline: its log is unusable. Unless it `may_return`, it needs a repair and a restart."""
        logger.error("partition %s stays offline: %s", self, reason)
        self._log.offline, self._log.may_return = reason, may_return

    # -- closing -------------------------------------------------------------------------------

    def save(self) -> None:
        """See `SavedProgress.save`."""
        self.progress.save()

    def close(self) -> None:
        """Close the files. Waiters get UNKNOWN_TOPIC_OR_PARTITION. `save` first, unless it is removed."""
        if self._log.closed:
            return
        self._log.closed = True
        self.durability.close()


# -- creating and opening --------------------------------------------------------------------------
# Creates, opens and saves partitions: directory, small files and log. A damaged one opens offline.


def create_directory(fs: FileSystem, directory: str, topic_id: bytes, interval: int, epoch: int = 0) -> None:
    """Create the directory of a new partition. The caller syncs its parent. Raises OSError."""
    fs.make_dir(directory)
    metadata = os.path.join(directory, files.PARTITION_METADATA)
    files.write_whole(fs, metadata, files.encode_partition_metadata(topic_id), sync_dir=False)
    epochs = os.path.join(directory, files.LEADER_EPOCHS)
    files.write_whole(fs, epochs, files.encode_checkpoint([f"{epoch} 0"]), sync=False, sync_dir=False)
    Segment.create(fs, directory, 0, interval).close()
    fs.sync_dir(directory)


def create_directories(fs: FileSystem, places: Sequence[PartitionPlace], interval: int, epoch: int) -> None:
    """Create the directories of new partitions, see `create_directory`. Raises the first OSError."""

    def create(place: PartitionPlace) -> None:
        create_directory(fs, place.directory, place.topic_id, interval, epoch)

    for_each_parallel(create, places)


def open_partition(
    fs: FileSystem,
    place: PartitionPlace,
    settings: LogSettings,
    flush: GroupFlush,
    checkpoints: Checkpoints,
    known: KnownLog,
    now_ms: int,
    report: list[RecoveryFinding],
) -> Partition:
    """Open a partition. Adds to `report` what was cut off or is damaged.

    If the log has lost acknowledged records, or cannot be read, the partition is offline: its requests get
    KAFKA_STORAGE_ERROR, the broker's other partitions are not affected.
    """
    try:
        if checkpoints.cleaned_forgotten and settings.compacted:
            checkpoints.cleaned.put(place.topic, place.number, 0)
        start = checkpoints.starts.get(place.topic, place.number)
        segments, states = read_back(fs, place.directory, settings, known, start, now_ms, report)
    except DamagedLog as damage:
        report.append(damage.finding)
        return _offline(fs, place, settings, flush, checkpoints, known, str(damage))
    except DamagedBatch as damage:
        report.append(RecoveryFinding(damage.path, damage.position, -1, damage.reason))
        return _offline(fs, place, settings, flush, checkpoints, known, str(damage))
    except OSError as error:
        report.append(RecoveryFinding(place.directory, 0, -1, f"cannot be opened: {error}"))
        return _offline(fs, place, settings, flush, checkpoints, known, str(error), may_return=True)
    partition = Partition(fs, place, settings, flush, checkpoints, segments, states, known.leader_epoch)
    if known.clean or (partition.size == 0 and not states.all()):
        partition.progress.is_saved()
    return partition


def _offline(
    fs: FileSystem,
    place: PartitionPlace,
    settings: LogSettings,
    flush: GroupFlush,
    checkpoints: Checkpoints,
    known: KnownLog,
    reason: str,
    may_return: bool = False,
) -> Partition:
    partition = Partition(fs, place, settings, flush, checkpoints, [], ProducerStates(), known.leader_epoch)
    partition.durability.recovery_point = known.recovery_point
    partition.stay_offline(reason, may_return=may_return)
    return partition


def save_all(partitions: Iterable[Partition]) -> None:
    """Save the changed partitions, see `Partition.save`. None may be in use. Raises the first OSError."""
    for_each_parallel(Partition.save, [partition for partition in partitions if partition.progress.changed])
