"""PostgreSQL tables, by psycopg. Tasks COPY their rows to a staging table; the driver moves them into the
table and writes the mark, a row of `eoslog.marks`, in one transaction.

Staging tables are unlogged: a crash of the server empties them, so the driver counts before it moves. A mark
outlives its table, and a dump takes it along. So it names its table's OID and its own transaction: of a table
that was made anew, or a database that was restored from a dump, it says that the batch is gone (`Gone`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from eoslog.connector.commit.decision import packed, unpacked
from eoslog.errors import OptionError, SchemaError
from eoslog.fanout.delta import check_since
from eoslog.fanout.extras import library
from eoslog.fanout.merge import Merge
from eoslog.fanout.postgres_columns import Column, checked, made, quoted
from eoslog.fanout.postgres_merge import PostgresMerge
from eoslog.fanout.rows import Rows, Staged
from eoslog.fanout.rules import (
    Batch,
    Content,
    FanoutStopped,
    Gone,
    Mark,
    TableGone,
    check_begins,
    newest_mark,
)
from eoslog.fanout.table import TableMoved, Transform

_TASK = "__eoslog_task"
"""A column of staging tables: which writer a row is of. Of a task that ran twice, one counts."""
_FROZEN_MS = 60_000
"""After this time the server ends the transaction of a driver that has stopped in it: others wait for it."""
_MARKS = """CREATE TABLE IF NOT EXISTS eoslog.marks (
    table_name text, fanout text, query bigint NOT NULL, batch bigint NOT NULL, rows bigint NOT NULL,
    checksum bigint NOT NULL, ends text NOT NULL, table_oid bigint NOT NULL, xid bigint NOT NULL,
    committed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (table_name, fanout))"""


_UNSAFE = """SELECT FROM pg_partition_tree(pg_class.oid) AS part JOIN pg_class AS leaf ON leaf.oid = relid
    WHERE leaf.relpersistence <> 'p' OR leaf.relkind NOT IN ('r', 'p')"""
"""Partitions that a crash empties, and those of other servers, which commit by themselves."""


class _Said(NamedTuple):
    """A row of `eoslog.marks`. `is_here`: its own transaction has written it, on this server or on one
    that this is a copy of, block by block."""

    fanout: str
    query: int
    batch: int
    rows: int
    checksum: int
    ends: str
    table_oid: int
    is_here: bool

    @property
    def mark(self) -> Mark:
        """But for whether the batch is gone."""
        return Mark(self.query, self.batch, Content(self.rows, self.checksum), unpacked(self.ends))


class _Look(NamedTuple):
    """What the database has of the table. `oid`: None: no table."""

    oid: int | None
    kind: str
    columns: tuple[Column, ...]
    marks: tuple[_Said, ...]

    def mark(self, name: str) -> _Said | None:
        return next((one for one in self.marks if one.fanout == name), None)

    def reached(self, query: int) -> int | None:
        return max((one.batch for one in self.marks if one.query == query), default=None)


@dataclass
class PostgresTarget:
    """A table of a PostgreSQL database."""

    schema: str
    name: str
    conninfo: str = field(repr=False)
    transform: Transform | None
    since: int | str | None
    merge: Merge | None = None
    place: str = ""
    _read: _Look = field(default=_Look(None, "", (), ()), repr=False)
    _columns: Sequence[str] = field(default=(), repr=False)
    _staging: str = field(default="", repr=False)

    def prepare(self, rows: Rows, batch: Batch) -> Mark | None:
        """Create the table for batch 0, check the columns, read the mark."""
        columns = rows.schema_json
        if self.merge is not None:
            columns = self.merge.table_schema(self.place, columns)
        with self._connected() as connection:
            self._create(connection, None if batch.number else columns)
        try:
            mark = self.mark(batch.name)
        except TableGone as gone:
            said = self._read.mark(batch.name)
            mark = None if said is None else said.mark._replace(gone=self._gone(said))
            _, newest = newest_mark(mark, self.others(batch.name, batch.query), batch)
            check_begins(gone, self.place, newest, batch, self.since)
            with self._connected() as connection:
                self._create(connection, columns)
            mark = self.mark(batch.name)
        if self._read.kind not in ("r", "p"):
            raise OptionError(
                f"{self.place}: it is no table that keeps its rows (a view, a foreign, an unlogged or a "
                "temporary table), or one of its partitions is none. Nothing was written. Name a table; "
                "ALTER TABLE ... SET LOGGED makes an unlogged table or partition safe"
            )
        self._columns = checked(self.place, self._quoted, self._read.columns, columns)
        if self.merge is not None:
            with self._connected() as connection:
                PostgresMerge.check_key(connection, self.merge, self.place, self._quoted, self._read.oid or 0)
        return mark

    def mark(self, name: str) -> Mark | None:
        """Look at the table, and read its mark."""
        with self._connected() as connection:
            self._read = self._look(connection)
        said = self._read.mark(name)
        if self._read.oid is None:
            raise TableGone(name, self.place)
        if said is None:
            return None
        return said.mark._replace(gone=self._gone(said))

    def reached(self, query: int) -> int | None:
        """The last batch of a query, under any name."""
        return self._read.reached(query)

    def others(self, name: str, query: int) -> Mapping[str, Mark]:
        """The marks of other names; of those of `query`, whether the batch is gone. Other queries' marks of a
        table that it has replaced are not its own."""
        ours = {
            one.fanout: one.mark._replace(gone=self._gone(one))
            for one in self._read.marks
            if one.query == query
        }
        theirs = {
            one.fanout: one.mark
            for one in self._read.marks
            if one.query != query and (not one.is_here or one.table_oid == self._read.oid)
        }
        return {other: mark for other, mark in (ours | theirs).items() if other != name}

    def stage(self, rows: Rows, batch: Batch) -> Staged:
        """COPY them to a table of this attempt."""
        self._staging = f"{self._prefix(batch.name)}{batch.number}_{secrets.token_hex(4)}"
        extra = [] if self.merge is None or self.merge.operation is None else [self.merge.operation]
        columns = [*map(quoted, self._columns), *(f"NULL::text AS {quoted(one)}" for one in extra)]
        with self._connected() as connection:
            connection.execute(
                f"CREATE UNLOGGED TABLE {self._staged} AS SELECT 0::bigint AS {quoted(_TASK)}, "
                f"{', '.join(columns)} FROM {self._quoted} WITH NO DATA"
            )
        given = (*self._columns, *extra)
        names = ", ".join(map(quoted, (_TASK, *given)))
        copy = f"COPY {self._staged} ({names}) FROM STDIN WITH (FORMAT csv, ENCODING 'UTF8')"
        return rows.stage(partial(CopyWriter, self.conninfo, copy, given, self.place))

    def commit(self, staged: Staged, batch: Batch) -> None:
        """Move them into the table and write the mark, unless the mark is not as it was read."""
        with self._connected() as connection:
            with connection.transaction():
                self._alone(connection)
                connection.execute(f"LOCK TABLE {self._quoted} IN ROW EXCLUSIVE MODE")
                self._see_the_same(self._look(connection), batch)
                self._move(connection, staged, batch)
                self._see_the_same(self._look(connection), batch)  # partitions come without waiting for it
                self._write_mark(connection, staged.content, batch)
            self._drop_staged(connection, batch)

    def _see_the_same(self, now: _Look, batch: Batch) -> None:
        """Raise TableMoved if another driver has come first, FanoutStopped if the columns are others."""
        seen = [(one.oid, one.mark(batch.name), one.reached(batch.query)) for one in (self._read, now)]
        if seen[0] != seen[1]:
            raise TableMoved(f"{self.place}: {seen}")
        if (now.columns, now.kind) != (self._read.columns, self._read.kind):
            raise FanoutStopped(
                f"fanout {batch.name}, batch {batch.number}, {self.place}: its columns or partitions were "
                "changed while the batch was written. The batch is not in the table. Start the query again"
            )

    def _move(self, connection: Any, staged: Staged, batch: Batch) -> None:
        """Raises FanoutStopped if the staging table does not have the rows any more."""
        tasks = [json.loads(one)["task"] for one in staged.files]
        if not tasks:
            return
        its = f"FROM {self._staged} WHERE {quoted(_TASK)} = ANY(%s)"
        (found,) = connection.execute(f"SELECT count(*) {its}", [tasks]).fetchone()
        if found != staged.content.rows:
            raise FanoutStopped(
                f"fanout {batch.name}, batch {batch.number}, {self.place}: its staging table has {found} of "
                f"{staged.content.rows} rows: the server has crashed since. The batch is not in the "
                "table. Start the query again"
            )
        if self.merge is not None:
            how = PostgresMerge(self.merge, self._quoted, self._read.columns, self._columns)
            how.carry_out(connection, its, tasks, f"fanout {batch.name}, batch {batch.number}, {self.place}")
            lacks, given = how.lacking(connection), "changes"
        else:
            columns, given = ", ".join(map(quoted, self._columns)), "rows"
            move = f"INSERT INTO {self._quoted} ({columns}) SELECT {columns} {its}"
            lacks = found - connection.execute(move, [tasks]).rowcount
        if lacks:
            raise FanoutStopped(
                f"fanout {batch.name}, batch {batch.number}, {self.place}: it has not taken {lacks} of "
                f"{found} {given}: a trigger or a rule of it drops them. The batch is "
                "not in the table. Drop the trigger or rule, or leave such rows out in the target's transform"
            )

    def _write_mark(self, connection: Any, content: Content, batch: Batch) -> None:
        names = ("query", "batch", "rows", "checksum", "ends", "table_oid", "xid", "committed")
        connection.execute(
            f"INSERT INTO eoslog.marks (table_name, fanout, {', '.join(names)}) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, pg_current_xact_id()::xid::text::bigint, now()) "
            "ON CONFLICT (table_name, fanout) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in names),
            [self._key, batch.name, batch.query, batch.number, *content, packed(batch.ends), self._read.oid],
        )

    def _drop_staged(self, connection: Any, batch: Batch) -> None:
        """This attempt's staging table, and those of batches that nobody can commit any more."""
        errors = library("psycopg.errors", "postgres")
        prefix = self._prefix(batch.name)
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'eoslog'::regnamespace AND relkind = 'r' "
            "AND starts_with(relname, %s) AND pg_has_role(relowner, 'USAGE')",
            [prefix],
        )
        for (name,) in found.fetchall():
            if name != self._staging and int(name.removeprefix(prefix).partition("_")[0]) >= batch.number:
                continue
            # a task that nobody told of its end still writes to it; or another driver drops it
            with suppress(errors.LockNotAvailable, errors.UndefinedTable), connection.transaction():
                connection.execute(f"LOCK TABLE eoslog.{quoted(name)} IN ACCESS EXCLUSIVE MODE NOWAIT")
                connection.execute(f"DROP TABLE eoslog.{quoted(name)}")

    # -- the database ----------------------------------------------------------------------------

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection of the driver's. Raises FanoutStopped if there is none, or it is lost."""
        psycopg = library("psycopg", "postgres")
        try:
            with _connect(self.conninfo) as connection:
                connection.autocommit = True
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                yield connection
        except psycopg.OperationalError as error:
            raise FanoutStopped(
                f"{self.place}: PostgreSQL does not do it: {error}. Whether it has the batch, its "
                "mark will say. Start the query again when the server answers"
            ) from error

    def _alone(self, connection: Any) -> None:
        """Wait until no other driver commits to the table. Not even a careless server may lose the commit."""
        connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {_FROZEN_MS}")
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"eoslog {self._key}"])
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) "
            "WHERE current_setting('synchronous_commit') = 'off'"
        )

    def _create(self, connection: Any, schema_json: str | None) -> None:
        """Create the table of marks and, of these columns, this table, where they are not there."""
        errors = library("psycopg.errors", "postgres")
        wanted = []
        if not self._has(connection, "namespace", "eoslog"):
            wanted.append(("CREATE SCHEMA IF NOT EXISTS eoslog", "CREATE SCHEMA eoslog AUTHORIZATION {}"))
        if not self._has(connection, "class", "eoslog.marks"):
            wanted.append((_MARKS, "GRANT CREATE, USAGE ON SCHEMA eoslog TO {}"))
        if schema_json is not None and not self._has(connection, "class", self._quoted):
            columns = [f"{quoted(name)} {kind}" for name, kind in made(self.place, schema_json).items()]
            if self.merge is not None:
                columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.merge.keys))})")
            its = "GRANT CREATE ON SCHEMA" if self._has(connection, "namespace", quoted(self.schema)) else ""
            way = (
                f"{its} {quoted(self.schema)} TO {{}}"
                if its
                else f"CREATE SCHEMA {quoted(self.schema)} AUTHORIZATION {{}}"
            )
            wanted.append((f"CREATE TABLE IF NOT EXISTS {self._quoted} ({', '.join(columns)})", way))
        if not wanted:
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('eoslog', 0))")
            for statement, way in wanted:
                try:
                    connection.execute(statement)
                except (errors.InsufficientPrivilege, errors.InvalidSchemaName) as error:
                    raise OptionError(
                        f"{self.place}: {error.diag.message_primary}. Nothing was written. Have an "
                        f"administrator type: {way.format(quoted(connection.info.user))};"
                    ) from error

    @staticmethod
    def _has(connection: Any, kind: str, name: str) -> bool:
        (found,) = connection.execute(f"SELECT to_reg{kind}(%s) IS NOT NULL", [name]).fetchone()
        return bool(found)

    def _look(self, connection: Any) -> _Look:
        its = "FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relname = %s"
        kind = f"CASE WHEN relpersistence = 'p' AND NOT EXISTS ({_UNSAFE}) THEN relkind::text ELSE '' END"
        names = [quoted(self.schema), self.name]
        table = connection.execute(f"SELECT oid::bigint, {kind} {its}", names).fetchone()
        marks: list[Any] = []
        columns: list[Any] = []
        if self._has(connection, "class", "eoslog.marks"):
            marks = connection.execute(
                "SELECT fanout, query, batch, rows, checksum, ends, table_oid, xmin::text::bigint = xid "
                "FROM eoslog.marks WHERE table_name = %s",
                [self._key],
            ).fetchall()
        if table is not None:
            columns = connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod), attnotnull, "
                "atthasdef AND attgenerated = '' OR attidentity <> '', "
                "attgenerated <> '' OR attidentity = 'a', typtype = 'e' FROM pg_attribute "
                "JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = %s AND attnum > 0 "
                "AND NOT attisdropped ORDER BY attnum",
                [table[0]],
            ).fetchall()
        oid, kind = table or (None, "")
        return _Look(oid, kind, tuple(map(Column._make, columns)), tuple(map(_Said._make, marks)))

    def _gone(self, said: _Said) -> Gone | None:
        """None: the mark was written in this database, for this table."""
        if not said.is_here:
            return Gone(
                f"nothing says whether it has batch {said.batch}: the mark came by a dump or another "
                "copy of rows, and did not come with the batch",
                "Look for the batch's rows in it",
            )
        if said.table_oid != self._read.oid:
            return Gone(
                f"it is not the table that has got batch {said.batch}: it was made anew under that name",
                "Bring back the table that has it",
            )
        return None

    @property
    def _quoted(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def _key(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def _staged(self) -> str:
        return f"eoslog.{quoted(self._staging)}"

    def _prefix(self, name: str) -> str:
        """Of the staging tables of this table and fan-out."""
        return f"stage_{sha256(f'{self._key} {name}'.encode()).hexdigest()[:16]}_"


class CopyWriter:
    """A task's writer: one COPY, whose rows others see when the task is done. One that dies leaves none."""

    def __init__(self, conninfo: str, copy: str, columns: Sequence[str], place: str) -> None:
        """`copy`: the statement; `columns`: those of the rows, in its order, after the one for the task."""
        self._conninfo, self._statement, self._columns, self._place = conninfo, copy, columns, place
        self._task = secrets.randbits(63)
        self._connection: Any = None
        self._copying: Any = None
        self._copy: Any = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Send rows."""
        with self._refusals():
            if self._connection is None:
                self._connection = _connect(self._conninfo)
                self._copying = self._connection.cursor().copy(self._statement)
                self._copy = self._copying.__enter__()
            self._copy.write(csv_of(self._task, rows.select(list(self._columns))))

    def close(self) -> list[bytes]:
        """End the COPY, and name it."""
        if self._connection is None:
            return []
        with self._refusals():
            self._copying.__exit__(None, None, None)
            self._connection.commit()
        self._connection.close()
        return [json.dumps({"task": self._task}).encode()]

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """End the connection upon any error. Raises SchemaError if the server refuses a value."""
        errors = library("psycopg", "postgres")
        try:
            yield
        except BaseException as error:
            if self._copying is not None:
                with suppress(errors.Error):  # it says no more than the first one
                    self._copying.__exit__(type(error), error, error.__traceback__)
                self._connection.close()
            if isinstance(error, errors.DataError | errors.IntegrityError):
                raise SchemaError(
                    f"{self._place}: PostgreSQL refuses a value: {error.diag.message_primary} "
                    f"({error.diag.context}). Nothing was written. Make a right one in the target's transform"
                ) from error
            raise


def csv_of(task: int, rows: pa.RecordBatch) -> memoryview:
    """Rows as COPY's CSV, in which a null is nothing and a text has quotes, with their task in front."""
    arrays = [pa.array(np.full(len(rows), task, np.int64)), *map(_readable, rows.columns)]
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])
    pacsv.write_csv(batch, sink, pacsv.WriteOptions(include_header=False, quoting_style="needed"))
    return memoryview(sink.getvalue())


