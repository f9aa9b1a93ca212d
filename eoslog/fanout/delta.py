"""Delta tables. The mark is six `txn` actions in the commit that adds the files (Delta's protocol,
"Transaction Identifiers"): batch, query, rows, checksum, the commit's own version, and the query's batch
whatever its name. RESTORE and CREATE OR REPLACE keep them, whatever state they set the table to: so it is
judged by its files (`DeltaLog`). The plan of the batch is in the commit's `commitInfo`, until Delta cleans up
its log.

deltalake would try a commit again on top of other commits. Here every commit is for one version, and a
conflict is looked at before another try: two drivers with the same batch cannot both commit it.

A merge is deltalake's, from files of changes that no commit names, with the same mark in its commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from eoslog.connector.commit.decision import packed, unpacked
from eoslog.errors import OptionError, SchemaError
from eoslog.fanout.delta_files import DeltaFiles
from eoslog.fanout.extras import library
from eoslog.fanout.merge import DELETED, Merge, check_merge
from eoslog.fanout.rows import Rows, Staged
from eoslog.fanout.rules import (
    Batch,
    Content,
    FanoutStopped,
    Gone,
    Mark,
    TableGone,
    check_begins,
    taking_back,
)
from eoslog.fanout.table import TableMoved, Transform

_PARTS = ("", "/query", "/rows", "/checksum", "/version")
_SETS = re.compile(r"RESTORE|REPLACE|CREATE|CLONE")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*(parquet|json)$")
_LOOKS = 1_000
"""How many commits of a table that was set back are looked at for what else it lacks."""
_WORD = re.compile(r"\d+:[0-9a-f]{8}")
_REFUSED = re.compile(r"delta\.(constraints\..*|columnMapping\.mode|setTransactionRetentionDuration)")


@dataclass
class DeltaTarget:
    """A Delta table at a path or URI."""

    uri: str
    partition_by: Sequence[str]
    storage_options: Mapping[str, str]
    transform: Transform | None
    since: int | str | None
    merge: Merge | None = None
    place: str = ""
    _read: Any = field(default=None, repr=False)

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Create the table for batch 0, check the columns, read the mark."""
        deltalake = library("deltalake", "delta")
        options, columns = dict(self.storage_options), rows.schema_json
        if self.merge is not None:
            columns = self.merge.table_schema(self.place, columns)
        try:
            mark = self.mark(batch.name)
        except TableGone as gone:
            check_begins(gone, self.place, None, batch, self.since)
            schema = deltalake.Schema.from_json(columns)
            deltalake.DeltaTable.create(
                self.uri, schema, mode="ignore", partition_by=list(self.partition_by), storage_options=options
            )
            mark = self.mark(batch.name)
        self._check(columns)
        return mark

    def mark(self, name: str) -> Mark | None:
        """Read the newest version, and its mark."""
        deltalake = library("deltalake", "delta")
        try:
            self._read = deltalake.DeltaTable(self.uri, storage_options=dict(self.storage_options))
        except deltalake.exceptions.TableNotFoundError as error:
            raise TableGone(name, self.place) from error
        if (found := self._said(name)) is None:
            return None
        number, query, rows, checksum, version = found
        content, log = Content(rows, checksum), self._log()
        gone = log.gone(name, query, number, rows, version)
        return Mark(query, number, content, log.ends(name, number, version), gone)

    def _said(self, name: str) -> list[int] | None:
        """The numbers of a mark."""
        found = [self._read.transaction_version(_app(name) + part) for part in _PARTS]
        if found[0] is None:
            return None
        if None in found:
            raise FanoutStopped(
                f"fanout {name}, {self.place}: its mark is incomplete: {found}. Bring back the table"
            )
        return found

    def _log(self) -> DeltaLog:
        return DeltaLog(self.uri, dict(self.storage_options), self._read)

    def others(self, name: str, query: int) -> Mapping[str, Mark]:
        """The marks of other names; of those of `query`, whether the batch is gone."""
        log, marks = self._log(), dict[str, Mark]()
        for other in log.names() - {name}:
            if (found := self._said(other)) is not None:
                number, its, rows, checksum, version = found
                gone = log.gone(other, query, number, rows, version) if its == query else None
                ends = log.ends(other, number, version)
                marks[other] = Mark(its, number, Content(rows, checksum), ends, gone)
        return marks

    def reached(self, query: int) -> int | None:
        """The last batch of a query, under any name."""
        found: int | None = self._read.transaction_version(_of(query))
        return found

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """Write Parquet files into the table's folder."""
        columns = pa.schema(self._read.schema().to_arrow())  # deltalake's own cannot be pickled
        prefix = f"{batch.name}-{batch.number}"
        partitions = tuple(self._read.metadata().partition_columns)
        options = dict(self.storage_options)
        uri = self.uri
        if self.merge is not None:
            columns, partitions, prefix = self.merge.changes_of(columns), (), f"{prefix}-changes"
        return rows.stage(lambda: DeltaFiles(uri, options, columns, partitions, prefix))

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Commit as the successor of the version that was read."""
        failed = library("deltalake.exceptions", "delta").CommitFailedError
        version, properties = self._read.version(), self._marked(staged, batch)
        try:
            if self.merge is not None:
                self._merge(self.merge, staged, properties)
            if (
                self.merge is None or self._read.version() == version
            ):  # a merge of nothing new commits nothing
                self._append([] if self.merge else staged.files, properties)
        except failed as error:
            raise TableMoved(str(error)) from error
        if self.merge is not None:
            for one in staged.files:  # nobody else's, and in no commit
                self._files().delete_file(json.loads(one)["path"])

    def _marked(self, staged: Staged, batch: Batch) -> Any:
        """The mark, as properties of the commit."""
        deltalake = library("deltalake", "delta")
        values = (batch.number, batch.query, *staged.content, self._read.version() + 1)
        marks = [
            deltalake.Transaction(_app(batch.name) + part, value)
            for part, value in zip(_PARTS, values, strict=True)
        ]
        marks.append(deltalake.Transaction(_of(batch.query), batch.number))
        info = {_app(batch.name): packed(batch.ends)}
        return deltalake.CommitProperties(custom_metadata=info, app_transactions=marks, max_commit_retries=0)

    def _append(self, files: Sequence[bytes], properties: Any) -> None:
        add = library("deltalake.transaction", "delta").AddAction
        self._read.create_write_transaction(
            [add(**json.loads(one)) for one in files],
            "append",
            self._read.schema(),
            self._read.metadata().partition_columns,
            commit_properties=properties,
        )

    def _merge(self, merge: Merge, staged: Staged, properties: Any) -> None:
        """Bring the newest change of each key into the table. Raises SchemaError: see `Merge.newest`."""
        if not staged.files:
            return
        folder = self._files()
        read = [pq.read_table(json.loads(one)["path"], filesystem=folder) for one in staged.files]
        changes = merge.newest(self.place, pa.concat_tables(read))
        newer = merge.newer(lambda name: f"new.{_quoted(name)}", lambda name: f"old.{_quoted(name)}")
        is_key = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in merge.keys)
        values = {_quoted(one): f"new.{_quoted(one)}" for one in changes.column_names if one != DELETED}
        merger = self._read.merge(
            changes, is_key, "new", "old", streamed_exec=False, commit_properties=properties
        )
        merger = merger.when_matched_delete(f"new.{DELETED} AND ({newer})")
        merger = merger.when_matched_update(values, f"NOT new.{DELETED} AND ({newer})")
        merger.when_not_matched_insert(values, f"NOT new.{DELETED}").execute()

    def _files(self) -> pafs.FileSystem:
        """The table's folder."""
        handler = library("deltalake.fs", "delta").DeltaStorageHandler(self.uri, dict(self.storage_options))
        return pafs.PyFileSystem(handler)

    def _check(self, columns: str) -> None:
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
        has, given = _kinds(self._read.schema().to_json()), _kinds(columns)
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


