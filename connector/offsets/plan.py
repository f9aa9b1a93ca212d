"""Which offsets a batch covers, by the log and the batch before it, and how its tasks share them. Pure."""

import itertools
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from pyspark.sql.datasource import InputPartition

from eoslog.connector.offsets.offsets import Offsets, SourcePosition, TakenFrom
from eoslog.protocol.topic_partitions import TopicPartition


@dataclass
class Range(InputPartition):
    """Offsets start..end-1 of one partition: what one task reads."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None

    @property
    def size(self) -> int:
        """How many offsets; there may be fewer records."""
        return self.end - self.start


@dataclass
class TaskRanges(InputPartition):
    """Small ranges that one task reads, one after another."""

    ranges: tuple[Range, ...]


def share(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int) -> Offsets:
    """The ends of a batch of about `most` offsets between `start` and `end`, shared in proportion to each
    partition's backlog. As in Spark's Kafka source, a partition with a backlog gets at least one offset, so
    that none starves; with more partitions than `most` the batch is larger.
    """
    sizes = {tp: max(end[tp] - start.get(tp, end[tp]), 0) for tp in end}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    return {
        tp: end[tp] - size + max(size * most // total, 1) if size else end[tp] for tp, size in sizes.items()
    }


def ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    ids: Mapping[str, str] | None = None,
) -> list[Range]:
    """One range for each partition that has offsets to read, in order."""
    known = ids or {}
    return [Range(*tp, start[tp], end[tp], known.get(tp[0])) for tp in sorted(end) if end[tp] > start[tp]]


def split(whole: list[Range], min_partitions: int | None, max_records: int | None) -> list[Range]:
    """Split ranges so that none has more than `max_records` offsets, and then so that there are about
    `min_partitions`; larger ranges are split into more pieces."""
    pieces = [piece for r in whole for piece in _pieces(r, -(-r.size // max_records) if max_records else 1)]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(piece.size for piece in pieces)
    return [p for piece in pieces for p in _pieces(piece, max(round(piece.size * min_partitions / total), 1))]


def _pieces(whole: Range, count: int) -> list[Range]:
    """Split a range into `count` pieces of nearly equal size."""
    count = min(max(count, 1), whole.size)
    bounds = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [replace(whole, start=a, end=b) for a, b in itertools.pairwise(bounds)]


class Divergence(NamedTuple):
    """The `offset` up to which the log is still the one that a query has read to `position`, in `epoch`.

    `now`: the leader epoch that ends at `offset` in the present log. Both are -1 if that log has no epoch
    comparable to the query's.
    """

    position: int
    epoch: int
    offset: int
    now: int

    def __str__(self) -> str:
        if self.offset < 0:
            return (
                f"the query is at {self.position} in leader epoch {self.epoch}, which the log does not have "
                "any more: it was restored from an older copy"
            )
        return (
            f"the query is at {self.position} in leader epoch {self.epoch}, and the log differs from offset "
            f"{self.offset} on, where its epoch {self.now} ends and another one begins: it was restored from "
            "an older copy, or cut, or a replica without these records became its leader "
            "(unclean.leader.election.enable); the records read from there on are not in it, and those "
            "written there since were not read"
        )


@dataclass(frozen=True)
class Losses:
    """Differences between a query's position and the present log.

    `gone`: partitions that are no longer there. `back`: partitions that end before the query's
    position, as (position, end), because the topic was created again or truncated. `recreated`: topics that
    have another id now, as (then, now), whatever their ends. `early`: partitions that begin after the query's
    position, as (position, beginning, end), because records were deleted. `parted`: partitions whose log
    differs below the query's position, by their leader epochs. `dropped`: partitions that the options select
    no more.
    """

    gone: tuple[TopicPartition, ...]
    back: dict[TopicPartition, tuple[int, int]]
    recreated: dict[str, tuple[str, str]] = field(default_factory=dict)
    early: dict[TopicPartition, tuple[int, int, int]] = field(default_factory=dict)
    parted: dict[TopicPartition, Divergence] = field(default_factory=dict)
    dropped: tuple[TopicPartition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.gone or self.back or self.recreated or self.early or self.parted or self.dropped)

    def apart(self, selects: Callable[[TopicPartition], bool]) -> Self:
        """The same, with what the options select no more apart from what is gone."""
        dropped = tuple(tp for tp in self.gone if not selects(tp))
        return replace(self, gone=tuple(tp for tp in self.gone if selects(tp)), dropped=dropped)

    def __str__(self) -> str:
        said = [
            f"topic {topic} was deleted and created again: the query's offsets are of the one with the id "
            f"{old}, and now its id is {new}"
            for topic, (old, new) in self.recreated.items()
        ]
        said += [f"{topic}-{p} does not exist any more" for topic, p in self.gone]
        said += [
            f"{topic}-{p} was read before, and subscribe, subscribePattern or assign no longer names it"
            for topic, p in self.dropped
        ]
        said += [
            f"{topic}-{p} ends at {end}, before {at}, where the query is: the log was cut, or restored "
            "from an older copy"
            for (topic, p), (at, end) in self.back.items()
        ]
        said += [
            f"{topic}-{p} begins at {first} and ends at {end}, and the query is at {at}: the records between "
            "were deleted before they were read (retention.ms, retention.bytes, or by hand)"
            for (topic, p), (at, first, end) in self.early.items()
        ]
        said += [f"{topic}-{p}: {found}" for (topic, p), found in self.parted.items()]
        return "; ".join(said)


class BeginsUnknown(NamedTuple):
    """A first batch that another source has planned: it says where the batch ends, not where it begins. That
    cannot be looked up again if startingOffsets is a place that moves."""

    ends: Offsets

    def __str__(self) -> str:
        said = ", ".join(f"{topic}-{p} at {at}" for (topic, p), at in sorted(self.ends.items()))
        return (
            f"the query's first batch was planned by another source and is not done. It ends in {said}; "
            "where it begins is not in the checkpoint's offsets/, and startingOffsets is a later place now "
            "than then, so rows may be left out. Spark's Kafka source has noted the beginning in sources/, "
            "in the file 0 of the source's number: give its last line as startingOffsets"
        )


def losses(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    ids: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
    earliest: Mapping[TopicPartition, int] | None = None,
) -> Losses:
    """Compare a query's position with the log's ends and, if given, its beginnings. `ids`: the topics' ids
    then and now."""
    changed = recreated(*ids)
    gone = tuple(sorted(tp for tp in start if tp not in latest and tp[0] not in changed))
    back = {tp: (start[tp], latest[tp]) for tp in sorted(start) if tp in latest and latest[tp] < start[tp]}
    begins = {tp: (start[tp], first, latest[tp]) for tp, first in (earliest or {}).items() if tp in latest}
    early = {tp: found for tp, found in begins.items() if found[0] < found[1] and tp[0] not in changed}
    return Losses(gone, {tp: found for tp, found in back.items() if tp[0] not in changed}, changed, early)


def recreated(then: Mapping[str, str], now: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Topics whose ids then and now are known and differ, with both ids."""
    return {t: (then[t], now[t]) for t in sorted(then) if t in now and then[t] != now[t]}


