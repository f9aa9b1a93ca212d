"""Reads a partition: batches from an offset on, offsets by time or epoch, and the whole log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from eoslog.broker.log import leader_epochs
from eoslog.broker.log.append import PartitionProducers
from eoslog.broker.log.durability import Durability, Log, ReadResult, Unchecked
from eoslog.broker.log.scan import DamagedBatch
from eoslog.broker.log.segment import Segment
from eoslog.broker.ports import Buffer
from eoslog.protocol.batch import BatchHeader, CorruptBatch, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class PartitionReads:
    """Reads the log. Records below the log's start are returned only if their batch contains the start."""

    def __init__(self, log: Log, durability: Durability, producers: PartitionProducers) -> None:
        self._log, self._durability, self._producers = log, durability, producers
        self._said_unreadable = ""  # the last read error that was logged

    def read(self, offset: int, max_bytes: int, *, committed: bool, min_one: bool = True) -> ReadResult:
        """Batches from the one that contains `offset` on: at most `max_bytes`, from one segment.

        If the first batch is larger than that: the whole batch with `min_one`, otherwise nothing. Never past
        the high watermark; with `committed` never past the last stable offset.
        Raises KafkaError OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        self._log.check_online()
        stable = self._producers.last_stable_offset
        bound = stable if committed else self._durability.high_watermark
        if not self._log.start <= offset <= self._log.end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"partition {self._log} has offsets {self._log.start} to {self._log.end}, not {offset}",
            )
        records: Buffer = b""
        aborted: list[tuple[int, int]] | None = [] if committed else None
        if offset < bound:
            try:
                records, upper = self._log.segments.read(
                    offset, bound, max_bytes, min_one, self._log.has_gaps
                )
                if committed and records:
                    aborted = self._log.segments.aborted(offset, upper)
            except (DamagedBatch, OSError) as error:
                raise self._unreadable(error) from error
        return ReadResult(records, self._durability.high_watermark, stable, self._log.start, aborted)

    def read_with_outcomes(self, offset: int, max_bytes: int, *, committed: bool) -> ReadResult:
        """Like `read`, but always with the aborted transactions: for code that shows what is in the log.

        `aborted` names every aborted transaction with records in the batches read. A transaction that is
        neither there nor in `open_transactions`, called in the same turn of the loop, is committed.
        """
        result = self.read(offset, max_bytes, committed=committed)
        if committed or not result.records:
            return result
        upper = max(header.next_offset for _, header in iter_headers(result.records))
        return result._replace(aborted=self._log.segments.aborted(offset, upper))

    def offset_for(self, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after `timestamp` (ms), None if there is none."""
        self._log.check_online()
        below = self._producers.last_stable_offset if committed else self._durability.high_watermark
        try:
            return self._log.segments.offset_for(timestamp, self._log.start, below)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp, None if there is no record."""
        self._log.check_online()
        try:
            return self._log.segments.max_timestamp(self._log.start, self._durability.high_watermark)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written; at the log's end the current one."""
        self._log.check_online()
        try:
            found = self._log.segments.epoch_at(offset)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error
        return self._log.leader_epoch if found is None else found

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch in the log that is not above `epoch`, and the offset at which it ends.

        (-1, -1) for an epoch that has not begun. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        self._log.check_online()
        if not 0 <= epoch <= self._log.leader_epoch:
            return leader_epochs.UNDEFINED, leader_epochs.UNDEFINED
        if epoch == self._log.leader_epoch:
            return epoch, self._durability.high_watermark
        try:
            later = self._log.segments.first_later(epoch, self._log.start)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error
        end = self._durability.high_watermark if later is None else max(later, self._log.start)
        return (self.epoch_at(end - 1) if end > self._log.start else epoch), end

    def scan(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every whole batch from the one that contains `start` to the end of the log, CRC checked.

        Raises KafkaError KAFKA_STORAGE_ERROR naming file and position of a damaged batch.
        """
        self._log.check_online()
        try:
            yield from self._log.segments.batches(max(start, self._log.start), self._log.has_gaps)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error

    @property
    def segments(self) -> list[Segment]:
        """The segments in order; none while the partition is offline or closed."""
        return list(self._log.segments) if self._log.usable else []

    def unchecked_segments(self) -> list[tuple[Segment, Unchecked]]:
        """The segments that the scrub still has to check, and has not found damaged."""
        if not self._log.usable:
            return []
        return [
            (
                segment,
                Unchecked(
                    segment.path,
                    segment.size,
                    segment.base_offset,
                    None if segment is self._log.segments.active else segment.next_offset,
                    self._log.has_gaps,
                ),
            )
            for segment in self._log.segments
            if not segment.checked and segment.damage is None
        ]

    def has(self, segment: Segment) -> bool:
        """Whether the segment is still in the log."""
        return not self._log.closed and any(one is segment for one in self._log.segments)

    @property
    def damaged_segments(self) -> int:
        """The number of segments that the scrub has found damaged."""
        return sum(segment.damage is not None for segment in self._log.segments)

    def _unreadable(self, error: Exception) -> KafkaError:
        """The error for readers. Damage is CORRUPT_MESSAGE: Kafka's clients retry after a storage error."""
        text = f"partition {self._log} cannot be read: {error}"
        if text != self._said_unreadable:  # readers retry again and again
            self._said_unreadable = text
            logger.error("%s", text)
        damaged = isinstance(error, (DamagedBatch, CorruptBatch))
        return KafkaError(ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.KAFKA_STORAGE_ERROR, text)
