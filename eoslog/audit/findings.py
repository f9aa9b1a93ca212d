"""What an audit can find, and what it has found: the number of each kind, and the first few of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from eoslog.audit.spill import Rows


class AuditedPlace(Protocol):
    """Where audited rows are: a partition of a topic, or a file of a table. It has the positions
    start..start+size-1; some of them may be empty."""

    @property
    def start(self) -> int:
        """The first position."""

    @property
    def size(self) -> int:
        """How many positions."""

    def where(self, position: int) -> dict[str, Any]:
        """A position in it, for the report."""

    def described(self, records: int) -> dict[str, Any]:
        """What was read of it, for the report."""


class Kind(NamedTuple):
    """A kind of finding. `wrong`: one of it makes the target wrong."""

    meaning: str
    wrong: bool = True


LOST, DOUBLED, REORDERED, ALTERED, PHANTOM = "lost", "doubled", "reordered", "altered", "phantom"
OLDER, FOREIGN, PENDING, UNCHECKED = "older", "foreign", "pending", "unchecked"
Kinds = Mapping[str, Kind]

OF_TOPICS: Kinds = {
    LOST: Kind("of the source, not in the target"),
    DOUBLED: Kind("once more in the target than in the source"),
    REORDERED: Kind("after a record of its partition that follows it in the source"),
    FOREIGN: Kind("in the target, not in the source"),
    PENDING: Kind("of the source, not in the target yet (--grace)", wrong=False),
}
"""What is found in topics, whose records are told by their identity."""
OF_PLACES: Kinds = {
    LOST: Kind("of the topic, not in the table"),
    DOUBLED: Kind("once more in the table"),
    ALTERED: Kind("with another key or value than the record at their offset"),
    PHANTOM: Kind("at offsets where the topic has no committed record"),
    FOREIGN: Kind("of no partition of the topic"),
    PENDING: Kind("of the topic, not in the table yet (--grace)", wrong=False),
    UNCHECKED: Kind("at offsets that the topic no longer has: they cannot be checked", wrong=False),
}
"""What is found in a table whose rows name their partition and offset."""
OF_NEWEST: Kinds = {
    **OF_PLACES,
    LOST: Kind("of the topic, the newest of their keys, not in the table"),
    OLDER: Kind("of records that a newer one of their key has replaced or deleted"),
}
"""What is found in a table that has the newest record of each key alone."""
OF_CONTENTS: Kinds = {kind: OF_PLACES[kind] for kind in (LOST, DOUBLED, PENDING)} | {
    FOREIGN: Kind("like no record of the topic")
}
"""What is found in a table whose rows are told by their key or content."""

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

    def listed(self, places: Sequence[AuditedPlace]) -> list[dict[str, dict[str, Any]]]:
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
    """What was found of each of `kinds`. `places`: those of the source, `sources` of them, then those of the
    target. `settled`: for each source place, the offset from which missing records may still arrive."""

    def __init__(
        self, places: Sequence[AuditedPlace], sources: int, settled: Sequence[int], kinds: Kinds, most: int
    ) -> None:
        self.places, self.sources, self.kinds = places, sources, kinds
        self._settled = np.array(settled, np.int64)
        self._found = {kind: FindingsOfKind(most) for kind in kinds}
        self.matched = self.loose = self.outside = 0
        """Records found once; pairs whose order is not checked; rows outside of the bounds."""
        self.records = [0] * len(places)

    def __getitem__(self, kind: str) -> FindingsOfKind:
        return self._found[kind]

    def lose(self, rows: Rows) -> None:
        """Note rows of the source that the target does not have."""
        late = rows["offset"] >= self._settled[rows["place"]]
        self[LOST].add(rows[~late])
        self[PENDING].add(rows[late])
