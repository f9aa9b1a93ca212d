"""`make bench-tables`: what a fan-out's tables cost: rows to PostgreSQL beside Spark's JDBC writer, and a
million changes merged into ten million rows beside deltalake alone and pyiceberg alone.

Each turn has all of them, one after the other. A merge runs in a process of its own, so that its memory is
known; what it leaves is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import BooleanExpression, In
from pyspark.sql import SparkSession

from eoslog.fanout import Merge, delta, iceberg, postgres
from eoslog.fanout.batch import carry_out
from eoslog.fanout.rows import HASH, MODULUS, FileWriter, SparkRows, Staged, run_task
from eoslog.fanout.rules import Batch, Content
from tests.fanout.postgres_server import PostgresServer
from tests.spark_session import set_environment

# -- rows to PostgreSQL --------------------------------------------------------------------------

COLUMNS = "id bigint, body text, at timestamptz, amount double precision"
WRITERS = ("eoslog", "JDBC", "JDBC, reWriteBatchedInserts")


def to_postgres(rows: int, turns: int, jar: str) -> dict[str, list[float]]:
    """Rows a second of each writer, by turns; the first one warms up and does not count."""
    set_environment()
    server = PostgresServer()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "1g").config("spark.jars", jar).getOrCreate()
    frame = spark.range(0, rows, 1, 2).selectExpr(
        "id", "lpad(cast(id as string), 80, 'abcdefghij') as body",
        "timestamp_micros(1700000000000000 + id) as at", "id / 7 as amount",
    ).persist()  # fmt: skip
    frame.count()
    login = conninfo_to_dict(server.conninfo())
    url = f"jdbc:postgresql://127.0.0.1:{login['port']}/{login['dbname']}"
    properties = {"user": "writer", "password": "s3cret", "driver": "org.postgresql.Driver"}
    found: dict[str, list[float]] = {name: [] for name in WRITERS}
    try:
        for turn in range(turns + 1):
            for name in WRITERS:
                table = f"t{turn}_{WRITERS.index(name)}"
                server.do(f"CREATE TABLE {table} ({COLUMNS})")
                began = time.monotonic()
                if name == "eoslog":
                    place = postgres(table, server.conninfo())
                    carry_out(Batch(table, 1, 0), SparkRows(frame).through, [place], [])
                else:
                    more = {"reWriteBatchedInserts": "true"} if "reWrite" in name else {}
                    frame.write.jdbc(url, table, "append", properties | more)
                seconds = time.monotonic() - began
                if server.rows(f"SELECT count(*), sum(id) FROM {table}") != [(rows, rows * (rows - 1) // 2)]:
                    raise RuntimeError(f"{name}: rows are wrong")
                server.do(f"DROP TABLE {table}")
                if turn:
                    found[name].append(rows / seconds)
                print(f"PostgreSQL, turn {turn}, {name}: {rows / seconds:,.0f} rows/s", flush=True)
    finally:
        spark.stop()
        server.remove()
    return found


# -- changes into ten million rows ---------------------------------------------------------------

KINDS = ("delta", "iceberg")
MERGE = Merge(keys=["id"], order=["offset"], operation="op")
_FIELDS = {"id": "long", "name": "string", "amount": "long", "offset": "long", "op": "string"}
_TABLE = [name for name in _FIELDS if name != "op"]


class Merged(NamedTuple):
    """Seconds, and MB at the most and before it began."""

    seconds: float
    peak: int
    before: int


class Changes:
    """A million changes of two tasks, as a batch has them: keys come twice, a tenth deletes."""

    schema_json = json.dumps({
        "type": "struct",
        "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in _FIELDS.items()],
    })  # fmt: skip

    def __init__(self, rows: int, changes: int) -> None:
        ids = np.random.default_rng(1).integers(0, rows + rows // 10, changes)
        words = pa.array(np.where(np.arange(changes) % 10 == 0, "d", "u"))
        self.table = _rows(ids, rows).append_column("op", words)

    def through(self, transform: Any) -> Changes:
        """These rows."""
        return self

    def stage(self, writer: Callable[[], FileWriter]) -> Staged:
        """Write them as two tasks would."""
        found: list[dict[str, Any]] = []
        half = len(self.table) // 2
        for task in range(2):
            part = self.table.slice(task * half, half)
            part = part.append_column(HASH, pa.array(np.arange(len(part))))
            found += run_task(iter(part.to_batches(65_536)), writer()).to_pylist()
        content = Content(sum(one["rows"] for one in found), sum(one["checksum"] for one in found) % MODULUS)
        return Staged([one["file"] for one in found if one["file"] is not None], content)

    def newest(self) -> pa.Table:
        """The last change of each key: deltalake and pyiceberg want each key once."""
        backwards = self.table["id"].to_numpy()[::-1]
        last = len(self.table) - 1 - np.unique(backwards, return_index=True)[1]
        return self.table.take(pa.array(last))


def _rows(ids: Any, offset: int) -> pa.Table:
    return pa.table({
        "id": ids, "name": pa.array(ids % 1000).cast(pa.string()), "amount": ids * 7,
        "offset": np.arange(offset, offset + len(ids)),
    })  # fmt: skip


def _catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/ice"}


def prepare(kind: str, folder: Path, rows: int) -> None:
    """The table, in ten commits."""
    step = rows // 10
    parts = (_rows(np.arange(first, first + step), first) for first in range(0, rows, step))
    if kind == "delta":
        for part in parts:
            write_deltalake(folder / "delta", part, mode="append")
        return
    catalog = load_catalog("eoslog", **_catalog(folder))
    catalog.create_namespace("db")
    table = None
    for part in parts:
        table = table or catalog.create_table("db.rows", part.schema)
        table.append(part)


def merge(kind: str, by: str, folder: Path, rows: int, changes: Changes) -> None:
    """Merge the changes: `by` eoslog, or the library alone."""
    if by == "eoslog":
        catalog = _catalog(folder)
        place: Any = (
            delta(str(folder / "delta"), merge=MERGE)
            if kind == "delta"
            else iceberg("db.rows", catalog, merge=MERGE)
        )
        carry_out(Batch("changes", 7, 0), changes.through, [place], [])
    elif kind == "delta":
        columns = {name: f"new.{name}" for name in _TABLE}
        merger = DeltaTable(folder / "delta").merge(changes.newest(), "old.id = new.id", "new", "old")
        merger = merger.when_matched_delete("new.op = 'd'").when_matched_update(columns, "new.op <> 'd'")
        merger.when_not_matched_insert(columns, "new.op <> 'd'").execute()
    else:  # it has no deletes beside its upserts: one commit for each
        table = load_catalog("eoslog", **_catalog(folder)).load_table("db.rows")
        newest = changes.newest()
        deletes = pc.equal(newest["op"], "d")
        table.upsert(newest.filter(pc.invert(deletes)).select(_TABLE), join_cols=["id"])
        table.delete(_in(newest.filter(deletes)["id"].to_pylist()))


def _in(ids: Sequence[int]) -> BooleanExpression:
    return In("id", ids)  # type: ignore[call-arg, arg-type]  # pyiceberg's own way to call it


def check(kind: str, folder: Path, rows: int, changes: Changes) -> None:
    """Raise RuntimeError unless the table has what it has to have."""
    newest = changes.newest()
    kept = newest.filter(pc.not_equal(newest["op"], "d"))
    if kind == "delta":
        found = DeltaTable(folder / "delta").to_pyarrow_dataset().to_table(columns=["id", "offset"])
    else:
        table = load_catalog("eoslog", **_catalog(folder)).load_table("db.rows")
        found = table.scan(selected_fields=("id", "offset")).to_arrow()
    untouched = np.setdiff1d(np.arange(rows), newest["id"].to_numpy())
    wanted = [len(untouched) + len(kept), int(untouched.sum()) + pc.sum(kept["offset"]).as_py()]
    if [len(found), pc.sum(found["offset"]).as_py()] != wanted:
        raise RuntimeError(f"{kind}: {len(found)} rows, and not {wanted[0]}, or others")


def child(options: argparse.Namespace) -> None:
    """One step in a process of its own."""
    step, kind, by, folder = options.child
    if step == "prepare":
        return prepare(kind, Path(folder), options.rows)
    changes = Changes(options.rows, options.changes)
    if step == "check":
        return check(kind, Path(folder), options.rows, changes)
    before, began = _peak_mb(), time.monotonic()
    merge(kind, by, Path(folder), options.rows, changes)
    print(json.dumps(Merged(time.monotonic() - began, _peak_mb(), before)), flush=True)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def merged(options: argparse.Namespace, kind: str, by: str) -> Merged | None:
    """One merge, checked. None: it did not end in time, or not at all."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "benchmarks.tables", "--rows", str(options.rows)]
        words += ["--changes", str(options.changes), "--child"]
        run = partial(subprocess.run, check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
        run([*words, "prepare", kind, by, folder])
        try:
            said = run([*words, "merge", kind, by, folder], timeout=options.patience).stdout
        except subprocess.TimeoutExpired:
            return None
        run([*words, "check", kind, by, folder])
        return Merged(*json.loads(said))


def into_tables(options: argparse.Namespace) -> dict[tuple[str, str], list[Merged]]:
    """The merges, by turns. One that did not end in time is not tried again."""
    found: dict[tuple[str, str], list[Merged]] = {}
    slow = set()
    for turn in range(options.turns):
        for kind in KINDS:
            for by in ("eoslog", "alone"):
                one = None if (kind, by) in slow else merged(options, kind, by)
                if one is None:
                    slow.add((kind, by))
                else:
                    found.setdefault((kind, by), []).append(one)
                print(f"merge, turn {turn}, {kind}, {by}: {one}", flush=True)
    return found


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jdbc", help="the jar of PostgreSQL's JDBC driver")
    parser.add_argument("--only", choices=("postgres", "merge"))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--postgres-rows", type=int, default=500_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds for a merge")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    if options.only != "merge":
        rates = to_postgres(options.postgres_rows, options.turns, options.jdbc)
        base = statistics.median(rates["JDBC"])
        print("| to PostgreSQL | rows a second | beside JDBC |\n|---|---|---|")
        for name, each in rates.items():
            print(f"| {name} | {statistics.median(each):,.0f} | {statistics.median(each) / base:.2f} |")
    if options.only != "postgres":
        print("| merge | time | memory: at the most, before |\n|---|---|---|")
        for (kind, by), runs in into_tables(options).items():
            seconds, peak, before = (statistics.median(column) for column in zip(*runs, strict=True))
            print(f"| {kind}, {by} | {seconds:.1f} s | {peak:,.0f} MB, {before:,.0f} MB |")


if __name__ == "__main__":
    main()
