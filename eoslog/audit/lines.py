"""Judges rows of a table that name their partition and offset, by line: the number of an offset. Pure.

Lines count on through all partitions. Without a bound of the user's own, a partition's lines begin at offset
0, so that rows of records which the topic no longer has have lines too.

All rows of a line are judged together. A row of the table at an offset without a committed
record is a phantom if the log has shown that there is none: the transaction was aborted, or the offset is a
marker's. What compaction or retention may have removed cannot be checked. Two rows of one offset are doubled
all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.findings import DOUBLED, FOREIGN, PHANTOM, Findings
from eoslog.audit.match import DigestsCollide
from eoslog.audit.spill import OneKey, Rows
from eoslog.errors import EoslogError

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


REPLACED, RECORD, SEEN = -3, -2, -1
"""What `place` is for a committed record that a newer one of its key has replaced, or that deletes; for any
other committed record of the topic; and for any record there that a compacted topic has."""

LINE_ROW = np.dtype([
    ("line", "<u8"),
    ("digest", "<u8"), ("more", "<u8"),  # the two halves of the digest of key and value
    ("offset", "<i8"), ("place", "<i4"),  # a row of a file of the table; in the topic: RECORD or SEEN
])  # fmt: skip
"""A record of the topic, or a row of the table."""

Rule = Callable[[Rows], Bools]


@dataclass(frozen=True, slots=True)
class LineVerdict:
    """Rows of LINE_ROW. `doubled_first`: for each row of `doubled` the table's first of its line."""

    matched: int
    lost: Rows
    doubled: Rows
    doubled_first: Rows
    altered: Rows
    phantom: Rows
    unchecked: Rows
    older: Rows


def judge(rows: Rows, gone: Rule, known: int = 0) -> LineVerdict:
    """Judge all rows of some lines; those of a line are in order: records, then rows of the table.

    `gone`: which rows are at offsets whose record, if there is none, may have been removed. `known`: so many
    rows at the beginning were judged before, and are here again for those that follow.
    """
    order = np.argsort(rows["line"], kind="stable")
    rows = rows[order]
    fresh = order >= known
    heads = np.concatenate([[True], rows["line"][1:] != rows["line"][:-1]])
    first = np.flatnonzero(heads)
    group = np.cumsum(heads) - 1
    in_table = rows["place"] >= 0
    has_record = (rows["place"] == RECORD)[first]
    was_replaced = (rows["place"] == REPLACED)[first][group]
    seen = np.add.reduceat((rows["place"] == SEEN).astype(np.int64), first) > 0
    count = np.add.reduceat(in_table.astype(np.int64), first)
    first_in_table = first + np.diff(np.append(first, len(rows))) - count
    position = np.arange(len(rows))
    again = in_table & (position > first_in_table[group])
    recorded = has_record[group]
    missing = in_table & ~recorded & ~was_replaced
    maybe = missing & gone(rows) & ~seen[group]
    source = rows[first[group]]
    differs = (rows["digest"] != source["digest"]) | (rows["more"] != source["more"])
    doubled = again & (recorded | maybe) & fresh
    return LineVerdict(
        matched=int(np.count_nonzero(in_table & ~again & recorded & fresh)),
        lost=rows[(rows["place"] == RECORD) & (count == 0)[group] & fresh],
        doubled=rows[doubled],
        doubled_first=rows[first_in_table[group[doubled]]],
        altered=rows[in_table & recorded & differs & fresh],
        phantom=rows[missing & ~maybe & fresh],
        unchecked=rows[maybe & ~again & fresh],
        older=rows[in_table & was_replaced & fresh],
    )


def judge_one(one: OneKey, gone: Rule, size: int) -> Iterator[LineVerdict]:
    """Judge more rows of one line than fit into memory, piece by piece."""
    head: Rows | None = None
    for rows in one.pieces(max(size, 3)):
        if head is None:
            yield judge(rows, gone)
            head = rows[: int(np.count_nonzero(rows["place"][:3] < 0)) + 1]
        else:
            yield judge(np.concatenate([head, rows]), gone, known=len(head))


