"""Numbers every offset that is audited: its line. Pure.

Lines count on through all partitions. Without a bound of the user's own, a partition's lines begin at offset
0, so that rows of records which the topic no longer has have lines too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.audit.bounds import AuditedRange

Longs = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Located:
    """For each row its line, or why it has none."""

    line: npt.NDArray[np.uint64]
    number: Longs
    """Its partition's, -1 for none."""
    offset: Longs
    inside: Bools
    beyond: Bools
    """At the topic's end or behind it."""
    outside: Bools
    """Outside of bounds that the user gave."""
    foreign: Bools
    """Of no partition that is audited, or without partition and offset."""


class Lines:
    """The lines of partitions. `from_start`, `to_end`: the user gave no bound there."""

    def __init__(self, places: Sequence[AuditedRange], *, from_start: bool, to_end: bool) -> None:
        self._places, self._to_end = places, to_end
        self._starts = np.array([place.start for place in places], np.int64)
        self._ends = np.array([place.end for place in places], np.int64)
        self._lows = np.zeros_like(self._starts) if from_start else self._starts
        sizes = self._ends - self._lows
        self._bases = np.cumsum(sizes) - sizes
        self.count = int(sizes.sum())
        self._numbers = {topic: _numbers(places, topic) for topic in {place.topic for place in places}}

    def of_place(self, number: int, offsets: Longs) -> npt.NDArray[np.uint64]:
        """The lines of a partition's offsets."""
        lines: npt.NDArray[np.uint64] = (offsets - self._lows[number] + self._bases[number]).astype(np.uint64)
        return lines

    def back(self, lines: npt.NDArray[np.uint64]) -> tuple[Longs, Longs]:
        """The partition's number and the offset of each line."""
        at = lines.astype(np.int64)
        number = np.searchsorted(self._bases, at, "right") - 1
        return number, at - self._bases[number] + self._lows[number]

    def before_start(self, lines: npt.NDArray[np.uint64]) -> Bools:
        """Which lines are of offsets that the log no longer has."""
        number, offset = self.back(lines)
        before: Bools = offset < self._starts[number]
        return before

    def locate(self, topic: pa.Array | None, partition: pa.Array, offset: pa.Array) -> Located:
        """The line of each row. Without topics, all rows are of the one topic that is audited."""
        number = np.full(len(offset), -1)
        partitions, there = _longs(partition)
        offsets, known = _longs(offset)
        there &= known & (offsets >= 0)
        for name, numbers in self._numbers.items():
            mine = there & (partitions >= 0) & (partitions < len(numbers))
            if topic is not None:
                mine &= pc.fill_null(pc.equal(topic, name), False).to_numpy(zero_copy_only=False)
            number[mine] = numbers[partitions[mine]]
        found = number >= 0
        low, end = self._lows[number], self._ends[number]
        beyond, before = found & (offsets >= end), found & (offsets < low)
        inside = found & ~beyond & ~before
        line = np.where(inside, offsets - low + self._bases[number], 0).astype(np.uint64)
        outside = before if self._to_end else before | beyond
        return Located(line, number, offsets, inside, beyond & ~outside, outside, ~found)


def _numbers(places: Sequence[AuditedRange], topic: str) -> Longs:
    """For each partition of a topic the number of its place, -1 for none."""
    mine = {place.partition: number for number, place in enumerate(places) if place.topic == topic}
    return np.array([mine.get(partition, -1) for partition in range(max(mine) + 1)], np.int64)


def _longs(column: pa.Array) -> tuple[Longs, Bools]:
    there: Bools = column.is_valid().to_numpy(zero_copy_only=False).copy()
    values: Longs = pc.fill_null(column, -1).to_numpy(zero_copy_only=False)
    return values, there
