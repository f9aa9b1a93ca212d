"""A partition's side of compaction: whether it needs it, the plan of a run, and taking its result over.

All of this is on the event loop. A compacted segment is taken over by renames (`leftovers` has the states a
crash may leave): its indexes get the suffix `.swap`, then its log: from here on it counts. The segments it
stands for are renamed to `.deleted`, and it gets their place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from eoslog.broker.log.compaction.cleaning_plan import Plan, Source
from eoslog.broker.log.compaction.compaction import Facts, LastBatch
from eoslog.broker.log.partition.partition_upkeep import PartitionUpkeep
from eoslog.broker.log.recovery.leftovers import commit, give_up, move_in, prepare, take_out
from eoslog.broker.log.segment.segment import Segment
from eoslog.broker.log.segment.segment_base import MAX_RELATIVE_OFFSET

_LOG = logging.getLogger(__name__)


class Dirt(NamedTuple):
    """How much a log needs compaction."""

    ratio: float  # of bytes that were not compacted yet to all that can be
    overdue: bool  # a record waits for longer than max.compaction.lag.ms


class PartitionCleaning(PartitionUpkeep):
    """The compaction part."""

    @property
    def cleaned_offset(self) -> int:
        """All below is compacted already."""
        known = self._checkpoints.cleaned.get(self.topic, self.index)
        return max(known if known <= self.log_end_offset else 0, self.log_start_offset)

    def dirt(self, now_ms: int) -> Dirt | None:
        """How much this log needs compaction, None if it does not. Raises DamagedBatch, OSError."""
        if not self.settings.compacted or self.offline is not None or self._closed:
            return None
        start, end = self.cleaned_offset, self._cleanable_end(now_ms)
        dirty = [s for s in self._below(end) if s.next_offset > start]
        size = sum(segment.size for segment in dirty)
        if not size:
            return None
        whole = size + sum(s.size for s in self._below(end) if s.next_offset <= start)
        dirt = Dirt(size / whole, self._overdue(dirty, now_ms))
        return dirt if dirt.ratio > self.settings.min_cleanable_dirty_ratio or dirt.overdue else None

    def _overdue(self, dirty: list[Segment], now_ms: int) -> bool:
        since = now_ms - self.settings.max_compaction_lag_ms
        return since > 0 and any(0 < segment.oldest() < since for segment in dirty)

    def _below(self, end: int) -> Iterator[Segment]:
        """The sealed segments that lie wholly below `end`."""
        for segment in self._log:
            if segment.next_offset > end or segment is self._log.active:
                return
            yield segment

    def _cleanable_end(self, now_ms: int) -> int:
        """Up to where the log may be compacted.

        Not the active segment; nothing undecided; nothing that is not durable; nothing that is too young.
        """
        end = min(self._log.active.base_offset, self.last_stable_offset, self.recovery_point)
        lag = self.settings.min_compaction_lag_ms
        if lag > 0:
            for segment in self._below(end):
                if segment.next_offset > self.cleaned_offset and segment.newest() > now_ms - lag:
                    return segment.base_offset
        return end

    def plan(self, now_ms: int) -> Plan:
        """What a run of compaction has to do now."""
        limit = self._cleanable_end(now_ms)
        sources = [
            Source(segment, segment.path, segment.size, segment.next_offset) for segment in self._below(limit)
        ]
        producers = {
            state.producer_id: LastBatch(state.batches[-1].last_offset if state.batches else -1, state.epoch)
            for state in self._producers.all()
        }
        retention = self.settings.delete_retention_ms
        return Plan(
            directory=self.directory,
            interval=self.settings.index_interval_bytes,
            sources=sources,
            first_dirty=self.cleaned_offset,
            end=sources[-1].next_offset if sources else self.log_start_offset,
            groups=_grouped(sources, self.settings.segment_bytes),
            aborted=[entry for segment in self._log for entry in segment.transactions.entries],
            facts=Facts(now_ms, retention, self.high_watermark, producers),
        )

    def take_over(self, new: Segment, group: list[Source], now_ms: int) -> bool:
        """Put a compacted segment in place of those it was made of. False: these are not there any more.

        Raises OSError with nothing changed. If the renames fail in their midst the partition goes offline:
        the next start brings them to an end.
        """
        old = [source.segment for source in group]
        if self.offline is not None or self._closed or not self._log.holds(old):
            return False
        if not self.has_gaps:
            self.cleaned_up_to(self.cleaned_offset)
        prepare(self._fs, self.directory, new.base_offset)
        try:
            commit(self._fs, self.directory, new.base_offset)
            renamed = take_out(self._fs, self.directory, new.base_offset, group[-1].next_offset)
            move_in(self._fs, self.directory, new.base_offset)
        except OSError as error:
            new.close()
            self._fail(f"a compacted segment of offset {new.base_offset} is only half in place: {error}")
        new.take_place()
        self._log.replace(old, new)
        due = now_ms + self.settings.file_delete_delay_ms
        self._removed += [(due, path) for path in renamed]
        for segment in old:
            self._flush.when_free(self, segment.close)
        return True

    def drop_cleaned(self, new: Segment) -> None:
        """Remove the files of a compacted segment that is not taken over. Raises OSError."""
        new.close()
        if not self._closed:
            give_up(self._fs, self.directory, new.base_offset)

    def cleaned_up_to(self, offset: int) -> None:
        """Note how far the log is compacted. Raises OSError; a part of it is then compacted once more."""
        self._checkpoints.cleaned.put(self.topic, self.index, offset)


def _grouped(sources: list[Source], segment_bytes: int) -> list[list[Source]]:
    """Segments side by side that fit into one, by size and by the span of their offsets."""
    groups: list[list[Source]] = []
    size = 0
    for source in sources:
        span = source.next_offset - 1 - groups[-1][0].segment.base_offset if groups else 0
        if groups and size + source.size <= segment_bytes and span <= MAX_RELATIVE_OFFSET:
            groups[-1].append(source)
            size += source.size
        else:
            groups.append([source])
            size = source.size
    return groups
