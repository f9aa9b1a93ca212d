"""What --to names: a topic, or a table as parquet:PATH."""

from __future__ import annotations

from dataclasses import dataclass

from eoslog.audit.table.files import BadTable, Table

KINDS = ("parquet",)


@dataclass(frozen=True)
class Location:
    """A table by the name of its format, and what follows it."""

    kind: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Location | None:
        """None if `text` names a topic: no topic has a colon. Raises BadTable."""
        kind, colon, name = text.partition(":")
        if not colon:
            return None
        if kind not in KINDS or not name:
            forms = " or ".join(f"{known}:PATH" for known in KINDS)
            raise BadTable(f"--to {text}: give a topic, or a table as {forms}")
        return cls(kind, name)

    def open(self) -> Table:
        """The table as it is now. Raises BadTable, OSError."""
        from eoslog.audit.table.parquet import ParquetFolder

        return ParquetFolder(self.name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"