def without(offsets: Mapping[TopicPartition, int], topics: Collection[str]) -> Offsets:
    """The offsets without those of some topics."""
    return {tp: at for tp, at in offsets.items() if tp[0] not in topics}


def back_to(parted: Mapping[TopicPartition, Divergence], until: SourcePosition) -> SourcePosition:
    """The end, but no further than the log is still the one that was read."""
    known = {tp: found for tp, found in parted.items() if found.offset >= 0}
    ends = {**until.offsets, **{tp: found.offset for tp, found in known.items()}}
    return until._replace(offsets=ends, epochs={**until.epochs, **{tp: f.now for tp, f in known.items()}})


def moved_only(
    until: SourcePosition, position: SourcePosition, parted: Container[TopicPartition]
) -> SourcePosition:
    """The end with the old epochs for partitions that have not moved, and with the old `taken` and `began` if
    none has moved: Spark takes a changed text for new data. Partitions whose log differs, or whose topic was
    made anew, always get new epochs."""
    anew = recreated(position.ids, until.ids)
    ends = {tp: at for tp, at in until.offsets.items() if tp[0] not in anew}
    same = {tp for tp, at in ends.items() if position.offsets.get(tp) == at and tp not in parted}
    epochs = {tp: epoch for tp, epoch in until.epochs.items() if tp not in same}
    kept = {tp: e for tp, e in position.epochs.items() if tp in same}
    stands = not anew and until.offsets == position.offsets
    taken, began = (position.taken, position.began) if stands else (frozenset[TakenFrom](), None)
    return until._replace(epochs={**epochs, **kept}, taken=taken, began=began)
