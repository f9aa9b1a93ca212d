"""Which records a table lacks, and which of its rows are doubled, altered or phantoms. Pure.

All rows of a line (`lines.py`) are judged together. A row of the table at an offset without a committed
record is a phantom if the log has shown that there is none: the transaction was aborted, or the offset is a
marker's. What compaction or retention may have removed cannot be checked. Two rows of one offset are doubled
all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from eoslog.audit.lines import Bools
from eoslog.audit.rows import Rows
from eoslog.audit.spill import OneKey

RECORD, SEEN = -2, -1
"""What `file` is for a committed record of the topic, and for any record there that a compacted topic has."""

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
    seen = np.add.reduceat((rows["place"] == SEEN).astype(np.int64), first) > 0
    count = np.add.reduceat(in_table.astype(np.int64), first)
    first_in_table = first + np.diff(np.append(first, len(rows))) - count
    position = np.arange(len(rows))
    again = in_table & (position > first_in_table[group])
    recorded = has_record[group]
    missing = in_table & ~recorded
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
