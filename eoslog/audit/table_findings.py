"""What was found in a table: the number of each kind, and the first few with their places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eoslog.audit.bounds import AuditedRange
from eoslog.audit.findings import FindingsOfKind
from eoslog.audit.lines import Lines, Located
from eoslog.audit.place import Place
from eoslog.audit.rows import Rows
from eoslog.audit.table.files import TableFile
from eoslog.audit.table_judge import LineVerdict

AT = np.dtype([("place", "<i8"), ("offset", "<i8")])
"""A position in a place."""


class TableFindings:
    """All kinds. `settled`: for each partition, the offset from which missing records may still arrive."""

    def __init__(
        self, ranges: Sequence[AuditedRange], files: Sequence[TableFile], lines: Lines,
        settled: Sequence[int], most: int,
    ) -> None:  # fmt: skip
        self.ranges, self.files, self._lines = ranges, files, lines
        self._settled = np.array(settled, np.int64)
        self.lost, self.pending, self.doubled, self.altered, self.phantom, self.foreign, self.unchecked = (
            FindingsOfKind(most) for _ in range(7)
        )
        self.matched = self.outside = 0
        self.records, self.rows = [0] * len(ranges), [0] * len(files)

    @property
    def places(self) -> list[Place]:
        """The partitions, then the files."""
        return [*self.ranges, *self.files]

    def add(self, verdict: LineVerdict) -> None:
        """Note what was found in some lines."""
        self.matched += verdict.matched
        lost = self._records(verdict.lost)
        late = lost["offset"] >= self._settled[lost["place"]]
        self.lost.add(lost[~late])
        self.pending.add(lost[late])
        self.doubled.add(
            self._rows(verdict.doubled), self._records(verdict.doubled), self._rows(verdict.doubled_first)
        )
        for kind in ("altered", "phantom", "unchecked"):
            found: Rows = getattr(verdict, kind)
            getattr(self, kind).add(self._rows(found), self._records(found))

    def unnumbered(self, file: int, first: int, located: Located) -> None:
        """Note rows of a file that have no line; `first`: the number of the first of these rows."""
        at = np.empty(len(located.line), AT)
        at["place"], at["offset"] = len(self.ranges) + file, first + np.arange(len(at))
        source = np.empty(len(at), AT)
        source["place"], source["offset"] = located.number, located.offset
        self.phantom.add(at[located.beyond], source[located.beyond])
        self.foreign.add(at[located.foreign])
        self.outside += int(np.count_nonzero(located.outside))

    def _records(self, rows: Rows) -> Rows:
        """Where the records of these lines are in the topic."""
        found = np.empty(len(rows), AT)
        found["place"], found["offset"] = self._lines.back(rows["line"])
        return found

    def _rows(self, rows: Rows) -> Rows:
        found = np.empty(len(rows), AT)
        found["place"], found["offset"] = rows["place"].astype(np.int64) + len(self.ranges), rows["offset"]
        return found