class DeltaLog:
    """What a table's log says of the batch that its mark names.

    Most commits change the state that they find; what these do to a batch's rows is their owner's business.
    Some set the table to another state: RESTORE, CREATE OR REPLACE, CLONE. Then it has the batch if the state
    is one that it had since the batch came, and that had it.
    """

    def __init__(self, uri: str, options: Mapping[str, str], newest: Any) -> None:
        """`newest`: the table, as it was last read."""
        handler = library("deltalake.fs", "delta").DeltaStorageHandler(uri, dict(options))
        self._folder, self._newest = pafs.PyFileSystem(handler), newest
        self._open = partial(library("deltalake", "delta").DeltaTable, uri, storage_options=dict(options))
        self._unreadable = library("deltalake.exceptions", "delta").DeltaError
        self._paths: dict[int, frozenset[str]] = {}
        self._commits: dict[int, list[Any]] = {}

    def gone(self, name: str, query: int, number: int, rows: int, version: int) -> Gone | None:
        """Whether the table has lost batch `number`, of so many rows, which `version` has brought, and which
        other batches of the query. None: it has it."""
        try:
            gone = self._judged(name, number, rows, version)
            return gone and gone.with_others(number, rows, self._had(query))
        except (FileNotFoundError, self._unreadable):
            if self._has_files(name, number, rows, None):
                return None
        return Gone(
            f"its log no longer says whether it still has batch {number}: commits from version {version} on, "
            "which has brought it, were cleaned up",
            "Look for the batch's rows in it",
        )

    def ends(self, name: str, number: int, version: int) -> str:
        """The plan of batch `number`, which `version` has brought. Empty: it is not known (any more)."""
        try:
            commit = self._commit(version) if version <= self._newest.version() else []
        except FileNotFoundError:
            return ""
        if not _is_marked(commit, name, number, version):
            return ""
        return unpacked(
            "".join(one["commitInfo"].get(_app(name), "") for one in commit if "commitInfo" in one)
        )

    def names(self) -> set[str]:
        """The fan-outs that have a mark: in the newest checkpoint, or in a commit since."""
        names = [one.base_name for one in self._folder.get_file_info(pafs.FileSelector("_delta_log"))]
        newest = self._newest.version()
        found = [(int(one[1]), one[0]) for name in names if (one := _CHECKPOINT.match(name))]
        last = max((version for version, _ in found if version <= newest), default=-1)
        apps = {app for version, name in found if version == last for app in self._apps(name)}
        for version in range(last + 1, newest + 1):
            apps |= {one["txn"]["appId"] for one in self._commit(version) if "txn" in one}
        apart = (app.split("/") for app in apps)
        return {one[1] for one in apart if len(one) == 2 and one[0] == _app("").rstrip("/")}

    def _apps(self, checkpoint: str) -> set[str]:
        """The applications that a file of a checkpoint names."""
        path = f"_delta_log/{checkpoint}"
        if path.endswith(".json"):
            with self._folder.open_input_stream(path) as file:
                lines = [json.loads(line) for line in file.read().splitlines() if line.strip()]
            return {one["txn"]["appId"] for one in lines if "txn" in one}
        with self._folder.open_input_file(path) as file:
            read = pq.ParquetFile(file)
            if "txn" not in read.schema_arrow.names:
                return set()
            txn = read.read(["txn"])["txn"].combine_chunks()
        return set(pc.struct_field(txn, "appId").to_pylist()) - {None}

    def _had(self, query: int) -> dict[int, tuple[int, bool]]:
        """The batches of a query in the log, as far as it reaches back: their rows, and whether the table has
        them."""
        had: dict[int, tuple[int, bool]] = {}
        newest = self._newest.version()
        for version in range(newest, max(-1, newest - _LOOKS), -1):
            try:
                found = _batch_of(self._commit(version), query)
                has = found is not None and self._judged(*found, version) is None
            except (FileNotFoundError, ValueError, self._unreadable):
                break  # it is cleaned away, or is no commit
            if found is not None:
                _, number, rows = found
                had[number] = (rows, has or had.get(number, (0, False))[1])
        return had

    def _judged(self, name: str, number: int, rows: int, version: int) -> Gone | None:
        """Raises FileNotFoundError, DeltaError where the log does not reach back to the batch."""
        newest = self._newest.version()
        commit = self._commit(version) if version <= newest else []
        if not _is_marked(commit, name, number, version):
            if self._has_files(name, number, rows, None):
                return None
            why = f"it no longer has batch {number}: its version {version} is not the one that brought it"
            return Gone(why, "Bring back the table that has it")
        sets = [at for at in range(version + 1, newest + 1) if self._sets(at)]
        if not sets or self._has_files(name, number, rows, commit):
            return None
        having = self._having(version, newest, sets)
        if having[-1] == newest:
            return None
        last = max(at for at in sets if at not in having)
        why = f"it no longer has batch {number}: version {last} has set it to a state without the batch"
        since = [str(at) for at in range(last + 1, newest + 1) if _changes(self._commit(at))]
        return Gone(why, f"RESTORE it to version {having[-1]}{taking_back('versions', since)}")

    def _having(self, version: int, newest: int, sets: Sequence[int]) -> list[int]:
        """The versions since the batch's that have it."""
        having = [version]
        for at in range(version + 1, newest + 1):
            kept = having[-1] == at - 1
            if kept if at not in sets else any(self._state(at) == self._state(one) for one in having):
                having.append(at)
        return having

    def _sets(self, at: int) -> bool:
        """Whether a commit sets the table to another state. A new id of the table says so too."""
        commit = self._commit(at)
        said = "".join(one["commitInfo"].get("operation", "") for one in commit if "commitInfo" in one)
        ids = [one["metaData"]["id"] for one in commit if "metaData" in one]
        return bool(_SETS.search(said.upper())) or any(self._open(at - 1).metadata().id != one for one in ids)

    def _has_files(self, name: str, number: int, rows: int, commit: Sequence[Any] | None) -> bool:
        """Whether the newest version has all files of the batch's commit. `commit`: None if it cannot be
        read: then the files' names and rows tell."""
        if not rows:
            return False  # a batch without files tells nothing of those before it
        files = self._files
        if commit is not None:
            added, removed = (
                {unquote(one[kind]["path"]) for one in commit if kind in one} for kind in ("add", "remove")
            )
            has = _paths(files)
            return bool(added | removed) and added <= has and not removed & has
        its = pc.match_substring_regex(
            files["path"], rf"^{re.escape(name)}-{number}-[0-9a-f-]{{36}}\.parquet$"
        )
        return bool(pc.sum(files.filter(its)["num_records"]).as_py() == rows)

    @cached_property
    def _files(self) -> pa.Table:
        return pa.table(self._newest.get_add_actions())

    def _state(self, version: int) -> frozenset[str]:
        if version not in self._paths:
            self._paths[version] = _paths(pa.table(self._open(version).get_add_actions()))
        return self._paths[version]

    def _commit(self, version: int) -> list[Any]:
        if version not in self._commits:
            with self._folder.open_input_stream(f"_delta_log/{version:020}.json") as file:
                lines = file.read().splitlines()
            self._commits[version] = [json.loads(line) for line in lines if line.strip()]
        return self._commits[version]