def verdicts(rows: Rows | OneKey, gone: Rule, limit: int) -> Iterable[LineVerdict]:
    """The verdicts about all rows of some lines."""
    return judge_one(rows, gone, limit) if isinstance(rows, OneKey) else [judge(rows, gone)]


# -- the newest record of each key ---------------------------------------------------------------

KEYED = np.dtype([("key", "<u8"), ("key_more", "<u8"), ("number", "<i4"), ("deletes", "?"), *LINE_ROW.descr])
"""A committed record with the two halves of the digest of its key, and the number of its partition."""


class KeyMoves(EoslogError):
    """Records of one key are in two partitions, so nobody can tell which is the newest."""

    def __init__(self, one: Rows, two: Rows) -> None:
        self.records = (one, two)
        super().__init__("records of one key are in two partitions")


def newest(rows: Rows | OneKey, limit: int) -> Iterator[Rows]:
    """Of all records of some keys, as rows of LINE_ROW: those that the table has to have, as RECORD, and the
    others, as REPLACED. Raises KeyMoves, DigestsCollide."""
    if not isinstance(rows, OneKey):
        yield _newest(rows)
        return
    waits: Rows | None = None
    for piece in rows.pieces(limit):
        joined = piece if waits is None else np.concatenate([waits, piece])
        if np.any(joined["key_more"] != joined["key_more"][0]):
            raise DigestsCollide
        found = _newest(joined)
        last = int(np.argmax(joined["offset"]))
        waits = joined[last : last + 1]
        yield found[found["line"] != waits["line"]]
    if waits is not None:
        yield _newest(waits)


def _newest(rows: Rows) -> Rows:
    rows = rows[np.lexsort((rows["offset"], rows["key_more"], rows["key"]))]
    same = (rows["key"][1:] == rows["key"][:-1]) & (rows["key_more"][1:] == rows["key_more"][:-1])
    moved = np.flatnonzero(same & (rows["number"][1:] != rows["number"][:-1]))
    if len(moved):
        raise KeyMoves(rows[moved[0]], rows[moved[0] + 1])
    found = np.empty(len(rows), LINE_ROW)
    for name in LINE_ROW.names or ():
        found[name] = rows[name]
    found["place"] = np.where(np.append(~same, True) & ~rows["deletes"], RECORD, REPLACED)
    return found


AT = np.dtype([("place", "<i8"), ("offset", "<i8")])
"""A position in a place."""


def note(verdict: LineVerdict, lines: Lines, findings: Findings) -> None:
    """Note what was found in some lines."""

    def records(rows: Rows) -> Rows:
        found = np.empty(len(rows), AT)
        found["place"], found["offset"] = lines.back(rows["line"])
        return found

    def in_table(rows: Rows) -> Rows:
        found = np.empty(len(rows), AT)
        found["place"], found["offset"] = rows["place"].astype(np.int64) + findings.sources, rows["offset"]
        return found

    findings.matched += verdict.matched
    findings.lose(records(verdict.lost))
    findings[DOUBLED].add(
        in_table(verdict.doubled), records(verdict.doubled), in_table(verdict.doubled_first)
    )
    for kind in findings.kinds.keys() & {"altered", "phantom", "unchecked", "older"}:
        found: Rows = getattr(verdict, kind)
        findings[kind].add(in_table(found), records(found))


def note_unnumbered(findings: Findings, file: int, first: int, located: Located) -> None:
    """Note rows of a file that have no line; `first`: the number of the first of these rows."""
    at = np.empty(len(located.line), AT)
    at["place"], at["offset"] = findings.sources + file, first + np.arange(len(at))
    source = np.empty(len(at), AT)
    source["place"], source["offset"] = located.number, located.offset
    findings[PHANTOM].add(at[located.beyond], source[located.beyond])
    findings[FOREIGN].add(at[located.foreign])
    findings.outside += int(np.count_nonzero(located.outside))
