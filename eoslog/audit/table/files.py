"""A table as an audit sees it: files of rows, in a fixed order, as they are in one version of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from eoslog.errors import EoslogError

BATCH_BYTES = 1 << 20
"""Uncompressed bytes of rows to read at a time, by the mean of their file."""
BATCH_ROWS = 1 << 14


class BadTable(EoslogError):
    """A table that cannot be read, or not be read right."""


@dataclass(frozen=True)
class TableFile:
    """A file of a table: `size` is how many rows a reader of the table sees in it."""

    name: str
    size: int
    start: int = 0

    def where(self, position: int) -> dict[str, Any]:
        """A row of it, counted from 0, for the report."""
        return {"file": self.name, "row": position}

    def described(self, records: int) -> dict[str, Any]:
        """What was read of it, for the report."""
        return {"file": self.name, "rows": records}

    def __str__(self) -> str:
        return self.name


class Table(Protocol):
    """One version of a table. Closed by whoever opened it."""

    @property
    def version(self) -> str:
        """Its name and version, for the report."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def files(self) -> Sequence[TableFile]:
        """All its files."""

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of a file's rows, in order, some BATCH_BYTES at a time. Raises BadTable, OSError."""


def rows_at_once(rows: int, size: int) -> int:
    """How many rows to read at a time of a file with so many rows, of so many bytes."""
    return max(1, min(BATCH_ROWS, BATCH_BYTES * rows // max(size, 1)))
