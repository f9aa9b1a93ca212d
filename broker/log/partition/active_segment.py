"""The end of a log: writes batches and starts new segments."""

from __future__ import annotations

import logging
import os
from random import randint

from eoslog.broker.log.partition.durability import Durability
from eoslog.broker.log.partition.log import Log
from eoslog.broker.log.partition.partition_producers import PartitionProducers
from eoslog.broker.log.segment import files, leader_epochs, producer_snapshot
from eoslog.broker.log.segment.group_flush import sync_and_close
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.broker.log.segment.segment import LostFile, Segment
from eoslog.broker.log.segment.segment_files import SegmentFiles
from eoslog.protocol.batch import HEADER_SIZE, BatchHeader, packed
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)


class ActiveSegment:
    """See the head of this file."""

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

    def write(self, view: memoryview, header: BatchHeader) -> int:
        """Write the records of the batch at the end of the log, under this header. Returns the base offset.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        log = self._log
        base = log.end
        segment = log.segments.active
        try:
            last = base + header.last_offset_delta
            if not segment.fits(len(view), last, log.settings.segment_bytes) or segment.spans(
                header.max_timestamp, self.roll_after_ms
            ):
                segment = self.roll()
            if not self.wrote:
                path = os.path.join(log.directory, files.LEADER_EPOCHS)
                leader_epochs.begun(log.fs, path, log.leader_epoch, base, log.start)
                self.wrote = True
            stored = header._replace(base_offset=base, leader_epoch=log.leader_epoch)
            segment.append([packed(stored), view[HEADER_SIZE:]], stored)
        except LostFile as error:
            self._durability.fail(str(error))
        except (DamagedBatch, OSError) as error:
            _LOG.error("partition %s: nothing was written: %s", log, error)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"partition {log}: nothing was written: {error}"
            ) from error
        log.end = stored.next_offset
        self.appended += len(view)
        return base

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
