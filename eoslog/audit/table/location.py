"""What --to names: a topic, or a table.

parquet:PATH, delta:PATH@VERSION or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT; without a version, the newest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from eoslog.audit.table.files import BadTable, Table

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
