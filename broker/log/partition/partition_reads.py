"""Reading a partition: batches from an offset on, offsets by time, and everything from the start."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from eoslog.broker.log.partition.partition_base import PartitionBase
from eoslog.broker.log.segment import epochs
from eoslog.broker.log.segment.answers import ReadResult, Unchecked
from eoslog.broker.log.segment.scan import DamagedBatch
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.ports.ports import Buffer
from eoslog.protocol.batch import BatchHeader, CorruptBatch, iter_headers
from eoslog.protocol.errors import ErrorCode, KafkaError

_LOG = logging.getLogger(__name__)


class PartitionReads(PartitionBase):
    """The reading part. Nothing below the log's start is ever handed out but in the batch that holds it."""

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
                records, upper = self._log.read(offset, bound, max_bytes, min_one, self.has_gaps)
                if committed and records:
                    aborted = self._log.aborted(offset, upper)
            except (DamagedBatch, OSError) as error:
                raise self._unreadable(error) from error
        return ReadResult(records, self.high_watermark, stable, self.log_start_offset, aborted)

    def read_with_outcomes(self, offset: int, max_bytes: int, *, committed: bool) -> ReadResult:
        """As `read`, with the aborted transactions in either case: for those who show what is in the log.

        `aborted` names every aborted transaction with records among the batches read; with
        `open_transactions`, asked in the same turn of the loop, what is neither is committed.
        """
        result = self.read(offset, max_bytes, committed=committed)
        if committed or not result.records:
            return result
        upper = max(header.next_offset for _, header in iter_headers(result.records))
        return result._replace(aborted=self._log.aborted(offset, upper))

    def offset_for(self, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record of at least `timestamp` (ms), None if there is none."""
        self._check_online()
        below = self.last_stable_offset if committed else self.high_watermark
        try:
            return self._log.offset_for(timestamp, self.log_start_offset, below)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record with the largest timestamp, None if there is no record."""
        self._check_online()
        try:
            return self._log.max_timestamp(self.log_start_offset, self.high_watermark)
        except (DamagedBatch, CorruptBatch, OSError) as error:
            raise self._unreadable(error) from error

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was written; at the log's end this life's."""
        self._check_online()
        try:
            found = self._log.epoch_at(offset)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error
        return self.leader_epoch if found is None else found

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """The largest leader epoch up to `epoch` that there is, and the offset at which it ends.

        (-1, -1) for one that has not been. Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if not 0 <= epoch <= self.leader_epoch:
            return epochs.UNDEFINED, epochs.UNDEFINED
        if epoch == self.leader_epoch:
            return epoch, self.high_watermark
        try:
            later = self._log.first_later(epoch, self.log_start_offset)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error
        end = self.high_watermark if later is None else max(later, self.log_start_offset)
        return (self.epoch_at(end - 1) if end > self.log_start_offset else epoch), end

    def scan(self, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every whole batch from the one that holds `start` to the end of the log, CRC checked.

        Raises KafkaError KAFKA_STORAGE_ERROR naming file and position of a damaged batch.
        """
        self._check_online()
        try:
            yield from self._log.batches(max(start, self.log_start_offset), self.has_gaps)
        except (DamagedBatch, OSError) as error:
            raise self._unreadable(error) from error

    @property
    def segments(self) -> list[Segment]:
        """Its segments in order; none while it is offline or closed."""
        return [] if self.offline is not None or self._closed else list(self._log)

    def unchecked_segments(self) -> list[tuple[Segment, Unchecked]]:
        """What the scrub has to read still, and has not found to be damaged."""
        if self.offline is not None or self._closed:
            return []
        return [
            (
                segment,
                Unchecked(
                    segment.path,
                    segment.size,
                    segment.base_offset,
                    None if segment is self._log.active else segment.next_offset,
                    self.has_gaps,
                ),
            )
            for segment in self._log
            if not segment.checked and segment.damage is None
        ]

    def has(self, segment: Segment) -> bool:
        """Whether it is in the log still."""
        return not self._closed and any(one is segment for one in self._log)

    @property
    def damaged_segments(self) -> int:
        """How many the scrub has found to be damaged."""
        return sum(segment.damage is not None for segment in self._log)

    @property
    def has_gaps(self) -> bool:
        """Whether compaction may have taken records; nothing else leaves gaps between batches."""
        return self._checkpoints.cleaned.knows(self.topic, self.index)

    def _unreadable(self, error: Exception) -> KafkaError:
        """Damage is CORRUPT_MESSAGE: clients of Kafka stop at it, and ask again after a storage error."""
        text = f"partition {self} cannot be read: {error}"
        if text != self._said_unreadable:  # readers ask again and again
            self._said_unreadable = text
            _LOG.error("%s", text)
        damaged = isinstance(error, (DamagedBatch, CorruptBatch))
        return KafkaError(ErrorCode.CORRUPT_MESSAGE if damaged else ErrorCode.KAFKA_STORAGE_ERROR, text)
