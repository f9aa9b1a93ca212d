"""`make soak-fanout`: a fan-out to Delta, Iceberg and PostgreSQL tables and a topic, the driver and the
PostgreSQL server killed again and again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from random import Random

from deltalake import DeltaTable
from psycopg.conninfo import conninfo_to_dict
from pyiceberg.catalog import load_catalog

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.fanout.fanout_app import DELETES_AT, KEYS, catalog_in
from tests.fanout.postgres_server import PostgresServer
from tests.kit.program import Program, plain_python

# -- the tables ----------------------------------------------------------------------------------
# What `eoslog audit` says of a soak's tables: it has to find what the soak's judge finds, and a harm done by
# hand.

CATALOG = "eoslog"
"""A catalog in a database keeps its tables under its name: that of the fan-out's."""
CHANGES = ", changes"
"""What the name of a place ends with that takes rows as changes."""
Row = tuple[int, int]
"""Partition and offset."""
PLACE = ("partition", "offset")
Verdict = dict[str, tuple[int, int, int]]


def audited(bootstrap: str, topic: str, folder: Path, server: PostgresServer) -> Verdict:
    """Rows lost, doubled, and that never were or were replaced, of each table that is there; as the command's
    exit status says too."""
    prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    named = {prefix + name.upper(): value for name, value in catalog_in(str(folder)).items()}
    login = conninfo_to_dict(server.conninfo())
    named |= {
        f"PG{variable.upper()}": str(login[variable]) for variable in ("host", "port", "user", "passfile")
    }
    named["PGDATABASE"] = str(login["dbname"])
    found = {}
    for name, to in {
        "Delta": f"delta:{folder / 'delta'}",
        "Iceberg": f"iceberg:{CATALOG}.db.rows",
        "PostgreSQL": "postgres:public.rows",
        f"Delta{CHANGES}": f"delta:{folder / 'delta-changes'}",
        f"Iceberg{CHANGES}": f"iceberg:{CATALOG}.db.changes",
        f"PostgreSQL{CHANGES}": "postgres:public.changes",
    }.items():
        newest = ["--newest", "--deletes", "op=d"] if name.endswith(CHANGES) else []
        command = [sys.executable, "-m", "eoslog", "audit", topic, "--to", to, "--json", *newest]
        done = subprocess.run(
            [*command, "--bootstrap-server", bootstrap],
            env=os.environ | named, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 2 and re.search("no such (Delta )?table|has no table", done.stderr):
            continue
        counts = json.loads(done.stdout)["counts"]
        strange = sum(counts.get(kind, 0) for kind in ("phantom", "foreign", "altered", "older"))
        found[name] = (counts["lost"], counts["doubled"], strange)
        if (done.returncode == 0) != (found[name] == (0, 0, 0)):
            raise RuntimeError(f"{to}: exit status {done.returncode}, and found {found[name]}")
    return found


def hurt(folder: Path, server: PostgresServer, rows: int) -> Verdict:
    """Take rows, double some, and put older ones into their places; what was done to each table."""
    partition, offset = min(wanted(rows, newest=True))
    one = f"partition = {partition} AND offset = {offset}"
    catalog = load_catalog("eoslog", **catalog_in(str(folder)))
    DeltaTable(str(folder / "delta")).delete(one)
    table = catalog.load_table("db.rows")
    table.append(table.scan(row_filter=one).to_arrow())
    DeltaTable(str(folder / "delta-changes")).update({"offset": f"offset - {KEYS}"}, predicate=one)
    catalog.load_table("db.changes").delete(one)
    in_postgres = one.replace("offset", '"offset"')
    server.do(
        f"INSERT INTO rows SELECT * FROM rows WHERE {in_postgres}",
        f'UPDATE changes SET "offset" = "offset" - {KEYS} WHERE {in_postgres}',
    )
    return {
        "Delta": (1, 0, 0), "Iceberg": (0, 1, 0), "PostgreSQL": (0, 1, 0), f"Delta{CHANGES}": (1, 0, 1),
        f"Iceberg{CHANGES}": (1, 0, 0), f"PostgreSQL{CHANGES}": (1, 0, 1),
    }  # fmt: skip


# -- the soak ------------------------------------------------------------------------------------
# `make soak-fanout`: a fan-out whose driver is killed 20 times, by `eoslog.fanout` and by plain writers.
#
# Half of the kills are before or after a step of a batch, the others at random times. After every fifth the
# PostgreSQL server is killed too. Then each place is read by its own library: every source record once in
# each, or of the changes of each key the newest. Plain writers, which append alone, must double, or the kills
# prove nothing. `eoslog audit` has to find the same in the tables, and rows that are hurt by hand.

PARTITIONS = 2
STEPS, PLAIN_STEPS = 76, 16
"""Of two batches, with eoslog.fanout and with plain writers."""
SERVER_DIES_AFTER = 5
PATIENCE_S = 400.0


def wanted(rows: int, *, newest: bool) -> set[Row]:
    """All rows; or, as changes, the newest of each key, unless it deletes."""
    each = [(partition, offset) for partition in range(PARTITIONS) for offset in range(rows // PARTITIONS)]
    if not newest:
        return set(each)
    last = {(partition, offset % KEYS): offset for partition, offset in each}
    return {(partition, offset) for (partition, _), offset in last.items() if offset % 10 != DELETES_AT}


def judge(found: Counter[Row], rows: set[Row]) -> tuple[int, int, int]:
    """Rows lost, doubled, and that never were or were replaced. `found`: how often each is there."""
    return len(rows - set(found)), sum(max(found[one] - 1, 0) for one in rows), len(set(found) - rows)


def seen(folder: Path, kafka: Kafka, target: str, server: PostgresServer) -> dict[str, Counter[Row]]:
    """What readers see in each place that is there."""
    found = {}
    catalog = load_catalog("eoslog", **catalog_in(str(folder)))
    for kind, path, name in (("", "delta", "rows"), (CHANGES, "delta-changes", "changes")):
        if DeltaTable.is_deltatable(str(folder / path)):
            found[f"Delta{kind}"] = DeltaTable(str(folder / path)).to_pyarrow_table(columns=list(PLACE))
        if catalog.table_exists(f"db.{name}"):
            found[f"Iceberg{kind}"] = catalog.load_table(f"db.{name}").scan(selected_fields=PLACE).to_arrow()
    counts = {
        name: Counter(zip(*(table[column].to_pylist() for column in PLACE), strict=True))
        for name, table in found.items()
    }
    for kind, name in (("", "rows"), (CHANGES, "changes")):
        if server.rows("SELECT to_regclass(%s)", name) != [(None,)]:
            counts[f"PostgreSQL{kind}"] = Counter(server.rows(f'SELECT partition, "offset" FROM {name}'))
    values = [row[3].decode().split(":") for row in kafka.rows(target, PARTITIONS)]
    return counts | {"topic": Counter((int(partition), int(offset)) for partition, offset in values)}


class Soak:
    """One fan-out, killed and started again."""

    def __init__(
        self, kafka: Kafka, source: str, folder: Path, rows: int, batch: int, jdbc: str | None
    ) -> None:
        """`jdbc`: None: with eoslog.fanout; else with plain writers, and this jar."""
        self.kafka, self.folder, self.rows = kafka, folder, rows
        self._steps = STEPS if jdbc is None else PLAIN_STEPS
        self.target, self.server = kafka.topic(PARTITIONS), PostgresServer()
        folder.mkdir()
        load_catalog("eoslog", **catalog_in(str(folder))).create_namespace("db")
        self._command = [
            sys.executable, "-m", "tests.fanout.fanout_app", "--folder", folder, "--source", source,
            "--bootstrap", kafka.bootstrap, "--target", self.target, "--batch", batch,         ]  # fmt: skip
        self._command += [] if jdbc is None else ["--plain", jdbc]
        self._lives = 0

    def run(self, kills: int, draw: Random) -> Verdict:
        """Kill so often, then let it end. Raises RuntimeError if it stops by itself."""
        for number in range(kills):
            at = draw.randrange(self._steps) if number % 2 == 0 else None
            print(f"  kill {number + 1}: {self._killed(at, draw.uniform(0, 2))}", flush=True)
            if number % SERVER_DIES_AFTER == SERVER_DIES_AFTER - 1:
                print(
                    f"  the PostgreSQL server killed: {self._server_killed(draw.uniform(0, 2))}", flush=True
                )
        with self._life(None) as life:
            self._wait(life, "")
            if life.ended != 0:
                raise RuntimeError(f"it stopped by itself: {_told(life)}")
        print(f"  {life.log.read_text().splitlines()[-1]}", flush=True)
        found = seen(self.folder, self.kafka, self.target, self.server)
        return {
            name: judge(counts, wanted(self.rows, newest=name.endswith(CHANGES)))
            for name, counts in found.items()
        }

    def _server_killed(self, seconds: float) -> str:
        """The query has to stop by itself, unless it was done."""
        with self._life(None) as life:
            self._wait(life, "batch ")
            time.sleep(seconds)
            self.server.kill()
            self._wait(life, "")
            ended, last = life.ended, _last_batch(life)
        self.server.start()
        return f"{last}, the query {'was done' if ended == 0 else 'stopped'}"

    def _killed(self, at: int | None, seconds: float) -> str:
        with self._life(at) as life:
            if at is not None:
                self._wait(life, "")
            else:
                self._wait(life, "batch ")
                time.sleep(seconds)
            ended = life.ended
        if ended == 0:
            raise RuntimeError("all is written, and kills are left: give more rows")
        if ended is not None and ended != -9:
            raise RuntimeError(f"it stopped by itself: {_told(life)}")
        return f"{'step ' + str(at) if at is not None else 'any time'}, in {_last_batch(life)}"

    def _life(self, at: int | None) -> Program:
        self._lives += 1
        command = [*self._command, "--database", self.server.conninfo()]
        command += [] if at is None else ["--dies-at", at]
        return Program(command, self.folder / f"life-{self._lives}.log", environment=plain_python())

    def _wait(self, life: Program, text: str) -> None:
        """Until it says so, or ends. Raises RuntimeError if it says nothing at all for PATIENCE_S."""
        said, until = "", time.monotonic() + PATIENCE_S
        while life.ended is None and not (text and f"\n{text}" in "\n" + life.log.read_text()):
            if life.log.read_text() != said:
                said, until = life.log.read_text(), time.monotonic() + PATIENCE_S
            if time.monotonic() > until:
                raise RuntimeError(f"nothing for {PATIENCE_S} s: {_told(life)}")
            time.sleep(0.02)


def _told(life: Program) -> str:
    """The end of its output, without the JVM's frames."""
    return "\n".join(one for one in life.log.read_text().splitlines() if not one.startswith("\tat "))[-3000:]


def _last_batch(life: Program) -> str:
    return [line for line in life.log.read_text().splitlines() if line.startswith("batch ")][-1]


def _audit(kafka: Kafka, source: str, soak: Soak, verdict: Verdict) -> None:
    """Raise RuntimeError unless `eoslog audit` finds the same, and a harm that is done to right tables."""
    given = (kafka.bootstrap, source, soak.folder, soak.server)
    found = audited(*given)
    if found != {place: said for place, said in verdict.items() if place != "topic"}:
        raise RuntimeError(f"eoslog audit found {found}, and the rows say {verdict}")
    print(f"  eoslog audit finds the same: {found}")
    if set(found.values()) == {(0, 0, 0)}:
        done = hurt(soak.folder, soak.server, soak.rows)
        found = audited(*given)
        if found != done:
            raise RuntimeError(f"of tables that were hurt by hand ({done}) eoslog audit found {found}")
        print(f"  rows taken, doubled and made older by hand: {found}", flush=True)


def _fill(kafka: Kafka, topic: str, rows: int) -> None:
    """The changes of each key stay in their partition."""
    producer = kafka.producer(acks="all")
    for partition in range(PARTITIONS):
        for offset in range(rows // PARTITIONS):
            value = b'{"op": "d"}' if offset % 10 == DELETES_AT else b'{"op": "u"}'
            producer.produce(topic, value, f"{partition}-{offset % KEYS}", partition)
            producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the source was not filled")


def main() -> None:
    """Both, and the verdict as exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jdbc", required=True, help="the jar of PostgreSQL's JDBC driver")
    parser.add_argument("--only", choices=["eoslog.fanout", "plain"])
    options = parser.parse_args()
    right = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker, ExitStack() as stack:
        kafka = Kafka(broker.bootstrap)
        source = kafka.topic(PARTITIONS)
        _fill(kafka, source, options.rows)
        for name in [options.only] if options.only else ["eoslog.fanout", "plain"]:
            print(f"{name}: {options.rows} rows, {options.kills} kills, seed {options.seed}", flush=True)
            began, batch = time.monotonic(), max(2, options.rows // (4 * options.kills))
            jdbc = options.jdbc if name == "plain" else None
            soak = Soak(kafka, source, Path(folder) / name, options.rows, batch, jdbc)
            stack.callback(soak.server.remove)
            verdict = soak.run(options.kills, Random(options.seed))
            for place, (lost, doubled, strange) in verdict.items():
                print(f"  {place}: {lost} lost, {doubled} doubled, {strange} that never were")
            right[name] = set(verdict.values()) == {(0, 0, 0)}
            _audit(kafka, source, soak, verdict)
            said = "exact" if right[name] else "NOT exact"
            print(f"  {said}, {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(0 if all(exact == (name != "plain") for name, exact in right.items()) else 1)


if __name__ == "__main__":
    main()
