"""A table whose rows are told by their key or their content, as the target of an audit (run.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from eoslog.audit.digest import Digester
from eoslog.audit.identity import Identity
from eoslog.audit.read import Read, ReadSettings, halves
from eoslog.audit.rows import ITEM
from eoslog.audit.table.columns import Columns
from eoslog.audit.table.files import BadTable, Table, TableFile
from eoslog.commands.progress import ProgressListener


@dataclass(frozen=True)
class AuditedTable:
    """A table and its columns."""

    table: Table
    columns: Columns

    @property
    def places(self) -> Sequence[TableFile]:
        """Its files."""
        return self.table.files

    def read(
        self, first: int, way: ReadSettings, digester: Digester, watch: ProgressListener
    ) -> Iterator[Read]:
        """All rows; `first`: the number of the first file. Raises BadTable, OSError."""
        watch.begin(f"reading {len(self.places)} files", sum(file.size for file in self.places))
        wanted = [self.columns.names[part] for part in way.identity.contents]
        for number in range(len(self.places)):
            row = 0
            for batch in self.table.batches(number, wanted):
                yield self._rows(batch, row, first + number, way.identity, digester)
                row += batch.num_rows
                watch.advance(batch.num_rows)

    def _rows(
        self, batch: pa.RecordBatch, row: int, place: int, identity: Identity, digester: Digester
    ) -> Read:
        words, there = identity.of_contents(
            digester, {part: self.columns.array(batch, part) for part in identity.contents}
        )
        rows = np.zeros(batch.num_rows, ITEM)
        rows["digest"], rows["more"] = halves(words).T
        rows["offset"] = row + np.arange(batch.num_rows)
        rows["place"] = place
        return Read(place, rows[there], rows[~there])


def identity_of(columns: Columns, version: str, *, key: bool) -> Identity:
    """What rows are told by: their key, or what the table has of key and value. Raises BadTable."""
    if key and "key" not in columns.names:
        raise BadTable(f"--key: {version} has no column key: name it by --column key=NAME")
    if not key and "value" not in columns.names:
        raise BadTable(f"--content: {version} has no column value: name it by --column value=NAME")
    return Identity(
        key=key, content=not key and "key" in columns.names, value=not key and "key" not in columns.names
    )
