"""Iceberg tables, by pyiceberg. The mark is a property of the table, set in the commit that adds the
snapshot; the snapshot's summary has it too. The property outlives `expire_snapshots`. A rollback leaves it
behind: so it names its snapshot, which must be among the ancestors of the current one, or its files in it.

pyiceberg tries a commit again on top of other commits, which would put a batch in twice when two drivers have
it. So the commit goes to the catalog without that, and a conflict is looked at before another try.

A merge writes the files that have rows with the changes' keys again, one by one, in one snapshot.
"""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.connector.commit.decision import packed, unpacked
from eoslog.errors import OptionError, SchemaError
from eoslog.fanout.delta import check_since
from eoslog.fanout.extras import library
from eoslog.fanout.iceberg_files import ChangeFiles, IcebergFiles
from eoslog.fanout.merge import DELETED, Merge, check_merge
from eoslog.fanout.rows import Rows, Staged
from eoslog.fanout.rules import Batch, Content, Gone, Mark, TableGone, check_begins, taking_back
from eoslog.fanout.table import TableMoved, Transform


@dataclass
class IcebergTarget:
    """An Iceberg table of a catalog."""

    identifier: str
    catalog: Mapping[str, str]
    transform: Transform | None
    since: int | str | None
    merge: Merge | None = None
    place: str = ""
    _read: Any = field(default=None, repr=False)

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Create the table for batch 0, check the columns, read the mark."""
        its = rows.schema_json
        columns = _arrow(its if self.merge is None else self.merge.table_schema(self.place, its))
        try:
            mark = self.mark(batch.name)
        except TableGone as gone:
            check_begins(gone, self.place, None, batch, self.since)
            self._catalog().create_table_if_not_exists(self.identifier, schema=columns)
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
            raise TableGone(name, self.place) from error
        text = self._read.properties.get(_property(name))
        if text is None:
            return None
        return self._judged(json.loads(text))

    def _judged(self, said: Mapping[str, Any]) -> Mark:
        mark, gone = _mark(said), self._gone(said)
        if gone is not None and self._read.snapshot_by_id(said["snapshot"]) is not None:
            gone = gone.with_others(mark.number, mark.content.rows, self._had(mark.query))
        return mark._replace(gone=gone)

    def _had(self, query: int) -> dict[int, tuple[int, bool]]:
        """The batches of a query in the snapshots that are not expired: their rows, and whether the table has
        them."""
        had: dict[int, tuple[int, bool]] = {}
        there = set(self._ancestors(self._read.current_snapshot()))
        for snapshot in self._read.metadata.snapshots:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            for key in [one for one in summary if one.startswith(_property(""))]:
                said = json.loads(summary[key]) | {"snapshot": snapshot.snapshot_id}
                if said["query"] != query:
                    continue
                has = snapshot.snapshot_id in there or (self.merge is None and self._has_files(said))
                had[said["batch"]] = (said["rows"], has or had.get(said["batch"], (0, False))[1])
        return had

    def reached(self, query: int) -> int | None:
        """The last batch of a query, under any name."""
        marks = [
            json.loads(text) for name, text in self._read.properties.items() if name.startswith(_property(""))
        ]
        return max((one["batch"] for one in marks if one["query"] == query), default=None)

    def others(self, name: str, query: int) -> Mapping[str, Mark]:
        """The marks of other names; of those of `query`, whether the batch is gone."""
        marks = {
            key.removeprefix(_property("")): json.loads(text)
            for key, text in self._read.properties.items()
            if key.startswith(_property(""))
        }
        return {
            other: self._judged(said) if said["query"] == query else _mark(said)
            for other, said in marks.items()
            if other != name
        }

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """Write data files into the table's location."""
        metadata, io = self._read.metadata, self._read.io
        columns = _arrow(rows.schema_json)
        if self.merge is not None:
            location = f"{metadata.location}/data/{batch.name}-{batch.number}-changes"
            return rows.stage(lambda: ChangeFiles(location, io, columns))
        return rows.stage(lambda: IcebergFiles(metadata, io, columns))

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Commit on the snapshot that was read. A batch without rows has a snapshot too: it guards the
        mark."""
        failed = library("pyiceberg.exceptions", "iceberg").CommitFailedException
        requirement = library("pyiceberg.table.update", "iceberg").AssertTableUUID
        transaction = self._read.transaction()
        said: dict[str, Any] = {"query": batch.query, "batch": batch.number, **staged.content._asdict()}
        update = transaction.update_snapshot(snapshot_properties={_property(batch.name): json.dumps(said)})
        with update.fast_append() if self.merge is None else update.overwrite() as snapshot:
            if self.merge is None:
                added = [pickle.loads(one) for one in staged.files]
            else:
                added = self._merged(self.merge, staged, snapshot)
                said["added"] = sum(one.record_count for one in added)
            for one in added:
                snapshot.append_data_file(one)
            said["snapshot"] = snapshot.snapshot_id
        said["ends"] = packed(batch.ends)  # the property alone: summaries stay until their snapshots expire
        transaction.set_properties({_property(batch.name): json.dumps(said)})
        needs = (*transaction._requirements, requirement(uuid=self._read.metadata.table_uuid))
        try:
            self._read.catalog.commit_table(self._read, needs, transaction._updates)
        except failed as error:
            raise TableMoved(str(error)) from error
        if self.merge is not None:
            for path in staged.files:  # nobody else's, and in no commit
                self._read.io.delete(path.decode())

    def _merged(self, merge: Merge, staged: Staged, snapshot: Any) -> list[Any]:
        """Take the files with older rows of the changes' keys out of a snapshot: the files to add for them.
        Raises SchemaError: see `Merge.newest`."""
        io, columns = self._read.io, self._read.schema().as_arrow()
        read = []
        for path in staged.files:
            with io.new_input(path.decode()).open() as file:
                read.append(pq.read_table(file))
        if not read:
            return []
        arrow = library("pyiceberg.io.pyarrow", "iceberg")
        always = library("pyiceberg.expressions", "iceberg").AlwaysTrue()
        changes = merge.newest(self.place, pa.concat_tables(read))
        uuid, counter, added = uuid4(), itertools.count(), list[Any]()
        stays = np.zeros(len(changes), bool)

        def scanned(task: Any, *names: str) -> pa.Table:
            schema = self._read.schema()
            some = schema.select(*names) if names else schema
            found = arrow.ArrowScan(self._read.metadata, io, some, always).to_table([task])
            return found.select([field.name for field in some.fields])

        def written(rows: pa.Table) -> None:
            rows = rows.select(columns.names).cast(columns)
            added.extend(arrow._dataframe_to_data_files(self._read.metadata, rows, io, uuid, counter))

        for task in self._read.scan().plan_files():
            found = merge.matched(scanned(task, *merge.keys, *merge.order), changes)
            stays[found.changes[~found.is_older]] = True
            gone = found.rows[found.is_older]
            if not len(gone):
                continue
            snapshot.delete_data_file(task.file)
            kept = np.ones(found.of, bool)
            kept[gone] = False
            if kept.any():
                written(scanned(task).filter(pa.array(kept)))
        new = changes.filter(pa.array(~stays & ~changes[DELETED].to_numpy(zero_copy_only=False)))
        if len(new):
            written(new.drop_columns([DELETED]))
        return added

    def _catalog(self) -> Any:
        return library("pyiceberg.catalog", "iceberg").load_catalog("eoslog", **self.catalog)

    def _gone(self, said: Mapping[str, Any]) -> Gone | None:
        """None: the mark's snapshot is the current one, or before it, or its files are there. Expiry cuts the
        way to it, and pyiceberg's also the children's word of their parents. A cherry-pick takes files alone.
        """
        at = self._read.current_snapshot()
        while at is not None and said["snapshot"] not in (at.snapshot_id, at.parent_snapshot_id):
            at = None if at.parent_snapshot_id is None else self._read.snapshot_by_id(at.parent_snapshot_id)
        if at is not None or self._has_files(said):
            return None
        batch, snapshot = said["batch"], said["snapshot"]
        if self._read.snapshot_by_id(snapshot) is None:
            return Gone(
                f"its snapshots no longer say whether it still has batch {batch}: snapshot {snapshot} has "
                "brought it, and is expired",
                "Look for the batch's rows in it",
            )
        since = [str(one) for one in self._ancestors(self._read.current_snapshot())]
        kept = {str(one) for one in self._ancestors(self._read.snapshot_by_id(snapshot))}
        return Gone(
            f"it no longer has batch {batch}: the current snapshot does not come from snapshot {snapshot}, "
            "which has brought it",
            f"Make {snapshot} or one that comes from it the current snapshot (set_current_snapshot)"
            + taking_back("snapshots", [one for one in since if one not in kept]),
        )

    def _ancestors(self, snapshot: Any) -> Iterator[int]:
        """A snapshot and those before it, as far as they are not expired."""
        while snapshot is not None:
            yield snapshot.snapshot_id
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self._read.snapshot_by_id(parent)

    def _has_files(self, said: Mapping[str, Any]) -> bool:
        """Whether the current snapshot has all rows' files that the mark's has added. A merge has taken some
        away, too: so its files tell nothing where another snapshot has added them."""
        snapshot, rows = said["snapshot"], said.get("added", said["rows"])
        current, added = self._read.current_snapshot(), self._read.snapshot_by_id(snapshot)
        if not rows or current is None:
            return False  # a batch without files tells nothing of those before it
        its = (
            []
            if added is None or "added" in said
            else [e for e in self._entries(added) if e.snapshot_id == snapshot]
        )
        paths = {one.data_file.file_path for one in its}
        there = [
            one.data_file.record_count
            for one in self._entries(current)
            if one.snapshot_id == snapshot or one.data_file.file_path in paths
        ]
        return bool(sum(there) == rows)

    def _entries(self, snapshot: Any) -> Iterator[Any]:
        """Its files of rows."""
        for manifest in snapshot.manifests(self._read.io):
            if manifest.content == 0:  # not of deletes
                yield from manifest.fetch_manifest_entry(self._read.io)


def iceberg(
    identifier: str,
    catalog: Mapping[str, str],
    *,
    transform: Transform | None = None,
    since: int | str | None = None,
    merge: Merge | None = None,
) -> IcebergTarget:
    """An Iceberg table, `namespace.table`; batch 0 creates it, without partitions, if it is not there.

    `catalog`: pyiceberg's properties (`type`, `uri`, `warehouse`, ...). Others as for `delta`. Raises
    OptionError.
    """
    library("pyiceberg.catalog", "iceberg")
    if not isinstance(identifier, str) or "." not in identifier:
        raise OptionError(f"iceberg({identifier!r}): name a table as namespace.table")
    if not isinstance(catalog, Mapping) or not catalog:
        raise OptionError(
            f"iceberg({identifier!r}): give pyiceberg's properties of the catalog, as type and uri"
        )
    check_since(f"iceberg({identifier!r})", since)
    check_merge(f"iceberg({identifier!r})", merge)
    return IcebergTarget(identifier, dict(catalog), transform, since, merge, f"Iceberg table {identifier}")


def _mark(said: Mapping[str, Any]) -> Mark:
    """A mark, but for whether its batch is gone."""
    content = Content(said["rows"], said["checksum"])
    return Mark(said["query"], said["batch"], content, unpacked(said.get("ends", "")))


def _property(name: str) -> str:
    return f"eoslog.fanout.{name}"


def _arrow(schema_json: str) -> pa.Schema:
    """Spark's columns as Arrow's."""
    from pyspark.sql.types import StructType

    from eoslog.connector.spark.versions import arrow_schema

    return arrow_schema(StructType.fromJson(json.loads(schema_json)))


def of_known_catalog(name: str) -> IcebergTarget:
    """CATALOG.NAMESPACE.TABLE, with the catalog of pyiceberg's own configuration. Raises OptionError."""
    catalog, _, identifier = name.partition(".")
    try:
        known = library("pyiceberg.catalog", "iceberg").load_catalog(catalog)
    except ValueError as error:
        raise OptionError(
            f"iceberg:{name}: the catalog {catalog} cannot be opened: {error}. pyiceberg reads catalogs from "
            ".pyiceberg.yaml and PYICEBERG_CATALOG__... variables"
        ) from error
    return iceberg(identifier, known.properties)
