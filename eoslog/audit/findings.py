"""What was found: the number of each kind, and the first few with their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eoslog.audit.order import Breaks
from eoslog.audit.place import Place
from eoslog.audit.rows import Rows

_AT = ("at", "source", "other", "other_source")
FOUND = np.dtype([item for name in _AT for item in ((f"{name}_place", "<i8"), (f"{name}_offset", "<i8"))])
"""One finding: where it is, and up to three records that belong to it (place -1: none)."""


class FindingsOfKind:
    """One kind of finding: a count, and the first ones by place and offset, up to `most`."""

    def __init__(self, most: int) -> None:
        self.count, self._most = 0, most
        self._first: Rows = np.empty(0, FOUND)

    def add(self, at: Rows, source: Rows | None = None, other: Rows | None = None) -> None:
        """Note rows that have `place` and `offset`, with their source rows and other rows."""
        self.count += len(at)
        if len(at) and self._most:
            self._keep(_found({"at": at, "source": source, "other": other}))

    def keep(self, found: Rows) -> None:
        """Note rows of `FOUND`."""
        self.count += len(found)
        self._keep(found)

    def _keep(self, found: Rows) -> None:
        merged = np.concatenate([self._first, found])
        order = np.lexsort((merged["at_offset"], merged["at_place"]))
        self._first = merged[order[: self._most]]

    def listed(self, places: Sequence[Place]) -> list[dict[str, dict[str, Any]]]:
        """The first few, as the report has them."""
        return [
            {
                name: places[row[f"{name}_place"]].where(int(row[f"{name}_offset"]))
                for name in _AT
                if row[f"{name}_place"] >= 0
            }
            for row in self._first
        ]


def _found(columns: dict[str, Rows | None]) -> Rows:
    found = np.full(max(len(rows) for rows in columns.values() if rows is not None), -1, FOUND)
    for name, rows in columns.items():
        if rows is not None:
            found[f"{name}_place"], found[f"{name}_offset"] = rows["place"], rows["offset"]
    return found


class Findings:
    """All kinds. `settled`: for each source place, the offset from which missing records may still arrive."""

    def __init__(self, places: list[Place], sources: int, settled: list[int], most: int) -> None:
        self.places, self._sources = places, sources
        self._settled = np.array(settled, np.int64)
        sizes = np.array([place.size for place in places[sources:]], np.int64)
        self.bases = np.cumsum(sizes) - sizes
        """The line (rows.py) at which each target place begins."""
        self._starts = np.array([place.start for place in places[sources:]], np.int64)
        self.lost, self.pending, self.doubled = (
            FindingsOfKind(most),
            FindingsOfKind(most),
            FindingsOfKind(most),
        )
        self.foreign, self.reordered = FindingsOfKind(most), FindingsOfKind(most)
        self.matched = self.loose = 0
        self.records = [0] * len(places)

    def lose(self, rows: Rows) -> None:
        """Note rows of the source that the target does not have."""
        late = rows["offset"] >= self._settled[rows["place"]]
        self.lost.add(rows[~late])
        self.pending.add(rows[late])

    def lines(self, rows: Rows) -> Rows:
        """The line of each row of the target."""
        target = rows["place"].astype(np.int64) - self._sources
        lines: Rows = (self.bases[target] + rows["offset"] - self._starts[target]).astype(np.uint64)
        return lines

    def disorder(self, breaks: Breaks) -> None:
        """Note records that are out of order."""
        found = np.full(len(breaks), -1, FOUND)
        for name, rows in (("", breaks.late), ("other_", breaks.before)):
            at, lines = name.rstrip("_") or "at", rows["line"].astype(np.int64)
            target = np.searchsorted(self.bases, lines, "right") - 1
            found[f"{at}_place"] = target + self._sources
            found[f"{at}_offset"] = lines - self.bases[target] + self._starts[target]
            found[f"{name}source_place"], found[f"{name}source_offset"] = rows["place"], rows["offset"]
        self.reordered.keep(found)
