"""Tables of a fan-out: real ones of Delta and Iceberg in the history's folder, what their owners do to them,
and what the imitated driver brings to them."""

import re
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from eoslog.checkpoint.carry_out import carry_out
from eoslog.checkpoint.editing import uninterrupted
from eoslog.checkpoint.rebuild import rebuilt
from eoslog.commands.session import CommandSession
from eoslog.errors import EoslogError
from eoslog.fanout import marked_ends
from eoslog.fanout.rows import HASH, MODULUS, FileWriter, Staged, run_task
from eoslog.fanout.rules import Batch, Content, other_rows_in
from eoslog.fanout.table import Transform
from eoslog.fanout.topic import has
from tests.fanout.kit import delta_at, iceberg_at
from tests.histories.judge import Finding

if TYPE_CHECKING:
    from tests.histories.judge import Lineage
    from tests.histories.processes import Application
    from tests.histories.query import Query
    from tests.histories.world import World

Read = Callable[[], Iterator[pa.RecordBatch]]
_COLUMNS = '{"type":"struct","fields":[{"name":"row","type":"string","nullable":true,"metadata":{}}]}'
_OTHERS = pa.table({"row": pa.array(["somebody else's"])})


# -- what the driver brings ---------------------------------------------------------------------


class Persisted:
    """The rows of a batch: DataFrame.persist reads them once, for all places."""

    schema_json = _COLUMNS

    def __init__(self, app: "Application", rows: Sequence[Read]) -> None:
        self._app, self._rows = app, rows
        self._held: list[list[pa.RecordBatch]] | None = None

    def through(self, transform: Transform | None) -> "Persisted":
        """These rows."""
        assert transform is None
        return self

    def tasks(self) -> list[list[pa.RecordBatch]]:
        """Each task's."""
        if self._held is None:
            self._held = []
            for number, read in enumerate(self._rows):
                with self._app.worker(number).runs():
                    self._held.append(list(read()))
        return self._held

    def stage(self, writer: Callable[[], FileWriter]) -> Staged:
        """Write them."""
        told = []
        for number, batches in enumerate(self.tasks()):
            with self._app.worker(number).runs():
                told += run_task(map(_hashed, batches), writer()).to_pylist()
        content = Content(sum(one["rows"] for one in told), sum(one["checksum"] for one in told) % MODULUS)
        return Staged([one["file"] for one in told if one["file"] is not None], content)


def _hashed(rows: pa.RecordBatch) -> pa.RecordBatch:
    values = [value.decode() for value in rows.column("value").to_pylist()]
    hashes = [int.from_bytes(sha256(value.encode()).digest()[:7]) for value in values]
    return pa.record_batch({"row": pa.array(values, pa.string()), HASH: pa.array(hashes, pa.int64())})


class Stepping:
    """A table, at whose commits something may strike."""

    def __init__(self, target: Any, step: Callable[[str], None]) -> None:
        self._target, self._step = target, step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def commit(self, staged: Staged, batch: Batch) -> None:
        """The table's."""
        self._step("before table")
        self._target.commit(staged, batch)
        self._step("after table")


class TopicPlace:
    """A topic: a write with the batch's token."""

    transform: Transform | None = None

    def __init__(
        self,
        app: "Application",
        options: dict[str, str],
        write: Callable[[dict[str, str], Sequence[Read]], None],
    ) -> None:
        self._app, self._options, self._write = app, options, write

    def has(self, batch: Batch) -> bool:
        """See eoslog.fanout.topic."""
        with self._app.committer.runs():
            return has(self._options, batch)

    def write(self, rows: Persisted, batch: Batch, *, other_rows: bool) -> None:
        """See eoslog.fanout.topic."""
        readers: list[Read] = [lambda held=held: iter(held) for held in rows.tasks()]  # type: ignore[misc]
        try:
            self._write({"write.token": batch.token}, readers)
        except EoslogError as error:
            if type(error).__name__ != "TokenReused":
                raise
            if not other_rows:
                raise other_rows_in(f"topic {self._options['topic']}", batch) from error


# -- a table and its owner ----------------------------------------------------------------------


