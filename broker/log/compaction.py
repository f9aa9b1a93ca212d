"""Compaction as the event loop sees it: its rules, the plan of a run, and putting the result into the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from eoslog.broker.log.append import PartitionProducers
from eoslog.broker.log.durability import Durability, Log
from eoslog.broker.log.leftovers import commit, give_up, move_in, prepare, take_out
from eoslog.broker.log.retention import DiscardedSegments
from eoslog.broker.log.segment import MAX_RELATIVE_OFFSET, Segment
from eoslog.broker.rules.producer_state import AbortedTransaction
from eoslog.protocol.batch import BatchHeader
from eoslog.protocol.control import ABORT, COMMIT

# -- rules -----------------------------------------------------------------------------------------
# The rules of compaction: which keys are superseded, which transactions count, what of a batch stays. Pure.
#
# A run first maps each key of the part that is not compacted yet to its last offset, without aborted data.
# Then it goes through the log from its start, oldest batch first:
#
# | batch                                    | what stays                                             |
# |------------------------------------------|--------------------------------------------------------|
# | data of an aborted transaction           | nothing                                                |
# | other data                               | records that are the last of their key, or not mapped  |
# | - a tombstone among them                 | until the batch's delete horizon has passed            |
# | - a record without a key                 | never                                                  |
# | end marker, data of its transaction seen | all                                                    |
# | end marker, none seen                    | until its delete horizon has passed                    |
#
# The delete horizon (KIP-534) is set the first time that a run keeps a tombstone or meets a marker without
# data: delete.retention.ms from then on. A batch that keeps no record is dropped, unless it is the last one
# of its producer (its sequence must be known), the last one below the high watermark, or the last one of
# its segment: then its header stays. The last of these is not in Kafka: here segments follow each other
# without a gap, so that recovery notices a lost segment.


ENTRY_BYTES = 200
"""Memory that one key of the map takes, about: a digest, an offset, and their place in a table."""


def digest(key: bytes) -> bytes:
    """The 16 bytes that represent a key in the map; enough that no two keys ever share them."""
    return blake2b(key, digest_size=16).digest()


class KeyMap:
    """The last offset of each key, up to `latest`, for as many keys as there is memory for."""

    def __init__(self, memory: int) -> None:
        """`memory` in bytes."""
        self._most = max(1, memory // ENTRY_BYTES)
        self._offsets: dict[bytes, int] = {}
        self.latest = -1
        """All records up to this offset are in the map."""

    def add(self, keys: Iterable[bytes | None], offsets: Iterable[int]) -> bool:
        """Add records in the order of the log. False: the map is full, and `latest` is the last one in it."""
        known = self._offsets
        for key, offset in zip(keys, offsets, strict=True):
            if key is not None:
                name = digest(key)
                if len(known) >= self._most and name not in known:
                    return False
                known[name] = offset
            self.latest = offset
        return True

    def superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record of the key is known."""
        return self._offsets.get(digest(key), -1) > offset

    def __len__(self) -> int:
        return len(self._offsets)


class _Open:
    """An aborted transaction whose marker is still to come."""

    def __init__(self, entry: AbortedTransaction) -> None:
        self.entry = entry
        self.seen = False  # whether a batch of its data is in the log

    def reaches(self, header: BatchHeader) -> bool:
        """Whether a batch or marker of its producer is of this transaction: none comes behind its marker."""
        return header.base_offset <= self.entry.last_offset


class TransactionEndings:
    """Knows how each transaction ended, while a run goes through the log in order, from any place on.

    An aborted one reaches up to its marker's offset, whether the run comes by that marker or not.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted`: the entries of all transaction indexes."""
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, _Open] = {}
        self._committed: set[int] = set()

    def _begin(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            entry = self._coming.pop()
            self._aborted[entry.producer_id] = _Open(entry)  # the one before has ended

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None or not found.reaches(header):
            self._committed.add(header.producer_id)
            return False
        found.seen = True
        return True

    def end(self, header: BatchHeader, kind: int) -> tuple[bool, AbortedTransaction | None]:
        """Whether no data of its transaction was in the log, and the entry for the new index, if any."""
        self._begin(header.last_offset)
        pid = header.producer_id
        if kind == ABORT:
            found = self._aborted.pop(pid, None)
            if found is None or not found.seen or not found.reaches(header):
                return True, None
            return False, found.entry
        if kind == COMMIT:
            seen = pid in self._committed
            self._committed.discard(pid)
            return not seen, None
        return False, None


class LastBatch(NamedTuple):
    """A producer's last batch: its last offset, or -1 if only a marker of `epoch` is known."""

    offset: int
    epoch: int


class CleaningFacts(NamedTuple):
    """What a run knows about its log. Times in ms."""

    now_ms: int
    delete_retention_ms: int
    high_watermark: int
    producers: dict[int, LastBatch]

    def must_stay(self, header: BatchHeader, last_of_segment: bool) -> bool:
        """Whether the header of this batch must stay even if no record does."""
        if last_of_segment or header.next_offset == self.high_watermark:
            return True
        last = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset >= 0:
            return header.last_offset == last.offset
        return header.is_control and header.producer_epoch == last.epoch

    def expired(self, header: BatchHeader) -> bool:
        """Whether the delete horizon of a batch has passed."""
        return header.has_delete_horizon and header.base_timestamp <= self.now_ms

    @property
    def horizon(self) -> int:
        """The delete horizon for a batch that gets one in this run."""
        return self.now_ms + self.delete_retention_ms


def survivors(
    keys: Sequence[bytes | None],
    offsets: Sequence[int],
    is_tombstone: Sequence[bool],
    without_tombstones: bool,
    superseded: Callable[[bytes, int], bool],
    latest: int,
) -> list[bool]:
    """Whether each record of a batch stays."""
    return [
        offset > latest
        or (key is not None and not (tombstone and without_tombstones) and not superseded(key, offset))
        for key, offset, tombstone in zip(keys, offsets, is_tombstone, strict=True)
    ]


# -- the plan of a run -----------------------------------------------------------------------------
# The plan of one compaction run: made on the event loop, executed in a thread.
#
# It stands apart from `cleaning`, which needs NumPy: the broker's start does not.


class SealedSegment(NamedTuple):
    """A sealed segment as it was when the plan was made."""

    segment: Segment
    path: str
    size: int
    next_offset: int


@dataclass(frozen=True)
class CleaningPlan:
    """The input of a run. Sizes in bytes."""

    directory: str
    interval: int  # index.interval.bytes
    sources: list[SealedSegment]  # all sealed segments up to `end`, from the start of the log on
    first_dirty: int
    end: int
    groups: list[list[SealedSegment]]
    aborted: list[AbortedTransaction]
    facts: CleaningFacts


# -- partition compaction --------------------------------------------------------------------------
# A partition's side of compaction: whether it is needed, the plan of a run, and putting the result in place.
#
# All of this runs on the event loop. Renames put a compacted segment in place (`leftovers` lists the states
# that a crash may leave): its indexes get the suffix `.swap`, then its log, which commits it. The segments
# that it replaces are renamed to `.deleted`, and its own files get their final names.


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