def delta(
    uri: str,
    *,
    partition_by: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    transform: Transform | None = None,
    since: int | str | None = None,
    merge: Merge | None = None,
) -> DeltaTarget:
    """A Delta table at a path or URI that driver and executors reach; batch 0 creates it if it is not there.

    `storage_options`: those of deltalake. `transform`, from DataFrame to DataFrame, makes the table's
    columns. `since`: where the table takes part in a query that already runs: the message's word, or under
    a new name the batch's number. `merge`: rows are changes by key. Raises OptionError.
    """
    library("deltalake", "delta")
    if not isinstance(uri, str) or not uri:
        raise OptionError(f"delta({uri!r}): give the table's path or URI")
    if isinstance(partition_by, str):
        raise OptionError(f"delta({uri!r}): partition_by is a list of columns")
    check_since(f"delta({uri!r})", since)
    check_merge(f"delta({uri!r})", merge)
    place = uri if "://" in uri else str(Path(uri).absolute())  # tasks have another working directory
    options = dict(storage_options or {})
    return DeltaTarget(place, tuple(partition_by), options, transform, since, merge, f"Delta table {place}")


def check_since(what: str, since: int | str | None) -> None:
    """Raise OptionError unless it is None, the number of a batch or a word."""
    if not is_word(since):
        raise OptionError(
            f"{what}: since={since!r}: give the word of a message, as 3:0f1e2d3c, or a batch's number"
        )