def _readable(column: pa.Array) -> pa.Array:
    """A column whose CSV PostgreSQL reads: times of UTC, bytes as hexadecimal digits."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # without its zone pyarrow writes a time twenty times as fast
        told = column.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.timestamp(kind.unit)).cast(pa.string())
        return pc.binary_join_element_wise(told, "Z", "")
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        before, between = pa.scalar("\\x", pa.large_string()), pa.scalar("", pa.large_string())
        return pc.binary_join_element_wise(before, _hex(column.cast(pa.large_binary())), between)
    return column


_DIGITS = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint8).reshape(256, 2)


def _hex(column: pa.Array) -> pa.Array:
    """Two digits for each byte."""
    offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    raw = np.frombuffer(b"" if data is None else data, np.uint8)[offsets[0] : offsets[-1]]
    found = pa.Array.from_buffers(
        pa.large_string(),
        len(column),
        [None, pa.py_buffer((offsets - offsets[0]) * 2), pa.py_buffer(_DIGITS[raw].tobytes())],
    )
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.large_string()))


def postgres(
    table: str,
    conninfo: str,
    *,
    merge: Merge | None = None,
    transform: Transform | None = None,
    since: int | str | None = None,
) -> PostgresTarget:
    """A PostgreSQL table, `schema.table`; batch 0 creates it if it is not there.

    `conninfo`: libpq's connection string or URL, for driver and executors; "": libpq's environment variables.
    It has no password: libpq reads that from PGPASSFILE or the file that `passfile` names. Others as for
    `delta`; without `merge` rows are appended. Raises OptionError.
    """
    library("psycopg", "postgres")
    schema, _, name = table.rpartition(".") if isinstance(table, str) else ("", "", "")
    if not name:
        raise OptionError(f"postgres({table!r}): name a table, as schema.table")
    check_since(f"postgres({table!r})", since)
    where = _where(table, conninfo)
    schema = schema or "public"
    place = f"PostgreSQL table {schema}.{name}{where}"
    return PostgresTarget(schema, name, conninfo, transform, since, merge, place)


def _where(table: str, conninfo: str) -> str:
    """The database, for messages: never its password. Raises OptionError."""
    psycopg = library("psycopg", "postgres")
    try:
        said = library("psycopg.conninfo", "postgres").conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise OptionError(  # libpq's own words show parts of it, so perhaps a password
            f"postgres({table!r}): conninfo is no connection string of libpq. Give it as host=... "
            "dbname=... user=..., or postgresql://user@host/dbname (not jdbc:)"
        ) from None
    if "password" in said:
        raise OptionError(
            f"postgres({table!r}): conninfo has a password, which logs might show. Put it into a file of "
            "libpq's (host:port:database:user:password, mode 0600), and say passfile=PATH, or set PGPASSFILE"
        )
    names = [f"{key}={said[key]}" for key in ("service", "host", "hostaddr", "port", "dbname") if key in said]
    return f" ({' '.join(names)})" if names else ""


def _connect(conninfo: str) -> Any:
    connect = library("psycopg", "postgres").connect
    return connect(conninfo, client_encoding="UTF8", fallback_application_name="eoslog")
