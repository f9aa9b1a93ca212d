"""Which rows of the two versions of a query have no equal of the other version in their step. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eoslog.audit.rows import Rows

ROW = np.dtype([
    ("digest", "<u8"), ("more", "<u8"),  # the two halves of its content's digest
    ("offset", "<i8"), ("place", "<u4"), ("step", "<u4"),
])  # fmt: skip
"""A row: what it is, where it stands, and in which step it was written."""

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]


class Judged(NamedTuple):
    """Rows of each step of the running query, by step: `late` ones, which the shadow wrote in another step,
    and `missing` ones, which it did not write. `extra`: rows of the shadow alone. `differing`: those of both.
    `alike`: how many extra rows have an equal of the running query in their step, or one that is late.
    """

    late: Counts
    missing: Counts
    extra: Counts
    differing: Rows
    alike: int


def judge(rows: Rows, running: int, steps: int) -> Judged:
    """Compare all rows of some contents. `running`: how many places are those of the running query; they are
    numbered first.

    Equal rows are paired within a step first, then those that are left, in the order of their steps.
    """
    order = np.lexsort((rows["offset"], rows["place"], rows["step"], rows["more"], rows["digest"]))
    rows = rows[order]
    of_shadow = rows["place"] >= running
    content = _numbered(rows["digest"], rows["more"])
    cell = _numbered(content, rows["step"])
    both = _both(cell, of_shadow)
    surplus = _rank(cell, of_shadow) >= both
    left, left_content, left_shadow = rows[surplus], content[surplus], of_shadow[surplus]
    left_met = both[surplus] > 0
    by_side = np.lexsort((left_shadow, left_content))  # stable: within a side in the order of steps
    left, left_content, left_shadow = left[by_side], left_content[by_side], left_shadow[by_side]
    paired = _rank(left_content, left_shadow) < _both(left_content, left_shadow)
    alike = np.isin(left_content, left_content[paired]) | left_met[by_side]
    return Judged(
        _counts(left[paired & ~left_shadow], steps),
        _counts(left[~paired & ~left_shadow], steps),
        _counts(left[~paired & left_shadow], steps),
        left[~paired],
        int(np.count_nonzero(alike & ~paired & left_shadow)),
    )


def _numbered(*columns: Numbers) -> Numbers:
    """Numbers from 0 for runs of rows that are equal in all columns."""
    changed = np.zeros(len(columns[0]), np.bool_)
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.cumsum(changed)


def _rank(group: Numbers, side: Numbers) -> Numbers:
    """The number of each row within its group and side, whose rows follow each other."""
    run = _numbered(group, side)
    starts = np.flatnonzero(np.diff(run, prepend=-1))
    return np.arange(len(run)) - starts[run]


def _both(group: Numbers, side: Numbers) -> Numbers:
    """For each row: how many rows of its group each side has at least."""
    groups = int(group[-1]) + 1 if len(group) else 0
    sizes = [np.bincount(group[side == wanted], minlength=groups) for wanted in (False, True)]
    least: Numbers = np.minimum(*sizes)[group]
    return least


def _counts(rows: Rows, steps: int) -> Counts:
    return np.bincount(rows["step"], minlength=steps)
