"""Checks that records in the target have the order of the source.

Take the records of one source partition that are in one target partition: their offsets in the source must
rise with those in the target. Kafka has no order among records of different source partitions, or in
different target partitions. With groups, only records of the same group are compared.

A break is a record whose predecessor (of the same two partitions) comes after it in the source. So one record
that was moved is one break, and records that are all in order have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eoslog.audit.findings import FOUND, AuditedPlace
from eoslog.audit.match import Verdict
from eoslog.audit.spill import OneKey, Rows, Spill
from eoslog.commands.output import ProgressListener
from eoslog.protocol.varints import Ints

PAIR = np.dtype([
    ("line", "<u8"),  # its position in the target: offsets counted on through all target places
    ("group", "<u8"),
    ("offset", "<i8"), ("place", "<u4"),  # its position in the source
])  # fmt: skip
"""A record of the source and its position in the target."""


@dataclass(frozen=True, slots=True)
class Breaks:
    """Rows of `PAIR`: row i of `late` follows row i of `before`, but should not."""

    late: Rows
    before: Rows

    def __len__(self) -> int:
        return len(self.late)


class RunningOrder:
    """Checks rows that come range by range, in the order of the target.

    `bases`: the first line of each target place. `sources`: the number of source places.
    """

    def __init__(self, bases: Ints, sources: int) -> None:
        self._bases = bases
        self._target = -1  # the last place that was checked, and its last row from each source place
        self._last = np.zeros(sources, PAIR)
        self._known = np.zeros(sources, np.bool_)

    def check(self, rows: Rows) -> Breaks:
        """The breaks among rows in any order, whose lines are all above those of earlier calls."""
        target = np.searchsorted(self._bases, rows["line"], "right") - 1
        order = np.lexsort((rows["line"], rows["place"], target))
        rows, target = rows[order], target[order]
        same = (target[1:] == target[:-1]) & (rows["place"][1:] == rows["place"][:-1])
        late = np.flatnonzero(same & (rows["offset"][1:] < rows["offset"][:-1])) + 1
        heads = np.flatnonzero(np.concatenate([[True], ~same]))
        carried = heads[(target[heads] == self._target) & self._known[rows["place"][heads]]]
        before = self._last[rows["place"][carried]]
        late_heads = rows["offset"][carried] < before["offset"]
        self._carry(rows, target, np.append(heads[1:], len(rows)) - 1)
        return Breaks(
            np.concatenate([rows[carried[late_heads]], rows[late]]),
            np.concatenate([before[late_heads], rows[late - 1]]),
        )

    def _carry(self, rows: Rows, target: Ints, tails: Ints) -> None:
        """Keep the last rows of the last target place."""
        if target[-1] != self._target:
            self._target = int(target[-1])
            self._known[:] = False
        tails = tails[target[tails] == self._target]
        self._last[rows["place"][tails]] = rows[tails]
        self._known[rows["place"][tails]] = True


def check_groups(rows: Rows, bases: Ints) -> Breaks:
    """The breaks within each group; all rows of a group must be given, in any order."""
    target = np.searchsorted(bases, rows["line"], "right") - 1
    order = np.lexsort((rows["line"], rows["place"], target, rows["group"]))
    rows, target = rows[order], target[order]
    same = (target[1:] == target[:-1]) & (rows["place"][1:] == rows["place"][:-1])
    same &= rows["group"][1:] == rows["group"][:-1]
    late = np.flatnonzero(same & (rows["offset"][1:] < rows["offset"][:-1])) + 1
    return Breaks(rows[late], rows[late - 1])


class OrderCheck:
    """Pairs of records that wait on disk until all are known, and are then checked: by key, or by their
    position in the target. `places`: those of the source, `sources` of them, then those of the target."""

    def __init__(
        self, places: Sequence[AuditedPlace], sources: int, directory: Path, *, by_key: bool, limit: int
    ) -> None:
        self._sources, self._directory, self._by_key, self._limit = sources, directory, by_key, limit
        sizes = np.array([place.size for place in places[sources:]], np.int64)
        self._bases = np.cumsum(sizes) - sizes
        self._starts = np.array([place.start for place in places[sources:]], np.int64)
        self._lines = int(sizes.sum())
        self._pairs = (
            Spill(directory / "pairs", PAIR, "group", expected=self._lines, limit=limit)
            if by_key
            else self._by_line(directory / "pairs", self._lines)
        )

    def add(self, verdict: Verdict) -> None:
        """Keep the pairs that a verdict is sure of."""
        target = verdict.target["place"].astype(np.int64) - self._sources
        rows = np.empty(len(verdict.source), PAIR)
        rows["line"] = self._bases[target] + verdict.target["offset"] - self._starts[target]
        for name in ("group", "offset", "place"):
            rows[name] = verdict.source[name]
        self._pairs.add(rows)

    def check(self, watch: ProgressListener) -> Iterator[Rows]:
        """What is out of order, as rows of FOUND. Raises OSError (the disk is full)."""
        watch.begin("checking the order", self._pairs.count)
        running = RunningOrder(self._bases, self._sources)
        for rows in self._pairs.ranges():
            if isinstance(rows, OneKey):
                yield from self._one_group(rows)
            elif self._by_key:
                yield self._found(check_groups(rows, self._bases))
            else:
                yield self._found(running.check(rows))
            watch.advance(len(rows))

    def _one_group(self, group: OneKey) -> Iterator[Rows]:
        """Check a group that does not fit into memory: its rows are sorted by position in the target."""
        spill = self._by_line(self._directory / "group", group.count)
        for piece in group.pieces(self._limit):
            spill.add(piece)
        running = RunningOrder(self._bases, self._sources)
        for rows in spill.ranges():
            assert not isinstance(rows, OneKey), "no two rows of the target have the same line"
            yield self._found(running.check(rows))

    def _by_line(self, directory: Path, expected: int) -> Spill:
        return Spill(
            directory, PAIR, "line", high=max(self._lines - 1, 0), expected=expected, limit=self._limit
        )

    def _found(self, breaks: Breaks) -> Rows:
        found = np.full(len(breaks), -1, FOUND)
        for name, rows in (("", breaks.late), ("other_", breaks.before)):
            at, lines = name.rstrip("_") or "at", rows["line"].astype(np.int64)
            target = np.searchsorted(self._bases, lines, "right") - 1
            found[f"{at}_place"] = target + self._sources
            found[f"{at}_offset"] = lines - self._bases[target] + self._starts[target]
            found[f"{name}source_place"], found[f"{name}source_offset"] = rows["place"], rows["offset"]
        return found
