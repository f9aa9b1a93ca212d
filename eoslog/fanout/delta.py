"""Delta tables. The mark is five `txn` actions in the commit that adds the files (Delta's protocol,
"Transaction Identifiers"): batch, query, rows, checksum, and the commit's own version.

deltalake would try a commit again on top of other commits. Here every commit is for one version, and a
conflict is looked at before another try: two drivers with the same batch cannot both commit it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.connector.errors import OptionError, SchemaError
from eoslog.fanout.delta_files import DeltaFiles
from eoslog.fanout.extras import library
from eoslog.fanout.rows import Rows, Staged
from eoslog.fanout.rules import Batch, Content, FanoutStopped, Mark
from eoslog.fanout.table import TableMoved, Transform

_PARTS = ("", "/query", "/rows", "/checksum", "/version")
_REFUSED = re.compile(r"delta\.(constraints\..*|columnMapping\.mode|setTransactionRetentionDuration)")


@dataclass
class DeltaTarget:
    """A Delta table at a path or URI."""

    uri: str
    partition_by: Sequence[str]
    storage_options: Mapping[str, str]
    transform: Transform | None
    since: int | None
    place: str = ""
    _read: Any = field(default=None, repr=False)

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Create the table for batch 0, check the columns, read the mark."""
        deltalake = library("deltalake", "delta")
        options = dict(self.storage_options)
        if batch.number in (0, self.since) and not deltalake.DeltaTable.is_deltatable(self.uri, options):
            schema = deltalake.Schema.from_json(rows.schema_json)
            deltalake.DeltaTable.create(
                self.uri, schema, mode="ignore", partition_by=list(self.partition_by), storage_options=options
            )
        mark = self.mark(batch.name)
        self._check(rows)
        return mark

    def mark(self, name: str) -> Mark | None:
        """Read the newest version, and its mark."""
        deltalake = library("deltalake", "delta")
        try:
            self._read = deltalake.DeltaTable(self.uri, storage_options=dict(self.storage_options))
        except deltalake.exceptions.TableNotFoundError as error:
            raise FanoutStopped(
                f"fanout {name}, {self.place}: the table is gone. Bring it back, or take it out of the "
                f"fan-out"
            ) from error
        found = [self._read.transaction_version(_app(name) + part) for part in _PARTS]
        if found[0] is None:
            return None
        if None in found:
            raise FanoutStopped(
                f"fanout {name}, {self.place}: its mark is incomplete: {found}. Bring back the table"
            )
        number, query, rows, checksum, version = found
        self._check_restored(name, version, number)
        return Mark(query, number, Content(rows, checksum))

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """Write Parquet files into the table's folder."""
        columns = pa.schema(self._read.schema().to_arrow())  # deltalake's own cannot be pickled
        prefix = f"{batch.name}-{batch.number}"
        partitions = tuple(self._read.metadata().partition_columns)
        options = dict(self.storage_options)
        uri = self.uri
        return rows.stage(lambda: DeltaFiles(uri, options, columns, partitions, prefix))

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Commit as the successor of the version that was read."""
        deltalake = library("deltalake", "delta")
        add = library("deltalake.transaction", "delta").AddAction
        values = (batch.number, batch.query, *staged.content, self._read.version() + 1)
        marks = [
            deltalake.Transaction(_app(batch.name) + part, value)
            for part, value in zip(_PARTS, values, strict=True)
        ]
        properties = deltalake.CommitProperties(app_transactions=marks, max_commit_retries=0)
        try:
            self._read.create_write_transaction(
                [add(**json.loads(one)) for one in staged.files],
                "append",
                self._read.schema(),
                self._read.metadata().partition_columns,
                commit_properties=properties,
            )
        except deltalake.exceptions.CommitFailedError as error:
            raise TableMoved(str(error)) from error

    def _check(self, rows: Rows) -> None:
        metadata = self._read.metadata()
        refused = sorted(one for one in metadata.configuration if _REFUSED.fullmatch(one))
        special = [
            f.name for f in self._read.schema().fields if any(key.startswith("delta.") for key in f.metadata)
        ]
        if refused or special:
            raise OptionError(
                f"{self.place}: the fan-out cannot keep to {', '.join([*refused, *special])} "
                f"(constraints, column "
                "mapping, generated columns, or marks that expire). Nothing was written: drop it from the "
                "table"
            )
        has, given = _kinds(self._read.schema().to_json()), _kinds(rows.schema_json)
        if has != given:
            raise SchemaError(
                f"{self.place}: its columns are {has}, the batch's are {given}. Nothing was written. Give "
                f"the "
                "target a transform that makes the table's columns, or change the table"
            )
        if self.partition_by and list(self.partition_by) != list(metadata.partition_columns):
            raise OptionError(
                f"{self.place}: partition_by={list(self.partition_by)}, but it is partitioned by "
                f"{metadata.partition_columns}. Nothing was written"
            )

    def _check_restored(self, name: str, version: int, number: int) -> None:
        """RESTORE takes back rows, but not `txn` actions."""
        newer = self._read.version() - version
        history = self._read.history(newer) if newer > 0 else []
        restored = [
            one for one in history if one["operation"] == "RESTORE" and one["version"] > version
            and int(one.get("operationParameters", {}).get("version") or -1) < version
        ]  # fmt: skip
        if newer < 0 or restored:
            raise FanoutStopped(
                f"fanout {name}, {self.place}: it was restored to a version before {version}, the one of "
                f"batch "
                f"{number}: rows that the query has done are no longer there. Nothing was written. "
                f"Restore it to "
                f"version {version} or a later one, or give the query a new name and a new checkpoint"
            )


def delta(
    uri: str,
    *,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    since: int | None = None,
) -> DeltaTarget:
    """A Delta table at a path or URI that driver and executors reach; created by batch 0 if it is not there.

    `storage_options`: those of deltalake. `transform` makes the table's columns. `since`: the number of the
    batch from which on the table takes part in a query that already runs. Raises OptionError.
    """
    library("deltalake", "delta")
    if not isinstance(uri, str) or not uri:
        raise OptionError(f"delta({uri!r}): give the table's path or URI")
    if isinstance(partition_by, str):
        raise OptionError(f"delta({uri!r}): partition_by is a list of columns")
    check_since(f"delta({uri!r})", since)
    place = uri if "://" in uri else str(Path(uri).absolute())  # tasks have another working directory
    options = dict(storage_options or {})
    return DeltaTarget(place, tuple(partition_by), options, transform, since, f"Delta table {place}")


def check_since(what: str, since: int | None) -> None:
    """Raise OptionError unless it is None or the number of a batch after the first."""
    if since is not None and (not isinstance(since, int) or since < 1):
        raise OptionError(
            f"{what}: since={since!r}: a batch's number above 0, from which on the table takes part"
        )


def _app(name: str) -> str:
    return f"eoslog-fanout/{name}"


def _kinds(schema_json: str) -> dict[str, str]:
    """Columns and their types, without what only constrains them."""

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
            return {key: plain(value) for key, value in node.items() if key not in left_out}
        return [plain(one) for one in node] if isinstance(node, list) else node

    fields = plain(json.loads(schema_json))["fields"]
    kinds = {one["name"]: one["type"] for one in fields}
    return {name: kind if isinstance(kind, str) else json.dumps(kind) for name, kind in sorted(kinds.items())}