class Table:
    """A table. `gone`: rows that somebody's act has ever taken from it; `may_lack`, `may_double`: rows for
    which somebody has taken that into account, having been told. `lineages`: those whose rows it gets.
    `moved`: somebody has set it to another state, as an error says; `asked`: who was, to which one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self._at: Any = {"delta": delta_at, "iceberg": iceberg_at}[kind.rstrip("2")]
        self.lineages: list[Lineage] = []
        self.gone: set[str] = set()
        self.may_lack: set[str] = set()
        self.may_double: set[str] = set()
        self._catalog: Any = None
        self.moved = False
        self.asked: set[tuple[str, ...]] = set()
        self._copies: list[Path] = []
        self._aside: list[Path] = []
        folder.mkdir()

    def target(self, since: str | None = None) -> Any:
        """As a fan-out gets it."""
        target = self._at(self.folder, since=since)
        if not self._is_delta:
            self._catalog = self._catalog or target._catalog()
            target._catalog = lambda: self._catalog  # to open one takes longer than a batch
        return target

    def rows(self) -> Counter[str]:
        """What a reader sees."""
        if not self.is_there:
            return Counter()
        found = DeltaTable(self.uri).to_pyarrow_table() if self._is_delta else self._ice.scan().to_arrow()
        return Counter(found.column("row").to_pylist())

    @property
    def is_there(self) -> bool:
        """Whether it was made."""
        return bool(self._delta) if self._is_delta else bool(self._ice)

    def do(self, act: str, number: int) -> None:
        """An owner's act; one that the table does not allow is not done."""
        if not self.is_there and act != "back":
            return
        changes = act in ("restore", "replace", "delete", "back", "drop")
        had = self.rows() if changes else Counter[str]()
        getattr(self, f"_{act}")(number)
        lost = set(had - self.rows()) if changes else set[str]()
        self.gone |= lost
        self.may_lack |= lost if act == "delete" else set()

    def set_to(self, version: int) -> bool:
        """RESTORE to a version, or make a snapshot the current one; whether that was possible."""
        self.moved = True
        try:
            if self._is_delta:
                DeltaTable(self.uri).restore(version)
            else:
                self._ice.manage_snapshots().set_current_snapshot(version).commit()
        except Exception:  # files or snapshots are gone: each library has errors of its own
            return False
        return True

    def bring_back(self) -> bool:
        """The folder as it was before it was last dropped, replaced or put back; whether there is one."""
        if not self._aside:
            return False
        self.moved = True
        self._put(self._aside.pop())
        return True

    @property
    def uri(self) -> str:
        """Of a Delta table."""
        return str(self.folder / "delta")

    @property
    def _is_delta(self) -> bool:
        return self.kind.startswith("delta")

    @property
    def _delta(self) -> DeltaTable | None:
        return DeltaTable(self.uri) if DeltaTable.is_deltatable(self.uri) else None

    @property
    def _ice(self) -> Any:
        target = self.target()
        catalog = target._catalog()
        return catalog.load_table(target.identifier) if catalog.table_exists(target.identifier) else None

    def _restore(self, back: int) -> None:
        """To a state of so many commits ago."""
        if self._is_delta:
            newest = DeltaTable(self.uri).version()
            self.set_to(max(0, newest - back))
            return
        snapshots = [one.snapshot_id for one in self._ice.snapshots()]
        if snapshots:
            self.set_to(snapshots[max(0, len(snapshots) - 1 - back)])

    def _replace(self, _: int) -> None:
        """CREATE OR REPLACE with the same columns."""
        if self._is_delta:
            DeltaTable.create(self.uri, DeltaTable(self.uri).schema(), mode="overwrite")
            return
        stored = self._ice
        if stored.current_snapshot() is not None:
            update = RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"})
            stored.catalog.commit_table(stored, (), (update,))

    def _clean(self, _: int) -> None:
        """The log's old commits, or old snapshots, are cleaned up."""
        if self._is_delta:
            DeltaTable(self.uri).create_checkpoint()
            for commit in sorted((Path(self.uri) / "_delta_log").glob("*.json"))[:-1]:
                commit.unlink()
            return
        current = self._ice.current_snapshot()
        old = [one.snapshot_id for one in self._ice.snapshots() if one != current]
        if old:
            self._ice.maintenance.expire_snapshots().by_ids(old).commit()

    def _compact(self, _: int) -> None:
        if self._is_delta:
            DeltaTable(self.uri).optimize.compact()
            return
        stored = self._ice
        rows, old = stored.scan().to_arrow(), [task.file for task in stored.scan().plan_files()]
        with stored.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for file in old:
                snapshot.delete_data_file(file)
            for file in _dataframe_to_data_files(stored.metadata, rows, stored.io) if old else ():
                snapshot.append_data_file(file)

    def _vacuum(self, _: int) -> None:
        """Files that no current state has are deleted."""
        if self._is_delta:
            DeltaTable(self.uri).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def _others(self, _: int) -> None:
        """Somebody else's rows."""
        if self._is_delta:
            write_deltalake(self.uri, _OTHERS, mode="append")
        else:
            self._ice.append(_OTHERS)

    def _delete(self, number: int) -> None:
        """Some rows, by their owner."""
        some = sorted(self.rows())[: number + 1]
        for row in some:
            if self._is_delta:
                DeltaTable(self.uri).delete(f"row = '{row.replace(chr(39), chr(39) * 2)}'")
            else:
                self._ice.delete(f"row == '{row.replace(chr(39), chr(39) * 2)}'")

    def _copy(self, _: int) -> None:
        """The folder is copied."""
        self._copies.append(self._copied())

    def _back(self, _: int) -> None:
        """The copy takes the folder's place."""
        if self._copies:
            self._aside.append(self._copied())
            self._put(self._copies[-1])

    def _drop(self, _: int) -> None:
        """The folder is deleted, after a copy."""
        self._aside.append(self._copied())
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self._catalog = None

    def _copied(self) -> Path:
        copy = self.folder.parent / f"{self.folder.name}-{uuid.uuid4().hex}"
        shutil.copytree(self.folder, copy)
        return copy

    def _put(self, copy: Path) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(copy, self.folder)
        self._catalog = None


