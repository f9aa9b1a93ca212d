"""PostgreSQL as a place of a fan-out: driver, server and connection killed at each statement, a standby that
is behind, a restored dump, columns, rights, values."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any
from zoneinfo import ZoneInfo

import psycopg
import pyarrow as pa
import pytest

from eoslog.errors import OptionError, SchemaError
from eoslog.fanout import postgres
from eoslog.fanout.merge import Merge
from eoslog.fanout.postgres import PostgresTarget
from eoslog.fanout.rows import HASH, Staged, run_task
from eoslog.fanout.rules import Batch, Content, FanoutStopped
from eoslog.fanout.table import write
from tests.fanout.kit import (
    FakeTopic,
    Killed,
    ListRows,
    numbers_in,
    postgres_at,
    shared_server,
    words,
    wrong,
)
from tests.fanout.postgres_server import NEEDS_SERVER, PostgresServer
from tests.fanout.test_traps import go, rows_of

pytestmark = [NEEDS_SERVER, pytest.mark.timeout(600)]
Act = Callable[[], None]


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """One that is killed."""
    found = PostgresServer()
    yield found
    found.remove()


class Statements:
    """The driver's statements and the tasks' pieces of COPY, in their order. `acts_at`: 2 n: before number n;
    2 n + 1: after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        shared_server()  # its making is not watched
        self.watch(-1, killed)
        for kind, name in ((psycopg.Connection, "execute"), (psycopg.Copy, "write")):
            monkeypatch.setattr(kind, name, self._watched(getattr(kind, name)))

    def watch(self, acts_at: int, act: Act) -> None:
        self._number, self._acts_at, self._act = count(), acts_at, act

    @property
    def acted(self) -> bool:
        return self._acts_at < 0

    def _watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*given: Any, **named: Any) -> Any:
            number = next(self._number)
            if self._acts_at == 2 * number:
                self._now()
            answer = call(*given, **named)
            if self._acts_at == 2 * number + 1:
                self._now()
            return answer

        return made

    def _now(self) -> None:
        self._acts_at = -1
        self._act()


def killed() -> None:
    raise Killed


# -- killed at each statement --------------------------------------------------------------------


def test_a_driver_killed_at_each_statement_writes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before or after any statement of batch 0, which makes the table, and of batch 1."""
    statements, deaths = Statements(monkeypatch), [0, 0]
    for dying in range(2):
        for at in count():
            folder, topic, died = tmp_path / f"{dying}-{at}", FakeTopic(), False
            for number in range(3):
                statements.watch(at if number == dying else -1, killed)
                try:
                    go([postgres_at(folder)], topic, number)
                except Killed:
                    died = True
                    go([postgres_at(folder)], topic, number)
            where = f"batch {dying}, killed at {at}"
            assert wrong(numbers_in(postgres_at(folder)), range(30)) == {}, where
            assert topic.numbers() == list(range(30)), where
            assert staging_of(postgres_at(folder)) == [], where
            if not died:
                break
            deaths[dying] += 1
    assert min(deaths) >= 2 * 15, "looks, the staging table, two COPYs, lock, move, mark, clean-up"


def staging_of(table: PostgresTarget) -> list[str]:
    """The staging tables of the fan-out `orders` to a table."""
    found = psycopg.connect(table.conninfo).execute(
        "SELECT relname FROM pg_class WHERE relname LIKE %s", [table._prefix("orders") + "%"]
    )
    return [name for (name,) in found]


@pytest.mark.long
def test_a_server_killed_at_each_statement_has_each_row_once(
    server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -9, and it recovers. The driver goes on or stops; a second try makes the batch complete."""
    statements, said = Statements(monkeypatch), []
    for at in count():
        table = postgres(f"rows_{at}", server.conninfo())

        def crash(table: PostgresTarget = table) -> None:
            server.kill()
            table.conninfo = server.start().conninfo()

        go([table], FakeTopic(), 0)
        statements.watch(at, crash)
        try:
            go([table], FakeTopic(), 1)
        except (FanoutStopped, psycopg.Error) as error:  # tasks' errors are Spark's to try again
            said.append(str(error))
        acted = statements.acted
        statements.watch(-1, killed)
        for number in (1, 2):
            go([postgres(f"rows_{at}", server.conninfo())], FakeTopic(), number)
        assert wrong(numbers_in(postgres(f"rows_{at}", server.conninfo())), range(30)) == {}, (
            f"killed at {at}"
        )
        if not acted:
            break
    assert sum("PostgreSQL does not do it" in one for one in said) >= 10


