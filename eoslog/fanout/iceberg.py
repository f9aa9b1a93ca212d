"""Iceberg tables, by pyiceberg. The mark is a property of the table, set in the commit that adds the
snapshot; the snapshot's summary has it too. The property outlives `expire_snapshots`. A rollback leaves it
behind: so it names its snapshot, which must be among the ancestors of the current one.

pyiceberg tries a commit again on top of other commits, which would put a batch in twice when two drivers have
it. So the commit goes to the catalog without that, and a conflict is looked at before another try.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from eoslog.connector.errors import OptionError, SchemaError
from eoslog.fanout.delta import check_since
from eoslog.fanout.extras import library
from eoslog.fanout.iceberg_files import IcebergFiles
from eoslog.fanout.rows import Rows, Staged
from eoslog.fanout.rules import Batch, Content, FanoutStopped, Mark
from eoslog.fanout.table import TableMoved, Transform


@dataclass
class IcebergTarget:
    """An Iceberg table of a catalog."""

    identifier: str
    catalog: Mapping[str, str]
    transform: Transform | None
    since: int | None
    place: str = ""
    _read: Any = field(default=None, repr=False)

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Create the table for batch 0, check the columns, read the mark."""
        catalog = self._catalog()
        columns = _arrow(rows.schema_json)
        if batch.number in (0, self.since) and not catalog.table_exists(self.identifier):
            catalog.create_table_if_not_exists(self.identifier, schema=columns)
        mark = self.mark(batch.name)
        compatible = library("pyiceberg.io.pyarrow", "iceberg")._check_pyarrow_schema_compatible
        try:
            compatible(self._read.schema(), columns, format_version=self._read.format_version)
            if {one.name for one in self._read.schema().fields} != set(columns.names):
                raise ValueError("a column is missing")
        except ValueError as error:
            raise SchemaError(
                f"{self.place}: its columns are not the batch's. Nothing was written. Give the target a "
                f"transform "
                f"that makes the table's columns, or change the table. {error}"
            ) from error
        return mark

    def mark(self, name: str) -> Mark | None:
        """Read the table, and its mark."""
        missing = library("pyiceberg.exceptions", "iceberg").NoSuchTableError
        try:
            self._read = self._catalog().load_table(self.identifier)
        except missing as error:
            raise FanoutStopped(
                f"fanout {name}, {self.place}: the table is gone. Bring it back, or take it out of the "
                f"fan-out"
            ) from error
        text = self._read.properties.get(_property(name))
        if text is None:
            return None
        said = json.loads(text)
        self._check_rolled_back(name, said)
        return Mark(said["query"], said["batch"], Content(said["rows"], said["checksum"]))

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """Write data files into the table's location."""
        metadata, io = self._read.metadata, self._read.io
        columns = _arrow(rows.schema_json)
        return rows.stage(lambda: IcebergFiles(metadata, io, columns))

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Commit on the snapshot that was read. A batch without rows has a snapshot too: it guards the
        mark."""
        failed = library("pyiceberg.exceptions", "iceberg").CommitFailedException
        requirement = library("pyiceberg.table.update", "iceberg").AssertTableUUID
        transaction = self._read.transaction()
        said = {"query": batch.query, "batch": batch.number, **staged.content._asdict()}
        with transaction.update_snapshot(
            snapshot_properties={_property(batch.name): json.dumps(said)}
        ).fast_append() as append:
            for one in staged.files:
                append.append_data_file(pickle.loads(one))
            said["snapshot"] = append.snapshot_id
        transaction.set_properties({_property(batch.name): json.dumps(said)})
        needs = (*transaction._requirements, requirement(uuid=self._read.metadata.table_uuid))
        try:
            self._read.catalog.commit_table(self._read, needs, transaction._updates)
        except failed as error:
            raise TableMoved(str(error)) from error

    def _catalog(self) -> Any:
        return library("pyiceberg.catalog", "iceberg").load_catalog("eoslog", **self.catalog)

    def _check_rolled_back(self, name: str, said: Mapping[str, int]) -> None:
        """The mark's snapshot must be the current one, or before it. Expiry cuts the way to it, and
        pyiceberg's also the children's word of their parents: then a manifest of it in the current one is
        proof."""
        current = at = self._read.current_snapshot()
        while at is not None and said["snapshot"] not in (at.snapshot_id, at.parent_snapshot_id):
            at = None if at.parent_snapshot_id is None else self._read.snapshot_by_id(at.parent_snapshot_id)
        manifests = [] if at is not None or current is None else current.manifests(self._read.io)
        if at is None and all(one.added_snapshot_id != said["snapshot"] for one in manifests):
            raise FanoutStopped(
                f"fanout {name}, {self.place}: snapshot {said['snapshot']} with batch {said['batch']} is "
                f"not among "
                "those that the table's current one comes from: it was rolled back, or other writers' "
                "snapshots "
                "and expire_snapshots have cut the way to it. Nothing was written. Roll it forward; or, "
                "if the "
                "rows are there, or may be missing, give the query a new name and a new checkpoint"
            )


def iceberg(
    identifier: str,
    catalog: Mapping[str, str],
    *,
    transform: Transform | None = None,
    since: int | None = None,
) -> IcebergTarget:
    """An Iceberg table, `namespace.table`; batch 0 creates it, without partitions, if it is not there.

    `catalog`: pyiceberg's properties of the catalog (`type`, `uri`, `warehouse`, ...). `transform` makes the
    table's columns. `since`: as for `delta`. Raises OptionError.
    """
    library("pyiceberg.catalog", "iceberg")
    if not isinstance(identifier, str) or "." not in identifier:
        raise OptionError(f"iceberg({identifier!r}): name a table as namespace.table")
    if not isinstance(catalog, Mapping) or not catalog:
        raise OptionError(
            f"iceberg({identifier!r}): give pyiceberg's properties of the catalog, as type and uri"
        )
    check_since(f"iceberg({identifier!r})", since)
    return IcebergTarget(identifier, dict(catalog), transform, since, f"Iceberg table {identifier}")


def _property(name: str) -> str:
    return f"eoslog.fanout.{name}"


def _arrow(schema_json: str) -> pa.Schema:
    """Spark's columns as Arrow's."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    found: pa.Schema = to_arrow_schema(StructType.fromJson(json.loads(schema_json)), timezone="UTC")
    return found
