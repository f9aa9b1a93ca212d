"""Checks that records in the target have the order of the source. Pure.

Take the records of one source partition that are in one target partition: their offsets in the source must
rise with those in the target. Kafka has no order among records of different source partitions, or in
different target partitions. With groups, only records of the same group are compared.

A break is a record whose predecessor (of the same two partitions) comes after it in the source. So one record
that was moved is one break, and records that are all in order have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eoslog.audit.rows import PAIR, Rows
from eoslog.protocol.varints import Ints


@dataclass(frozen=True, slots=True)
class Breaks:
    """Rows of `PAIR` (rows.py): row i of `late` follows row i of `before`, but should not."""

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
