"""A partition's side of compaction: whether it is needed, the plan of a run, and putting the result in place.

All of this runs on the event loop. Renames put a compacted segment in place (`leftovers` lists the states
that a crash may leave): its indexes get the suffix `.swap`, then its log, which commits it. The segments that
it replaces are renamed to `.deleted`, and its own files get their final names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eoslog.broker.log.compaction.cleaning_plan import CleaningPlan, SealedSegment
from eoslog.broker.log.compaction.compaction_rules import CleaningFacts, LastBatch
from eoslog.broker.log.partition.append import PartitionProducers
from eoslog.broker.log.partition.durability import Durability, Log
from eoslog.broker.log.partition.retention import DiscardedSegments
from eoslog.broker.log.recovery.leftovers import commit, give_up, move_in, prepare, take_out
from eoslog.broker.log.segment.segment import MAX_RELATIVE_OFFSET, Segment


class DirtyRatio(NamedTuple):
    """How much a log needs compaction."""

    ratio: float  # bytes not compacted yet to all bytes that can be compacted
    overdue: bool  # a record has waited for longer than max.compaction.lag.ms


class Compacting:
    """Says whether a log needs compaction, plans a run, and puts its result in place."""

    def __init__(
        self, log: Log, durability: Durability, producers: PartitionProducers, discarded: DiscardedSegments
    ) -> None:
        self._log, self._durability, self._producers = log, durability, producers
        self._discarded = discarded

    @property
    def cleaned_offset(self) -> int:
        """All offsets below are compacted."""
        known = self._log.checkpoints.cleaned.get(self._log.topic, self._log.index)
        return max(known if known <= self._log.end else 0, self._log.start)

    def dirty_ratio(self, now_ms: int) -> DirtyRatio | None:
        """How much this log needs compaction, None if it does not. Raises DamagedBatch, OSError."""
        if not self._log.settings.compacted or not self._log.usable:
            return None
        start, end = self.cleaned_offset, self._cleanable_end(now_ms)
        dirty = [s for s in self._below(end) if s.next_offset > start]
        size = sum(segment.size for segment in dirty)
        if not size:
            return None
        whole = size + sum(s.size for s in self._below(end) if s.next_offset <= start)
        dirty_ratio = DirtyRatio(size / whole, self._overdue(dirty, now_ms))
        return (
            dirty_ratio
            if dirty_ratio.ratio > self._log.settings.min_cleanable_dirty_ratio or dirty_ratio.overdue
            else None
        )

    def _overdue(self, dirty: list[Segment], now_ms: int) -> bool:
        since = now_ms - self._log.settings.max_compaction_lag_ms
        return since > 0 and any(0 < segment.oldest() < since for segment in dirty)

    def _below(self, end: int) -> Iterator[Segment]:
        """The sealed segments that lie wholly below `end`."""
        for segment in self._log.segments:
            if segment.next_offset > end or segment is self._log.segments.active:
                return
            yield segment

    def _cleanable_end(self, now_ms: int) -> int:
        """The offset up to which the log may be compacted.

        It leaves out the active segment, and records that are undecided, not durable, or too young.
        """
        stable = self._producers.last_stable_offset
        end = min(self._log.segments.active.base_offset, stable, self._durability.recovery_point)
        lag = self._log.settings.min_compaction_lag_ms
        if lag > 0:
            for segment in self._below(end):
                if segment.next_offset > self.cleaned_offset and segment.newest() > now_ms - lag:
                    return segment.base_offset
        return end

    def plan(self, now_ms: int) -> CleaningPlan:
        """The plan of a compaction run that starts now."""
        limit = self._cleanable_end(now_ms)
        sources = [
            SealedSegment(segment, segment.path, segment.size, segment.next_offset)
            for segment in self._below(limit)
        ]
        producers = {
            state.producer_id: LastBatch(state.batches[-1].last_offset if state.batches else -1, state.epoch)
            for state in self._producers.states.all()
        }
        retention = self._log.settings.delete_retention_ms
        return CleaningPlan(
            directory=self._log.directory,
            interval=self._log.settings.index_interval_bytes,
            sources=sources,
            first_dirty=self.cleaned_offset,
            end=sources[-1].next_offset if sources else self._log.start,
            groups=_grouped(sources, self._log.settings.segment_bytes),
            aborted=[entry for segment in self._log.segments for entry in segment.transactions.entries],
            facts=CleaningFacts(now_ms, retention, self._durability.high_watermark, producers),
        )

    def take_over(self, new: Segment, group: list[SealedSegment], now_ms: int) -> bool:
        """Replace the segments of `group` by the compacted one. False if they are not in the log any more.

        Raises OSError with nothing changed. If a later rename fails, the partition goes offline, and the next
        start finishes the renames.
        """
        old = [source.segment for source in group]
        if not self._log.usable or not self._log.segments.holds(old):
            return False
        if not self._log.has_gaps:
            self.cleaned_up_to(self.cleaned_offset)
        prepare(self._log.fs, self._log.directory, new.base_offset)
        try:
            commit(self._log.fs, self._log.directory, new.base_offset)
            renamed = take_out(self._log.fs, self._log.directory, new.base_offset, group[-1].next_offset)
            move_in(self._log.fs, self._log.directory, new.base_offset)
        except OSError as error:
            new.close()
            self._durability.fail(
                f"a compacted segment of offset {new.base_offset} is only half in place: {error}"
            )
        new.take_place()
        self._log.segments.replace(old, new)
        self._discarded.add(renamed, now_ms)
        for segment in old:
            self._durability.when_free(segment.close)
        return True

    def drop_cleaned(self, new: Segment) -> None:
        """Remove the files of a compacted segment that is not used. Raises OSError."""
        new.close()
        if not self._log.closed:
            give_up(self._log.fs, self._log.directory, new.base_offset)

    def cleaned_up_to(self, offset: int) -> None:
        """Store how far the log is compacted. Raises OSError; part of the log is then compacted again."""
        self._log.checkpoints.cleaned.put(self._log.topic, self._log.index, offset)


def _grouped(sources: list[SealedSegment], segment_bytes: int) -> list[list[SealedSegment]]:
    """Groups of neighbouring segments that fit into one, by size and by the span of their offsets."""
    groups: list[list[SealedSegment]] = []
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
