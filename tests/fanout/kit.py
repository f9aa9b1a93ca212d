"""A fan-out without Spark: rows in lists, real tables, a topic that remembers its tokens, and a driver that
dies."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from psycopg import sql
from pyiceberg.catalog import load_catalog

from eoslog.fanout.delta import DeltaTarget, delta
from eoslog.fanout.iceberg import IcebergTarget, iceberg
from eoslog.fanout.postgres import PostgresTarget, postgres
from eoslog.fanout.rows import HASH, MODULUS, FileWriter, Staged, run_task
from eoslog.fanout.rules import Batch, Content, FanoutStopped
from eoslog.fanout.table import Transform
from tests.fanout.postgres_server import NEEDS_SERVER, PostgresServer

SCHEMA_JSON = (
    '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}},'
    '{"name":"kind","type":"string","nullable":true,"metadata":{}}]}'
)


class Killed(BaseException):
    """The driver's end: nothing of it catches this."""


class ListRows:
    """Rows 'number, number modulo 3' of two tasks."""

    def __init__(self, numbers: range, schema_json: str = SCHEMA_JSON) -> None:
        self.numbers, self.schema_json = numbers, schema_json

    def stage(self, writer: Callable[[], FileWriter]) -> Staged:
        """Write them as two tasks would."""
        told = [
            run_task(iter([self.batch(self.numbers[task::2])]), writer()).to_pylist() for task in range(2)
        ]
        flat = [one for task in told for one in task]
        content = Content(sum(one["rows"] for one in flat), sum(one["checksum"] for one in flat) % MODULUS)
        return Staged([one["file"] for one in flat if one["file"] is not None], content)

    def through(self, transform: Transform | None) -> ListRows:
        """These rows: transforms are Spark's."""
        assert transform is None
        return self

    def batch(self, numbers: range) -> pa.RecordBatch:
        """Rows, as they come to a task."""
        columns = {
            "n": pa.array(numbers, pa.int64()),
            "kind": pa.array([None if n % 3 == 2 else f"k/{n % 3}" for n in numbers], pa.string()),
            HASH: pa.array([hash(("row", n)) % MODULUS for n in numbers], pa.int64()),
        }
        return pa.RecordBatch.from_pydict(columns)


class FakeTopic:
    """A topic as `write.token` promises it: a token is written once, and other rows under it are an error."""

    transform: Transform | None = None

    def __init__(self) -> None:
        self.written: dict[str, list[int]] = {}

    def has(self, batch: Batch) -> bool:
        """Whether the token is written."""
        return batch.token in self.written

    def write(self, rows: ListRows, batch: Batch, *, other_rows: bool) -> None:
        """Once."""
        had = self.written.setdefault(batch.token, list(rows.numbers))
        if had != list(rows.numbers) and not other_rows:
            raise FanoutStopped("TokenReused")

    def numbers(self) -> list[int]:
        """What a reader sees."""
        return sorted(number for rows in self.written.values() for number in rows)


class Dying:
    """A place whose driver dies before or after its call number `at`, counted over all places of a life."""

    def __init__(self, target: Any, calls: Calls) -> None:
        self.target, self.calls = target, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.target, name)
        return self.calls.counted(found) if name in ("prepare", "mark", "stage", "commit", "write") else found


class Calls:
    """Calls of a life. `dies_at`: 2 n: before call n; 2 n + 1: after it; None: never."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.made, self.dies_at = 0, dies_at

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, with death before or after it."""

        def made(*given: Any, **named: Any) -> Any:
            number, self.made = self.made, self.made + 1
            if self.dies_at == 2 * number:
                raise Killed
            answer = call(*given, **named)
            if self.dies_at == 2 * number + 1:
                raise Killed
            return answer

        return made


def delta_at(folder: Path, **more: Any) -> DeltaTarget:
    """A Delta table below a folder."""
    return delta(str(folder / "delta"), **more)


def iceberg_at(folder: Path, **more: Any) -> IcebergTarget:
    """An Iceberg table of a catalog in a folder."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/ice"}
    if not (folder / "catalog.db").exists():
        load_catalog("eoslog", **properties).create_namespace("db")
    return iceberg("db.rows", properties, **more)


SERVERS: list[PostgresServer] = []
"""The one that the tests of a process share, once one has asked for it; conftest.py ends it."""


def shared_server() -> PostgresServer:
    if not SERVERS:
        SERVERS.append(PostgresServer())
    return SERVERS[0]


def postgres_at(folder: Path, **more: Any) -> PostgresTarget:
    """A PostgreSQL table of its own for a folder."""
    name = f"rows_{sha256(str(folder).encode()).hexdigest()[:16]}"
    return postgres(name, shared_server().conninfo(), **more)


AT = pytest.mark.parametrize(
    "at",
    [
        pytest.param(delta_at, id="delta"),
        pytest.param(iceberg_at, id="iceberg"),
        pytest.param(postgres_at, id="postgres", marks=NEEDS_SERVER),
    ],
)
"""A table of each kind."""


def rows_in(target: Any) -> pa.Table:
    """What a reader of the table sees, by the format's own library. No table: no rows."""
    nothing = pa.table({"n": []})
    if isinstance(target, PostgresTarget):
        with psycopg.connect(target.conninfo) as connection:
            has = connection.execute("SELECT to_regclass(%s)", [target.name]).fetchone()
            if has == (None,):
                return nothing
            found = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(target.name)))
            columns = [one.name for one in found.description or ()]
            rows = found.fetchall()
            return pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})
    if isinstance(target, DeltaTarget):
        is_there = DeltaTable.is_deltatable(target.uri)
        return pa.table(DeltaTable(target.uri).to_pyarrow_table()) if is_there else nothing
    catalog = load_catalog("eoslog", **target.catalog)
    is_there = catalog.table_exists(target.identifier)
    return catalog.load_table(target.identifier).scan().to_arrow() if is_there else nothing


def words(stopped: pytest.ExceptionInfo[Any], option: str = "since") -> list[str]:
    """The words that a message names for an option, in their order."""
    return re.findall(rf'{option}="(\d+:[0-9a-f]{{8}})"', str(stopped.value))


def numbers_in(target: Any) -> list[int]:
    """The numbers that a reader of the table sees."""
    return sorted(rows_in(target).column("n").to_pylist())


def wrong(found: list[int], rows: range) -> dict[str, int]:
    """How many rows are lost, and doubled. Nothing: {}."""
    counts = Counter(found)
    lost, doubled = sum(counts[n] == 0 for n in rows), sum(counts[n] > 1 for n in rows)
    return {name: count for name, count in (("lost", lost), ("doubled", doubled)) if count}
