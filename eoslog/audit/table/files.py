"""A table as an audit sees it: files of rows, in a fixed order, as they are in one version of the table."""

from __future__ import annotations

import re
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


_FORMS = "parquet:PATH, delta:PATH[@VERSION] or iceberg:CATALOG.NAMESPACE.TABLE[@SNAPSHOT]"
_VERSIONED = re.compile(r"(?P<name>.+?)(?:@(?P<version>\d+))?")


@dataclass(frozen=True)
class Location:
    """A table by its format, name and version."""

    kind: str
    name: str
    version: int | None = None

    @classmethod
    def parse(cls, text: str) -> Location | None:
        """None if `text` names a topic: no topic has a colon. Raises BadTable."""
        kind, colon, name = text.partition(":")
        if not colon:
            return None
        if kind not in ("parquet", "delta", "iceberg") or not name:
            raise BadTable(f"--to {text}: give a topic, or a table as {_FORMS}")
        found = _VERSIONED.fullmatch(name)
        if kind == "parquet" or found is None or found["version"] is None:
            return cls(kind, name)
        return cls(kind, found["name"], int(found["version"]))

    def open(self) -> Table:
        """The table as it is now. Raises BadTable, OSError."""
        if self.kind == "delta":
            from eoslog.audit.table.delta import DeltaFolder

            return DeltaFolder(self.name, self.version)
        if self.kind == "iceberg":
            from eoslog.audit.table.iceberg import IcebergTable

            return IcebergTable(self.name, self.version)
        from eoslog.audit.table.parquet import ParquetFolder

        return ParquetFolder(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" + ("" if self.version is None else f"@{self.version}")
