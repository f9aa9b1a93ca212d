"""An Iceberg table, in its newest snapshot or an older one, as the package pyiceberg lists its files.

pyiceberg reads a file whole. So a plain file, without deletes and with Iceberg's ids of its columns, is
read here, piece by piece; others are left to pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from eoslog.audit.table.files import BadTable, TableFile
from eoslog.audit.table.parquet import ParquetFile

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as StoredTable

_ID = b"PARQUET:field_id"


class IcebergTable:
    """One snapshot of CATALOG.NAMESPACE.TABLE; None: the newest. Raises BadTable, OSError."""

    def __init__(self, name: str, snapshot: int | None = None) -> None:
        self._table = _loaded(name)
        current = self._table.current_snapshot()
        if snapshot is not None and self._table.snapshot_by_id(snapshot) is None:
            there = ", ".join(str(one.snapshot_id) for one in self._table.snapshots()) or "none"
            raise BadTable(f"iceberg:{name}@{snapshot}: the table has no such snapshot, but {there}")
        at = snapshot if snapshot is not None else current.snapshot_id if current else None
        self.version = f"iceberg:{name}" + ("" if at is None else f"@{at}")
        scan = self._table.scan(snapshot_id=snapshot)
        self._schema = scan.projection()
        self.schema: pa.Schema = self._schema.as_arrow()
        try:
            self._tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
        except (ValueError, NotImplementedError) as error:
            raise BadTable(f"{self.version} cannot be read right by pyiceberg: {error}") from error
        root = f"{self._table.location()}/"
        self.files = [
            TableFile(task.file.file_path.removeprefix(root), task.file.record_count) for task in self._tasks
        ]

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As Table says; a file with deletes is in memory as a whole."""
        task = self._tasks[number]
        plain = self._plain(task, columns)
        if plain is not None:
            yield from plain.batches(columns)
            return
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        scan = ArrowScan(self._table.metadata, self._table.io, self._schema.select(*columns), AlwaysTrue())
        try:
            for batch in scan.to_record_batches([task]):
                yield batch.select(list(columns))
        except (ValueError, NotImplementedError) as error:
            raise BadTable(
                f"{self.version}, {task.file.file_path}: pyiceberg cannot read it: {error}"
            ) from error

    def _plain(self, task: FileScanTask, columns: Sequence[str]) -> ParquetFile | None:
        """The file, if nothing but its own rows and columns is to be read."""
        path = task.file.file_path
        if task.delete_files or task.file.file_format.value != "PARQUET":
            return None
        file = ParquetFile(path, partial(self._table.io.new_input(path).open, seekable=True))
        with file.opened() as opened:
            ids = {
                field.metadata[_ID]: field.name
                for field in opened.schema_arrow
                if _ID in (field.metadata or {})
            }
        wanted = {name: str(self._schema.find_field(name).field_id).encode() for name in columns}
        if not set(wanted.values()) <= ids.keys():
            return None
        return ParquetFile(path, file.open, stored={name: ids[one] for name, one in wanted.items()})


def _loaded(name: str) -> StoredTable:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError, NotInstalledError
    except ImportError as error:
        raise BadTable("Iceberg tables are read with pyiceberg: pip install 'eoslog[iceberg]'") from error
    catalog, _, rest = name.partition(".")
    if "." not in rest:
        raise BadTable(
            f"iceberg:{name}: give catalog, namespace and table, as iceberg:CATALOG.NAMESPACE.TABLE"
        )
    try:
        return load_catalog(catalog).load_table(rest)
    except NoSuchTableError as error:
        raise BadTable(f"iceberg:{name}: the catalog {catalog} has no table {rest}") from error
    except (ValueError, NotInstalledError) as error:
        raise BadTable(
            f"iceberg:{name}: the catalog {catalog} cannot be opened: {error}. pyiceberg reads catalogs from "
            ".pyiceberg.yaml and PYICEBERG_CATALOG__... variables"
        ) from error