def test_staged_rows_that_a_crash_has_emptied_are_not_taken_for_none(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server recovers between the tasks and the commit: unlogged tables are empty then."""
    table, plainly = postgres("orders", server.conninfo()), PostgresTarget.commit
    go([table], FakeTopic(), 0)

    def crash(self: PostgresTarget, *given: Any) -> None:
        server.kill()
        self.conninfo = server.start().conninfo()
        plainly(self, *given)

    monkeypatch.setattr(PostgresTarget, "commit", crash)
    with pytest.raises(
        FanoutStopped, match=r"has 0 of 10 rows: the server has crashed since.*Start the query again"
    ):
        go([table], FakeTopic(), 1)
    assert numbers_in(table) == list(range(10))
    monkeypatch.setattr(PostgresTarget, "commit", plainly)
    for number in (1, 2):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == list(range(30))


@pytest.mark.parametrize("is_done", [False, True], ids=["not committed", "committed"])
def test_a_connection_lost_in_the_commit_is_no_guess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """The server ends the driver's connection before COMMIT, or when it has committed: the mark tells."""
    table = postgres_at(tmp_path)
    go([table], FakeTopic(), 0)
    plainly = PostgresTarget._drop_staged if is_done else PostgresTarget._write_mark

    def cut(self: PostgresTarget, connection: Any, *given: Any) -> None:
        shared_server().do(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        plainly(self, connection, *given)

    monkeypatch.setattr(PostgresTarget, plainly.__name__, cut)
    if is_done:
        go([table], FakeTopic(), 1)
    else:
        with pytest.raises(FanoutStopped, match=r"PostgreSQL does not do it.*Start the query again"):
            go([table], FakeTopic(), 1)
    monkeypatch.setattr(PostgresTarget, plainly.__name__, plainly)
    for number in (1, 2):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == list(range(30))


def test_a_frozen_driver_holds_the_next_one_up_for_a_while_and_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[PostgresTarget.__module__], "_FROZEN_MS", 300)
    table, frozen = postgres_at(tmp_path), postgres_at(tmp_path)
    go([table], FakeTopic(), 0)
    stands, goes_on, plainly = Event(), Event(), PostgresTarget._write_mark

    def freeze(self: PostgresTarget, *given: Any) -> None:
        if self is frozen and not stands.is_set():
            stands.set()
            assert goes_on.wait(120)
        plainly(self, *given)

    monkeypatch.setattr(PostgresTarget, "_write_mark", freeze)
    with ThreadPoolExecutor(1) as driver:
        its = driver.submit(go, [frozen], FakeTopic(), 1)
        try:
            assert stands.wait(120)
            go([table], FakeTopic(), 1)
        finally:
            goes_on.set()
        its.result(120)  # it finds the batch there
    assert numbers_in(table) == list(range(20))


# -- a database that is behind, or was restored --------------------------------------------------


def test_a_failed_over_standby_that_is_behind_stops_the_query(server: PostgresServer) -> None:
    for number in range(2):
        go([postgres("orders", server.conninfo())], FakeTopic(), number)
    standby = PostgresServer(server)
    try:
        go([postgres("orders", server.conninfo())], FakeTopic(), 2)
        table = postgres("orders", standby.start().conninfo())
        with pytest.raises(FanoutStopped, match=r"ends at batch 1, but the query has done those before 3"):
            go([table], FakeTopic(), 3)
        go([table], FakeTopic(), 2)  # that the checkpoint did not count as done: nothing is missing
        assert numbers_in(table) == list(range(30))
    finally:
        standby.remove()


Restore = Callable[[PostgresServer, bytes], None]


def whole(server: PostgresServer, dump: bytes) -> None:
    server.do("DROP TABLE orders", "DROP SCHEMA eoslog CASCADE")
    server.restore(dump)


def alone(server: PostgresServer, dump: bytes) -> None:
    """The table, while the marks are those of now."""
    server.do("DROP TABLE orders")
    server.restore(dump)


@pytest.mark.parametrize(
    ("restore", "how", "said"),
    [(whole, (), "came by a dump"), (alone, ("-t", "orders"), "made anew under that name")],
)
@pytest.mark.parametrize("later", [0, 1], ids=["the newest state", "an older state"])
def test_a_restored_dump_stops_until_since_says_from_where_on(
    server: PostgresServer, restore: Restore, how: tuple[str, ...], said: str, later: int
) -> None:
    table = postgres("orders", server.conninfo())
    for number in range(3 - later):
        go([table], FakeTopic(), number)
    dump = server.dumped(*how)
    for number in range(3 - later, 3):
        go([table], FakeTopic(), number)
    restore(server, dump)
    with pytest.raises(FanoutStopped) as stopped:
        go([table], FakeTopic(), 3)
    assert said in str(stopped.value) or later
    since = postgres("orders", server.conninfo(), since=words(stopped)[0])
    for number in (3, 3):
        go([since], FakeTopic(), number)
    go([table], FakeTopic(), 4)
    assert numbers_in(table) == sorted([*range(30 - 10 * later), *range(30, 50)])


@pytest.mark.parametrize("name", ["orders", "renamed"])
def test_a_restored_dump_says_all_batches_that_it_lacks(server: PostgresServer, name: str) -> None:
    """The mark is of the dump: it names batch 1, and the query has done batch 2 as well."""
    table = postgres("orders", server.conninfo())
    for number in range(2):
        go([table], FakeTopic(), number)
    dump = server.dumped()
    go([table], FakeTopic(), 2)
    whole(server, dump)
    perhaps = r"perhaps batches up to 1 \(nothing says whether it has them; 10 rows in that one\)"
    for since in (None, 3):
        with pytest.raises(FanoutStopped, match=rf"It lacks batch 2, and {perhaps}\.") as stopped:
            go([postgres("orders", server.conninfo(), since=since)], FakeTopic(), 3, name=name)
    said = postgres("orders", server.conninfo(), since=words(stopped)[0])
    for number in (3, 3, 4):
        go([said], FakeTopic(), number, name=name)
    assert numbers_in(table) == [*range(20), *range(30, 50)]


def test_a_table_that_was_dropped_is_made_anew_with_the_word_alone(tmp_path: Path) -> None:
    """Its marks are there still, and a kill behind CREATE TABLE changes nothing."""
    table = postgres_at(tmp_path)
    for number in range(2):
        go([table], FakeTopic(), number)
    shared_server().do(f"DROP TABLE {table.name}")
    with pytest.raises(FanoutStopped, match=r"the table is gone.* lacks perhaps batches up to 1 ") as stopped:
        go([postgres_at(tmp_path, since=2)], FakeTopic(), 2)
    said = postgres_at(tmp_path, since=words(stopped)[0])
    said.prepare(ListRows(rows_of(2)), Batch("orders", 7, 2))  # killed here
    for number in (2, 2, 3):
        go([said], FakeTopic(), number)
    assert numbers_in(table) == list(range(20, 40))


def test_a_table_made_anew_under_its_name_stops(tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    for number in range(2):
        go([table], FakeTopic(), number)
    name = table.name
    shared_server().do(f"DROP TABLE {name}", f"CREATE TABLE {name} (n bigint, kind text)")
    for number in (1, 2):
        with pytest.raises(FanoutStopped, match="made anew"):
            go([table], FakeTopic(), number)
    shared_server().do(f"DROP TABLE {name}")
    with pytest.raises(FanoutStopped, match="the table is gone"):
        go([table], FakeTopic(), 2)


OWNERS_ACTS = {
    "other rows": "INSERT INTO {} VALUES (1000, 'other')",
    "rows changed": "UPDATE {} SET kind = 'new' WHERE n < 15",
    "rows deleted": "DELETE FROM {} WHERE n >= 10",
    "all rows": "TRUNCATE {}",
    "rewritten": "VACUUM FULL {}",
    "rewritten marks": "VACUUM (FULL, FREEZE) eoslog.marks",
    "another column": "ALTER TABLE {} ADD COLUMN seen timestamptz DEFAULT now()",
    "an index": "CREATE UNIQUE INDEX ON {} (n)",
}


@pytest.mark.parametrize("act", OWNERS_ACTS.values(), ids=OWNERS_ACTS)
def test_what_the_owner_does_to_rows_stops_nothing(act: str, tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    for number in range(2):
        go([table], FakeTopic(), number)
    shared_server().do(act.format(table.name))
    left = numbers_in(table)
    for number in (1, 2):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == sorted([*left, *range(20, 30)])


# -- staging tables ------------------------------------------------------------------------------


def test_what_killed_attempts_have_left_a_later_batch_drops_unless_it_is_in_use(tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    go([table], FakeTopic(), 0)
    kept = []
    for number in (1, 2):
        left = postgres_at(tmp_path)
        left.prepare(ListRows(range(10)), Batch("orders", 7, number))
        left.stage(ListRows(rows_of(number)), Batch("orders", 7, number))
        kept.append(left._staging)
    with shared_server().connected() as task, task.transaction():
        task.execute(f"LOCK TABLE eoslog.{kept[0]} IN ROW EXCLUSIVE MODE")
        for number in (1, 2):
            go([table], FakeTopic(), number)
        assert sorted(staging_of(table)) == sorted(kept), "one in use; one of a batch that was not done yet"
    go([table], FakeTopic(), 3)
    assert staging_of(table) == []
    assert numbers_in(table) == list(range(40))


def test_of_a_task_that_ran_twice_one_attempt_counts(tmp_path: Path) -> None:
    table, batch = postgres_at(tmp_path), Batch("orders", 7, 0)

    class Twice(ListRows):
        def stage(self, writer: Any) -> Any:
            super().stage(writer)
            return super().stage(writer)

    rows = Twice(range(10))
    table.prepare(rows, batch)
    write(table, rows, batch)
    assert numbers_in(table) == list(range(10))


# -- columns, values, rights ---------------------------------------------------------------------


def schema_of(*fields: tuple[str, str]) -> str:
    return json.dumps(
        {
            "type": "struct",
            "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields],
        }
    )


class Given:
    """One task with these columns."""

    def __init__(self, schema_json: str, **columns: pa.Array) -> None:
        self.schema_json, self.columns, self.numbers = schema_json, columns, range(0)

    def stage(self, writer: Any) -> Any:
        rows = len(next(iter(self.columns.values())))
        hashes = pa.array(range(rows), pa.int64())
        batch = pa.RecordBatch.from_pydict({**self.columns, HASH: hashes})
        told = run_task(iter([batch]), writer()).to_pylist()
        files = [one["file"] for one in told if one["file"] is not None]
        return Staged(files, Content(rows, sum(one["checksum"] for one in told)))

    def through(self, transform: Any) -> Any:
        return self


def test_values_come_as_they_went(tmp_path: Path) -> None:
    kinds = {
        "a": "string", "b": "binary", "c": "double", "d": "decimal(20,10)", "e": "timestamp",
        "f": "timestamp_ntz", "g": "date", "h": "boolean", "i": "byte", "j": "float", 'odd "Name, ': "long",
    }  # fmt: skip
    zone = datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
    values: dict[str, list[Any]] = {
        "a": ["", "plain", 'qu"o,ted\r\nlines\\N', "\\.", " \u00e4\U0001f600 ", "NULL", None],
        "b": [b"", b"\x00\xff\\x", b'",\n', None, b"x" * 300, b"\\N", None],
        "c": [0.1, float("inf"), float("-inf"), -0.0, 1e-300, 123456789.123456789, None],
        "d": [Decimal("0.0000000001"), Decimal("-1234567890.0123456789"), Decimal(0), Decimal(7),
              Decimal("1e-9"), Decimal("9999999999.9999999999"), None],
        "e": [zone, datetime(2, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), zone,
              zone, zone, None],
        "f": [datetime(2026, 3, 29, 2, 30), datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
              datetime(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1), None],
        "g": [date(2026, 2, 28), date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1582, 10, 4),
              date(1, 2, 3), None],
        "h": [True, False, True, False, True, False, None],
        "i": [-128, 127, 0, 1, 2, 3, None],
        "j": [0.5, 16777216.0, -1.0, 0.0, 2.0, 3.0, None],
        'odd "Name, ': [2**63 - 1, -(2**63), 0, 1, 2, 3, None],
    }  # fmt: skip
    types = {
        "a": pa.string(), "b": pa.binary(), "c": pa.float64(), "d": pa.decimal128(20, 10),
        "e": pa.timestamp("us", "Europe/Berlin"), "f": pa.timestamp("us"), "g": pa.date32(), "h": pa.bool_(),
        "i": pa.int8(), "j": pa.float32(), 'odd "Name, ': pa.int64(),
    }  # fmt: skip
    columns = {name: pa.array(values[name], types[name]) for name in kinds}
    table = postgres_at(tmp_path)
    rows = Given(schema_of(*kinds.items()), **columns)
    sliced = Given(rows.schema_json, **{name: one.slice(3) for name, one in columns.items()})
    go([table], FakeTopic(), 0, rows=rows)
    go([table], FakeTopic(), 1, rows=sliced)
    with psycopg.connect(table.conninfo, options="-c timezone=America/New_York") as connection:
        found = connection.execute(f"SELECT * FROM {table.name}".encode()).fetchall()
    wanted = list(zip(*values.values(), strict=True))
    assert sorted(map(repr, found)) == sorted(map(repr, map(stored, [*wanted, *wanted[3:]])))


def stored(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """As psycopg returns it."""
    return tuple(
        one.astimezone(ZoneInfo("America/New_York")) if isinstance(one, datetime) and one.tzinfo else
        one.quantize(Decimal("1e-10")) if isinstance(one, Decimal) else one
        for one in row
    )  # fmt: skip


N_AND = "(n bigint, kind text, {})"
WRONG_COLUMNS = {
    "another type": ("(n text, kind text)", "n is text, the batch's is long"),
    "a smaller number": ("(n integer, kind text)", "n is integer"),
    "a missing column": ("(n bigint)", "kind is missing"),
    "one more that needs a value": (N_AND.format("seen date NOT NULL"), "seen is NOT NULL without a default"),
    "a generated column": (
        "(n bigint, kind text GENERATED ALWAYS AS ('x') STORED)",
        "kind is generated",
    ),
    "an identity": ("(n bigint GENERATED ALWAYS AS IDENTITY, kind text)", "n is generated"),
    "several": ("(n integer)", "n is integer.*kind is missing"),
}


@pytest.mark.parametrize(("columns", "said"), WRONG_COLUMNS.values(), ids=WRONG_COLUMNS)
def test_columns_that_do_not_fit_stop_with_what_to_type(columns: str, said: str, tmp_path: Path) -> None:
    table, topic = postgres_at(tmp_path), FakeTopic()
    shared_server().do(f"CREATE TABLE {table.name} {columns}")
    with pytest.raises(SchemaError, match=said) as stopped:
        go([table], topic, 0)
    assert topic.numbers() == []
    typed = re.search(r"ALTER TABLE .*;", str(stopped.value))
    assert typed is not None
    shared_server().do(typed[0])
    for number in range(2):
        go([table], topic, number)
    assert numbers_in(table) == list(range(20))


RIGHT_COLUMNS = {
    "wider": "(n numeric, kind character varying(20))",
    "more": N_AND.format("id bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT now(), x text"),
    "another order": "(kind text, n bigint)",
    "partitions": "(n bigint, kind text) PARTITION BY HASH (n)",
}


@pytest.mark.parametrize("columns", RIGHT_COLUMNS.values(), ids=RIGHT_COLUMNS)
def test_columns_that_hold_all_that_the_batch_has_are_right(columns: str, tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    name = table.name
    parts = [
        f"CREATE TABLE {name}_{n} PARTITION OF {name} FOR VALUES WITH (MODULUS 2, REMAINDER {n})"
        for n in (0, 1)
    ]
    shared_server().do(f"CREATE TABLE {name} {columns}", *(parts if "PARTITION" in columns else []))
    for number in range(2):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == list(range(20))


REFUSED = {
    "a view": "CREATE VIEW {} AS SELECT 1::bigint AS n, ''::text AS kind",
    "an unlogged table": "CREATE UNLOGGED TABLE {} (n bigint, kind text)",
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
def test_what_does_not_keep_rows_is_refused(made: str, tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    shared_server().do(made.format(table.name))
    with pytest.raises(OptionError, match="no table that keeps its rows"):
        go([table], FakeTopic(), 0)


def test_a_nested_column_is_named_before_anything_is_written(tmp_path: Path) -> None:
    nested: Any = {"type": "array", "elementType": "long", "containsNull": True}
    table = postgres_at(tmp_path)
    with pytest.raises(SchemaError, match=r"column n is .*array.*to_json\(n\)"):
        go([table], FakeTopic(), 0, rows=ListRows(range(3), schema_of(("n", nested))))
    assert numbers_in(table) == []


def test_a_value_that_the_table_refuses_stops_the_task_and_names_its_column(tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    for value, said in (("a\0b", "invalid byte sequence"), ("x" * 30, "too long")):
        shared_server().do(
            f"DROP TABLE IF EXISTS {table.name}", f"CREATE TABLE {table.name} (n bigint, kind varchar(20))"
        )
        columns = {"n": pa.array([1, 2]), "kind": pa.array(["right", value])}
        rows = Given(schema_of(("n", "long"), ("kind", "string")), **columns)
        with pytest.raises(SchemaError, match=f"PostgreSQL refuses a value: .*{said}.*line 2"):
            go([table], FakeTopic(), 0, rows=rows)
        assert numbers_in(table) == []


def test_a_role_that_may_insert_alone_is_told_what_an_administrator_types(server: PostgresServer) -> None:
    """And then it needs no more."""
    secrets = server.passwords.read_text()
    server.passwords.write_text(f"{secrets}*:*:*:clerk:cl3rk\n")
    with server.connected("postgres") as admin:
        admin.execute("CREATE ROLE clerk LOGIN PASSWORD 'cl3rk'")
        admin.execute("CREATE TABLE orders (n bigint, kind text)")
        admin.execute("GRANT INSERT ON orders TO clerk")
    table, topic = postgres("orders", server.conninfo("clerk")), FakeTopic()
    with pytest.raises(OptionError, match="permission denied for database shop") as stopped:
        go([table], topic, 0)
    typed = re.search(r"CREATE SCHEMA eoslog AUTHORIZATION \S+;", str(stopped.value))
    assert typed is not None
    with server.connected("postgres") as admin:
        admin.execute(typed[0].encode())
        admin.execute("GRANT SELECT ON orders TO clerk")
    for number in range(2):
        go([table], topic, number)
    with server.connected("postgres") as admin:
        assert admin.execute("SELECT count(*) FROM orders").fetchall() == [(20,)]


def test_a_password_is_in_no_message_and_taken_from_a_file_alone(tmp_path: Path) -> None:
    for conninfo in (
        "postgresql://me:hush@h/d",
        "host=h password=hush",
        "host=h hush",
        "jdbc:postgresql://h/d?password=hush",
    ):
        with pytest.raises(OptionError) as stopped:
            postgres("orders", conninfo)
        assert "hush" not in str(stopped.value) and stopped.value.__cause__ is None
    table = postgres("orders", shared_server().conninfo().replace("user=writer", "user=nobody"))
    with pytest.raises(FanoutStopped, match=r"no password supplied|authentication failed") as refused:
        go([table], FakeTopic(), 0)
    for said in (str(refused.value), repr(table), repr(postgres_at(tmp_path))):
        assert "s3cret" not in said and str(shared_server().passwords) not in said


def test_a_commit_is_on_the_disk_though_the_role_is_careless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """synchronous_commit=off would lose it in a crash; what asks for more stays."""
    found, plainly = [], PostgresTarget._write_mark

    def look(self: PostgresTarget, connection: Any, *given: Any) -> None:
        found.extend(connection.execute("SHOW synchronous_commit").fetchone())
        plainly(self, connection, *given)

    monkeypatch.setattr(PostgresTarget, "_write_mark", look)
    for number, word in enumerate(("off", "remote_apply")):
        table = postgres(
            postgres_at(tmp_path).name, f"{shared_server().conninfo()} options='-c synchronous_commit={word}'"
        )
        go([table], FakeTopic(), number)
    assert found == ["on", "remote_apply"]


# -- tables that do not take what they are given -------------------------------------------------

DROPS = """CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {} END';
CREATE TRIGGER drops BEFORE {} ON {} FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing()"""


@pytest.mark.parametrize(
    "act",
    [
        DROPS.format("IF new.n % 5 = 0 THEN RETURN NULL; END IF; RETURN new;", "INSERT", "{}"),
        "CREATE RULE drops AS ON INSERT TO {} WHERE new.n % 5 = 0 DO INSTEAD NOTHING",
    ],
    ids=["trigger", "rule"],
)
def test_rows_that_a_trigger_or_a_rule_drops_stop_the_batch(act: str, tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    go([table], FakeTopic(), 0)
    shared_server().do(
        act.replace("pg_temp", "public").replace("nothing", f"f_{table.name}").format(table.name)
    )
    with pytest.raises(FanoutStopped, match=r"has not taken 2 of 10 rows: a trigger or a rule"):
        go([table], FakeTopic(), 1)
    assert numbers_in(table) == list(range(10))
    go_on = "TRIGGER" if "TRIGGER" in act else "RULE"
    shared_server().do(f"DROP {go_on} drops ON {table.name}")
    go([table], FakeTopic(), 1)
    assert numbers_in(table) == list(range(20))


def test_a_trigger_that_changes_rows_is_no_harm(tmp_path: Path) -> None:
    table = postgres_at(tmp_path)
    go([table], FakeTopic(), 0)
    act = DROPS.format("new.kind = ''x''; RETURN new;", "INSERT", table.name).replace("pg_temp", "public")
    shared_server().do(act.replace("nothing", f"f_{table.name}"))
    go([table], FakeTopic(), 1)
    assert numbers_in(table) == list(range(20))


@pytest.mark.parametrize("what", ["INSERT", "UPDATE", "DELETE"])
def test_a_change_that_a_trigger_drops_stops_the_batch(what: str, tmp_path: Path) -> None:
    table = merged_at(tmp_path)
    go([table], FakeTopic(), 0, rows=BATCHES[0])
    before = rows_in(table)
    act = DROPS.format("RETURN NULL;", what, table.name).replace("pg_temp", "public")
    shared_server().do(act.replace("nothing", f"f_{table.name}"))
    with pytest.raises(FanoutStopped, match=r"trigger or a rule"):
        go([table], FakeTopic(), 1, rows=changes((2, "b", 5, "d"), (1, "new", 6, "u"), (5, "e", 8, "c")))
    assert rows_in(table) == before


def test_rows_that_row_security_hides_refuse_a_merge(tmp_path: Path) -> None:
    table = merged_at(tmp_path)
    go([table], FakeTopic(), 0, rows=BATCHES[0])
    security = f"ALTER TABLE {table.name} {{}} ROW LEVEL SECURITY"
    shared_server().do(security.format("ENABLE"), security.format("FORCE"))
    with pytest.raises(OptionError, match="row security may hide rows"):
        go([table], FakeTopic(), 1, rows=BATCHES[1])
    shared_server().do(security.format("NO FORCE"))
    go([table], FakeTopic(), 1, rows=BATCHES[1])
    assert rows_in(table) == [(1, "A", 3), (3, "c", 4), (5, None, 8)]


def test_partitions_that_a_crash_empties_are_refused_when_they_come(tmp_path: Path) -> None:
    """Unlogged ones, and those of other servers; also below a partition, and attached while a query runs."""
    table = postgres_at(tmp_path)
    name, server = table.name, shared_server()
    server.do(
        f"CREATE TABLE {name} (n bigint, kind text) PARTITION BY RANGE (n)",
        f"CREATE TABLE {name}_a PARTITION OF {name} FOR VALUES FROM (0) TO (20)",
    )
    go([table], FakeTopic(), 0)
    server.do(
        f"CREATE TABLE {name}_b PARTITION OF {name} FOR VALUES FROM (20) TO (40) PARTITION BY RANGE (n)",
        f"CREATE UNLOGGED TABLE {name}_c PARTITION OF {name}_b FOR VALUES FROM (20) TO (40)",
    )
    with pytest.raises(OptionError, match=r"unlogged.*SET LOGGED"):
        go([table], FakeTopic(), 1)
    assert numbers_in(table) == list(range(10))
    server.do(f"ALTER TABLE {name}_c SET LOGGED")
    for number in (1, 2):
        go([table], FakeTopic(), number)
    assert numbers_in(table) == list(range(30))


def test_a_partition_that_comes_between_the_look_and_the_commit_stops_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = postgres_at(tmp_path)
    shared_server().do(
        f"CREATE TABLE {table.name} (n bigint, kind text) PARTITION BY RANGE (n)",
        f"CREATE UNLOGGED TABLE {table.name}_a (n bigint, kind text)",
    )
    move = PostgresTarget._move

    def comes(*given: Any) -> None:
        monkeypatch.undo()
        shared_server().do(f"ALTER TABLE {table.name} ATTACH PARTITION {table.name}_a DEFAULT")
        move(*given)

    monkeypatch.setattr(PostgresTarget, "_move", comes)
    with pytest.raises(FanoutStopped, match="changed while"):
        go([table], FakeTopic(), 0)
    assert numbers_in(table) == []


# -- merge ---------------------------------------------------------------------------------------

CHANGES = Merge(keys=["id"], order=["offset"], operation="op")
CHANGE_KINDS = (("id", "long"), ("name", "string"), ("offset", "long"), ("op", "string"))


def changes(*rows: tuple[Any, ...]) -> Given:
    """Rows of id, name, offset, op."""
    types = (pa.int64(), pa.string(), pa.int64(), pa.string())
    columns = {
        name: pa.array([one[at] for one in rows], types[at]) for at, (name, _) in enumerate(CHANGE_KINDS)
    }
    return Given(schema_of(*CHANGE_KINDS), **columns)


def merged_at(folder: Path, merge: Merge = CHANGES) -> PostgresTarget:
    return postgres(postgres_at(folder).name, shared_server().conninfo(), merge=merge)


def rows_in(table: PostgresTarget) -> list[Any]:
    with psycopg.connect(table.conninfo) as connection:
        return sorted(connection.execute(f"SELECT * FROM {table.name}".encode()).fetchall(), key=repr)


BATCHES = (
    changes((1, "a", 1, "c"), (2, "b", 2, "c"), (1, "A", 3, "u"), (3, "c", 4, "r"), (1, "A", 3, "u")),
    changes((2, "b", 5, "d"), (3, "x", 3, "u"), (4, "d", 6, "c"), (4, "d", 7, "d"), (5, None, 8, "c")),
    changes((2, "again", 9, "c"), (3, "old", 4, "u"), (9, "none", 10, "d"), (1, "A", 2, "d")),
)
AFTER = [(1, "A", 3), (2, "again", 9), (3, "c", 4), (5, None, 8)]


def test_the_newest_change_of_each_key_wins_within_and_over_batches(tmp_path: Path) -> None:
    """A change that is as old as the row or older, or comes twice, changes nothing."""
    table = merged_at(tmp_path)
    for number, batch in enumerate(BATCHES):
        for _ in range(2):
            go([table], FakeTopic(), number, rows=batch)
    assert rows_in(table) == AFTER
    go([table], FakeTopic(), 3, rows=BATCHES[2])
    assert rows_in(table) == AFTER, "replayed as another batch"


def test_a_merge_killed_at_each_statement_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements, deaths = Statements(monkeypatch), 0
    for at in count():
        folder, died = tmp_path / str(at), False
        for number, batch in enumerate(BATCHES):
            statements.watch(at if number == 1 else -1, killed)
            try:
                go([merged_at(folder)], FakeTopic(), number, rows=batch)
            except Killed:
                died = True
                assert rows_in(merged_at(folder)) in [
                    [(1, "A", 3), (2, "b", 2), (3, "c", 4)],
                    [(1, "A", 3), (3, "c", 4), (5, None, 8)],
                ]
                go([merged_at(folder)], FakeTopic(), number, rows=batch)
        assert rows_in(merged_at(folder)) == AFTER, f"killed at {at}"
        if not died:
            break
        deaths += 1
    assert deaths >= 2 * 20


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(None, "a", 1, "c")], "id: null"),
        ([(1, "a", None, "c")], "offset: null"),
        ([(1, "a", 1, "t")], r"op says \['t'\]"),
        ([(1, "a", 1, None)], r"op says \[None\]"),
        ([(1, "a", 1, "c"), (1, "b", 1, "c")], r"none is the last one: \(1\)"),
        ([(1, "a", 1, "c"), (1, "a", 1, "c"), (1, "a", 1, "d")], "none is the last one"),
    ],
)
def test_changes_that_no_rule_can_order_stop(rows: list[Any], said: str, tmp_path: Path) -> None:
    table = merged_at(tmp_path)
    go([table], FakeTopic(), 0, rows=changes((7, "g", 0, "c")))
    with pytest.raises(SchemaError, match=said):
        go([table], FakeTopic(), 1, rows=changes(*rows, (8, "h", 1, "c")))
    assert rows_in(table) == [(7, "g", 0)]
    go(
        [table],
        FakeTopic(),
        1,
        rows=changes((8, "h", 1, "c"), (9, "a", 1, "c"), (9, "b", 1, "c"), (9, "c", 2, "d")),
    )
    assert rows_in(table) == [(7, "g", 0), (8, "h", 1)], "those below the newest may differ"


def test_a_table_whose_key_is_not_unique_stops_with_what_to_type(tmp_path: Path) -> None:
    table = merged_at(tmp_path)
    name = table.name
    shared_server().do(
        f'CREATE TABLE {name} (id bigint, name text, "offset" bigint)', f"CREATE INDEX ON {name} (id)",
        f"CREATE UNIQUE INDEX ON {name} (id, name)", f"CREATE UNIQUE INDEX ON {name} (id) WHERE id > 5",
    )  # fmt: skip
    with pytest.raises(SchemaError, match="id is no unique key") as stopped:
        go([table], FakeTopic(), 0, rows=BATCHES[0])
    typed = re.search(r"ALTER TABLE .*;", str(stopped.value))
    assert typed is not None
    shared_server().do(typed[0])
    for number, batch in enumerate(BATCHES):
        go([table], FakeTopic(), number, rows=batch)
    assert rows_in(table) == AFTER


def test_rows_without_an_operation_are_upserts_and_texts_are_ordered_by_bytes(tmp_path: Path) -> None:
    """Languages put a before B; Kafka's and Spark's texts do not."""
    kinds = (("id", "long"), ("kind", "string"), ("version", "string"))
    table = merged_at(tmp_path, Merge(keys=["kind", "id"], order=["version"]))

    def given(*rows: tuple[int, str, str]) -> Given:
        columns = {name: pa.array([one[at] for one in rows]) for at, (name, _) in enumerate(kinds)}
        return Given(schema_of(*kinds), **columns)

    shared_server().do(
        f"CREATE TABLE {table.name} (id bigint, kind text, "
        'version text COLLATE "en-x-icu", PRIMARY KEY (id, kind))',
        f"INSERT INTO {table.name} VALUES (3, 'k', NULL)",
    )
    go([table], FakeTopic(), 0, rows=given((1, "k", "B"), (1, "k", "a"), (1, "l", "C"), (3, "k", "A")))
    go([table], FakeTopic(), 1, rows=given((1, "k", "Z"), (1, "l", "D")))
    assert rows_in(table) == [(1, "k", "a"), (1, "l", "D"), (3, "k", "A")]
