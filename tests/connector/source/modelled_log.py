"""A partition's log by Kafka's rule of ListOffsets for times, with all that makes its answers odd. No broker.

Kafka (UnifiedLog.fetchOffsetByTimestamp, LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp)
looks for the first segment whose largest timestamp is not older, and only in it for the first batch and
record. A batch that compaction has emptied keeps its largest timestamp, and so does its segment, as does one
whose first records were deleted. A segment without any timestamp counts as old as its file.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import strategies as st

NEVER = -1


class Record(NamedTuple):
    """A record: its offset, time (ms) and whether the broker has set that."""

    offset: int
    time: int
    by_broker: bool = False


@dataclass
class Batch:
    """Records and the largest time in the header: that of the batch as it was written."""

    largest: int
    records: list[Record]


@dataclass
class Segment:
    """Batches, and when the file was changed last (ms)."""

    changed: int
    batches: list[Batch] = field(default_factory=list)

    @property
    def largest_known(self) -> int:
        return max((batch.largest for batch in self.batches), default=NEVER)

    @property
    def largest(self) -> int:
        return self.largest_known if self.largest_known >= 0 else self.changed


@dataclass
class Log:
    """Segments; readers see the offsets from `start` to below `end`."""

    segments: list[Segment]
    start: int
    end: int

    def records(self) -> list[Record]:
        """What a reader sees."""
        every = (r for segment in self.segments for batch in segment.batches for r in batch.records)
        return [record for record in every if record.offset >= self.start]

    def at(self, time: int) -> tuple[int, int]:
        """(offset, timestamp) for a time, or (-1, -1)."""
        for segment in self.segments:
            if segment.largest >= time:
                return self._in(segment, time)
        return NEVER, NEVER

    def newest(self) -> tuple[int, int]:
        """(offset, timestamp) of the largest time; (-1, -1) also if its batch is empty now."""
        segment = max(self.segments, key=lambda one: one.largest_known)
        batch = next((one for one in segment.batches if one.largest == segment.largest_known), None)
        if batch is None or not batch.records:
            return NEVER, NEVER
        found = max(batch.records, key=lambda record: record.time)
        return found.offset, batch.largest

    def _in(self, segment: Segment, time: int) -> tuple[int, int]:
        for batch in segment.batches:
            if batch.largest >= time:
                for record in batch.records:
                    if record.time >= time and record.offset >= self.start:
                        return record.offset, record.time
        return NEVER, NEVER


TIMES = st.sampled_from([NEVER, 0, 1, 2, 3, 5, 8, 13, 900_000, 900_005, 2_000_000])
"""Few, so that filters meet them; some are further apart than brokers' clocks may be."""


@st.composite
def logs(draw: st.DrawFn, by_broker: bool = False) -> Log:
    """Random logs. `by_broker`: the times are the brokers', whose clocks are up to 10 minutes apart; those of
    the first records may be the producers'."""
    count = draw(st.integers(0, 14))
    times = draw(st.lists(TIMES, min_size=count, max_size=count))
    switched = draw(st.integers(0, count)) if by_broker else count
    if by_broker:
        times[switched:] = _nearly_rising(draw, count - switched)
    records = [Record(n, time, by_broker and n >= switched) for n, time in enumerate(times)]
    segments = [Segment(draw(TIMES))]
    for record in records:
        if draw(st.booleans()) or not segments[-1].batches:
            if draw(st.integers(0, 3)) == 0:
                segments.append(Segment(draw(TIMES)))
            segments[-1].batches.append(Batch(NEVER, []))
        batch = segments[-1].batches[-1]
        batch.largest = max(batch.largest, record.time)
        if draw(st.integers(0, 3)) != 0:  # else compacted away
            batch.records.append(record)
    return Log(segments, draw(st.integers(0, count)) if count else 0, count)


def _nearly_rising(draw: st.DrawFn, count: int) -> list[int]:
    steps = draw(st.lists(st.sampled_from([0, 1, 300_000]), min_size=count, max_size=count))
    off = draw(st.lists(st.sampled_from([0, 0, 1, 299_999]), min_size=count, max_size=count))
    return [sum(steps[: n + 1]) + 300_000 - off[n] for n in range(count)]
