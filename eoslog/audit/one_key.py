"""Compares more records of one identity than fit into memory, piece by piece, with the rules of `match`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eoslog.audit.match import DigestsCollide, Verdict
from eoslog.audit.rows import ITEM, Rows
from eoslog.audit.spill import OneKey

_NONE: Rows = np.empty(0, ITEM)


@dataclass
class _Shape:
    """The number of source rows, and whether each side is in a single place."""

    wanted: int = 0
    more: int = -1
    places: tuple[set[int], set[int]] = (set(), set())

    def add(self, rows: Rows, sources: int) -> None:
        if self.more < 0:
            self.more = int(rows["more"][0])
        if np.any(rows["more"] != np.uint64(self.more)):
            raise DigestsCollide
        in_target = rows["place"] >= sources
        self.wanted += int(np.count_nonzero(~in_target))
        self.places[0].update(np.unique(rows["place"][~in_target]).tolist())
        self.places[1].update(np.unique(rows["place"][in_target]).tolist())


def compare_one(one: OneKey, sources: int, size: int) -> Iterator[Verdict]:
    """Verdicts that add up to what `match.compare` would return for all rows. Raises DigestsCollide."""
    shape = _Shape(places=(set(), set()))
    for rows in one.pieces(size):
        shape.add(rows, sources)
    wanted, present = shape.wanted, one.count - shape.wanted
    pairs = min(wanted, present)
    firm = all(len(places) == 1 for places in shape.places)
    for source, target in zip(
        one.pieces(size, 0, pairs), one.pieces(size, wanted, wanted + pairs), strict=True
    ):
        if wanted != present:
            yield _verdict(pairs=len(source))
        elif firm:
            yield _verdict(pairs=len(source), source=source, target=target)
        else:
            yield _verdict(pairs=len(source), loose=len(source))
    for rows in one.pieces(size, pairs, wanted):
        yield _verdict(lost=rows)
    for rows in one.pieces(size, wanted + pairs):
        yield _surplus(one, rows, wanted)


def _surplus(one: OneKey, rows: Rows, wanted: int) -> Verdict:
    if not wanted:
        return _verdict(foreign=rows)
    (source,), (first,) = one.pieces(1, 0, 1), one.pieces(1, wanted, wanted + 1)
    return _verdict(
        doubled=rows, doubled_source=source.repeat(len(rows)), doubled_first=first.repeat(len(rows))
    )


def _verdict(pairs: int = 0, loose: int = 0, **rows: Rows) -> Verdict:
    kinds = ("lost", "foreign", "doubled", "doubled_source", "doubled_first", "source", "target")
    return Verdict(pairs=pairs, loose=loose, **{kind: rows.get(kind, _NONE) for kind in kinds})