def is_word(given: object) -> bool:
    """Whether it is None, the number of a batch or the word of a message."""
    if isinstance(given, str):
        return bool(_WORD.fullmatch(given))
    return given is None or (isinstance(given, int) and given >= 0)


def _quoted(name: str) -> str:
    return f"`{name}`"


def _paths(files: pa.Table) -> frozenset[str]:
    return frozenset(files["path"].to_pylist())


def _is_marked(commit: Sequence[Any], name: str, number: int, version: int) -> bool:
    """Whether it is the commit of a batch, made as this version."""
    said = {one["txn"]["appId"]: one["txn"]["version"] for one in commit if "txn" in one}
    return (said.get(_app(name)), said.get(f"{_app(name)}/version")) == (number, version)


def _batch_of(commit: Sequence[Any], query: int) -> tuple[str, int, int] | None:
    """The batch of a query that a commit has brought: the fan-out's name, its number and rows."""
    said = {one["txn"]["appId"]: one["txn"]["version"] for one in commit if "txn" in one}
    names = [app.removeprefix(_app("")).removesuffix("/query") for app in said if app.endswith("/query")]
    if _of(query) not in said or not names:
        return None
    return names[0], said[_of(query)], said[f"{_app(names[0])}/rows"]


def _changes(commit: Sequence[Any]) -> bool:
    """Whether a commit has added or removed rows; a compaction has not."""
    return any(
        one[kind].get("dataChange", True) for one in commit for kind in ("add", "remove") if kind in one
    )


def _app(name: str) -> str:
    return f"eoslog-fanout/{name}"


def _of(query: int) -> str:
    return f"eoslog-fanout-query/{query}"


def _kinds(schema_json: str) -> dict[str, str]:
    """Columns and their types, without what only constrains them."""

    def plain(node: Any) -> Any:
        if isinstance(node, dict):
            left_out = ("nullable", "containsNull", "valueContainsNull", "metadata")
            return {key: plain(value) for key, value in node.items() if key not in left_out}
        return [plain(one) for one in node] if isinstance(node, list) else node

    fields = plain(json.loads(schema_json))["fields"]
    kinds = {one["name"]: one["type"] for one in fields}
    return {
        name: kind if isinstance(kind, str) else json.dumps(kind, sort_keys=True)
        for name, kind in sorted(kinds.items())
    }