def owners_act(world: "World", name: str, act: str, number: int = 0) -> None:
    """One of Table's, to the table so called."""
    if name in world.tables:
        world.tables[name].do(act, number)


def rename_fan_out(world: "World", name: str, new: str) -> None:
    """The fan-out gets another name, from the next start on."""
    query = world.queries.get(name)
    if query is not None and query.tables and query.token != new:
        world.do_stop(name)
        query.former_token, query.token = query.token, new


# -- what messages say --------------------------------------------------------------------------


def _place(world: "World", query: "Query", text: str) -> "Table | None":
    """The table that an error names."""
    named = {world.tables[one].target().place: world.tables[one] for one in query.tables}
    # Iceberg tables of several folders have one name: that which lacks the batch is found by its mark
    return next((table for place, table in named.items() if place in text), None)


def new_name(world: "World", query: "Query", text: str) -> bool:
    """A new name of the fan-out, for a new checkpoint; or of one for this place alone, as other places have
    the batch under the old name."""
    if query.apart_token is not None:
        table = _place(world, query, text)
        query.apart.add("topic" if table is None else table.kind)
        return True
    query.former_token, query.token = query.token, f"{query.token}-{query.name}"
    return True


def old_name(world: "World", query: "Query", text: str) -> bool:
    """The fan-out's former name. A place that stops then gets a fan-out of its own. One that has, and is back
    as it was, goes to the first one again."""
    table = _place(world, query, text)
    if table is not None and table.kind in query.apart:
        query.apart.remove(table.kind)
        return True
    if query.former_token is None:
        return False
    query.token, query.former_token = query.former_token, query.token
    if "give that one a fan-out of its own" in text:
        query.apart_token = query.former_token
    return True


def table_back(world: "World", query: "Query", text: str) -> bool:
    """The state or the table that the error asks for."""
    table = _place(world, query, text)
    told = re.search(r"RESTORE it to version (\d+)|Make (\d+) or one that comes from it", text)
    if table is None or "which takes back what" in text:
        return False  # others' rows: the word is better
    if told is not None:
        again = (query.name, *told.groups())
        if again in table.asked:
            world.findings.append(Finding("a way in a circle", text[:200]))
        table.asked.add(again)
        return table.set_to(int(told.group(1) or told.group(2)))
    return table.bring_back()


def since(world: "World", query: "Query", text: str) -> bool:
    """The word for a table that begins there: with the batch, or behind it if its rows are there."""
    table, words = _place(world, query, text), re.findall(r'since="(\d+:\w+)"', text)
    told = re.search(r"batch (\d+), ", text)
    if table is None or told is None or not words:
        return False
    there, lineage = table.rows(), query.lineage
    batch = lineage.batches.get(int(told.group(1)), set())
    has = any(there[f"{lineage.name}:{uid}"] for uid in batch)
    if has and len(words) == 1:
        return False
    word = words[-1] if has else words[0]
    if len(words) == 2 and not has and len(world.told) % 3 == 0:
        word = words[1]  # it is to stay as it is
    gets = batch if int(word.partition(":")[0]) == int(told.group(1)) else set()
    table.may_lack |= {f"{lineage.name}:{uid}" for uid in set(lineage.tried) - gets}
    query.since[table.kind] = word
    return True


def from_the_table(world: "World", query: "Query", text: str) -> bool:
    """eoslog checkpoint rebuild --fanout --table."""
    table = _place(world, query, text)
    if table is None or query.token is None:
        return False
    try:
        with world.ground.client() as cluster:
            found = uninterrupted(CommandSession(cluster, as_json=False), str(query.checkpoint))
            name = (query.apart_token if table.kind in query.apart else None) or query.token
            planned = marked_ends(table.target(), name, found.query_id)
            if planned is None:
                return False
            carry_out(cluster, found, rebuilt(found, planned))
    except EoslogError:
        return False
    return True


def accept(world: "World", query: "Query", text: str) -> bool:
    """The word for a batch that comes with other rows."""
    told = re.search(r'accept_other_rows="(\d+:\w+)"', text)
    if told is None or query.accept == told.group(1):
        return False
    query.accept = told.group(1)
    rows = set(query.lineage.tried)
    query.lineage.may_lack |= rows
    query.lineage.may_double |= rows
    for name in query.tables:
        world.tables[name].may_lack |= {f"{query.lineage.name}:{uid}" for uid in rows}
        world.tables[name].may_double |= {f"{query.lineage.name}:{uid}" for uid in rows}
    return True
