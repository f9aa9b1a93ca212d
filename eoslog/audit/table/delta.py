"""A Delta table, in its newest version or an older one, as the package deltalake lists its files.

What that package cannot read right is refused: deletion vectors and renamed columns, above all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from eoslog.audit.table.files import BadTable, TableFile
from eoslog.audit.table.parquet import ParquetFile

_MAPPING = "delta.columnMapping.mode"


class DeltaFolder:
    """One version of a table; None: the newest. Raises BadTable, OSError."""

    def __init__(self, name: str, version: int | None = None) -> None:
        table, listed = _listed(name, version)
        self.version = f"delta:{name}@{table.version()}"
        self.schema: pa.Schema = listed.schema
        self.files: list[TableFile] = []
        self._stored: list[ParquetFile] = []
        partitioned = table.metadata().partition_columns
        for fragment in sorted(listed.get_fragments(), key=lambda fragment: fragment.path):
            told = ds.get_partition_keys(fragment.partition_expression)
            self._open(listed.filesystem, fragment.path, {column: told.get(column) for column in partitioned})

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As Table says."""
        return self._stored[number].batches(columns)

    def _open(self, system: Any, path: str, told: Mapping[str, Any]) -> None:
        """Columns that were added to the table after the file was written are null in it."""
        stored = ParquetFile(path, partial(system.open_input_file, path))
        with stored.opened() as file:
            lacks = [field for field in self.schema if field.name not in file.schema_arrow.names]
            self.files.append(TableFile(path, file.metadata.num_rows))
        constants = {field.name: pa.scalar(told.get(field.name), field.type) for field in lacks}
        constants |= {name: pa.scalar(value, self.schema.field(name).type) for name, value in told.items()}
        self._stored.append(ParquetFile(path, stored.open, constants))


def _listed(name: str, version: int | None) -> tuple[Any, ds.FileSystemDataset]:
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError
    except ImportError as error:
        raise BadTable("Delta tables are read with deltalake: pip install 'eoslog[delta]'") from error
    try:
        table = DeltaTable(name, version=version)
        mapping = table.metadata().configuration.get(_MAPPING, "none")
        if mapping != "none":
            raise BadTable(
                f"delta:{name} has renamed columns ({_MAPPING}={mapping}): deltalake cannot read them"
            )
        return table, table.to_pyarrow_dataset()
    except TableNotFoundError as error:
        raise BadTable(f"delta:{name}: there is no such Delta table") from error
    except DeltaProtocolError as error:
        raise BadTable(
            f"delta:{name} cannot be read right by deltalake: {error} Rewrite the table without this "
            "feature, or audit a copy"
        ) from error
    except DeltaError as error:
        asked = "" if version is None else f"@{version}"
        raise BadTable(f"delta:{name}{asked}: {error}") from error
