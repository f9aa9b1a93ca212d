"""`make soak-fanout`: a fan-out to a Delta table, an Iceberg table and a topic, the driver killed again and
again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from eoslog.testing import EmbeddedBroker
from tests.connector.brokers import Kafka
from tests.fanout.fanout_app import catalog_in
from tests.kit.program import Program, plain_python

# -- the tables ----------------------------------------------------------------------------------
# What `eoslog audit` says of a soak's tables: it has to find what the soak's judge finds, and a harm done by
# hand.

CATALOG = "eoslog"
"""A catalog in a database keeps its tables under its name: that of the fan-out's."""


def audited(bootstrap: str, topic: str, folder: Path) -> dict[str, tuple[int, int, int]]:
    """Rows lost, doubled, and that never were, of each table; as the command's exit status says too."""
    prefix = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
    named = {prefix + name.upper(): value for name, value in catalog_in(str(folder)).items()}
    found = {}
    for name, to in (("Delta", f"delta:{folder / 'delta'}"), ("Iceberg", f"iceberg:{CATALOG}.db.rows")):
        command = [sys.executable, "-m", "eoslog", "audit", topic, "--to", to, "--json"]
        done = subprocess.run(
            [*command, "--bootstrap-server", bootstrap],
            env=os.environ | named, stdout=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
        counts = json.loads(done.stdout)["counts"]
        found[name] = (counts["lost"], counts["doubled"], counts["phantom"] + counts["foreign"])
        if (done.returncode == 0) != (found[name] == (0, 0, 0)):
            raise RuntimeError(f"{to}: exit status {done.returncode}, and found {found[name]}")
    return found


def hurt(folder: Path) -> None:
    """Take a row from the Delta table, and double one of the Iceberg table."""
    DeltaTable(str(folder / "delta")).delete("partition = 1 AND offset = 7")
    table = load_catalog("eoslog", **catalog_in(str(folder))).load_table("db.rows")
    table.append(table.scan(row_filter="partition = 1 and offset = 7").to_arrow())


# -- the soak ------------------------------------------------------------------------------------
# `make soak-fanout`: a fan-out whose driver is killed 20 times, by `eoslog.fanout` and by plain writers.
#
# Half of the kills are before or after a step of a batch, the others at random times. Then each place is read
# by its own library: every source record once in each. Plain writers must double, or the kills prove nothing.
# `eoslog audit` has to find the same in the tables, and a row that is taken or doubled by hand.

PARTITIONS, STEPS = 2, 28
PATIENCE_S = 400.0
Verdict = dict[str, tuple[int, int, int]]


def judge(found: Counter[tuple[int, int]], rows: int) -> tuple[int, int, int]:
    """Rows lost, doubled, and that never were. `found`: partition and offset, how often."""
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(rows // PARTITIONS)}
    return len(wanted - set(found)), sum(max(found[one] - 1, 0) for one in wanted), len(set(found) - wanted)


def seen(folder: Path, kafka: Kafka, target: str) -> dict[str, Counter[tuple[int, int]]]:
    """What readers see in each place."""
    tables = {
        "Delta": DeltaTable(str(folder / "delta")).to_pyarrow_table(columns=["partition", "offset"]),
        "Iceberg": load_catalog("eoslog", **catalog_in(str(folder))).load_table("db.rows").scan().to_arrow(),
    }
    found = {
        name: Counter(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
        for name, table in tables.items()
    }
    values = [row[3].decode().split(":") for row in kafka.rows(target, PARTITIONS)]
    return found | {"topic": Counter((int(partition), int(offset)) for partition, offset in values)}


class Soak:
    """One fan-out, killed and started again."""

    def __init__(
        self, kafka: Kafka, source: str, folder: Path, rows: int, batch: int, *, plain: bool
    ) -> None:
        self.kafka, self.folder, self.rows = kafka, folder, rows
        self.target = kafka.topic(PARTITIONS)
        folder.mkdir()
        load_catalog("eoslog", **catalog_in(str(folder))).create_namespace("db")
        self._command = [
            sys.executable, "-m", "tests.fanout.fanout_app", "--folder", folder, "--source", source,
            "--bootstrap", kafka.bootstrap, "--target", self.target, "--batch", batch, *["--plain"] * plain,
        ]  # fmt: skip
        self._lives = 0

    def run(self, kills: int, draw: Random) -> Verdict:
        """Kill so often, then let it end. Raises RuntimeError if it stops by itself."""
        for number in range(kills):
            at = draw.randrange(STEPS) if number % 2 == 0 else None
            print(f"  kill {number + 1}: {self._killed(at, draw.uniform(0, 2))}", flush=True)
        life = self._life(None)
        self._wait(life, "")
        if life.ended != 0:
            raise RuntimeError(f"it stopped by itself: {life.log.read_text()[-3000:]}")
        print(f"  {life.log.read_text().splitlines()[-1]}", flush=True)
        found = seen(self.folder, self.kafka, self.target)
        return {name: judge(counts, self.rows) for name, counts in found.items()}

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
            raise RuntimeError(f"it stopped by itself: {life.log.read_text()[-3000:]}")
        last = [line for line in life.log.read_text().splitlines() if line.startswith("batch ")][-1]
        return f"{'step ' + str(at) if at is not None else 'any time'}, in {last}"

    def _life(self, at: int | None) -> Program:
        self._lives += 1
        command = [*self._command, *([] if at is None else ["--dies-at", at])]
        return Program(command, self.folder / f"life-{self._lives}.log", environment=plain_python())

    def _wait(self, life: Program, text: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while life.ended is None and not (text and f"\n{text}" in "\n" + life.log.read_text()):
            if time.monotonic() > until:
                raise RuntimeError(f"nothing for {PATIENCE_S} s: {life.log.read_text()[-3000:]}")
            time.sleep(0.02)


def _audit(bootstrap: str, source: str, folder: Path, verdict: Verdict) -> None:
    """Raise RuntimeError unless `eoslog audit` finds the same, and a harm that is done to right tables."""
    found = audited(bootstrap, source, folder)
    if any(found[table] != verdict[table] for table in found):
        raise RuntimeError(f"eoslog audit found {found}, and the rows say {verdict}")
    print(f"  eoslog audit finds the same: {found}")
    if set(found.values()) == {(0, 0, 0)}:
        hurt(folder)
        found = audited(bootstrap, source, folder)
        if found != {"Delta": (1, 0, 0), "Iceberg": (0, 1, 0)}:
            raise RuntimeError(f"of tables that were hurt by hand eoslog audit found {found}")
        print(f"  a row taken from the one, one doubled in the other: {found}", flush=True)


def main() -> None:
    """Both, and the verdict as exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    right = {}
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker() as broker:
        kafka = Kafka(broker.bootstrap)
        source = kafka.topic(PARTITIONS)
        for partition in range(PARTITIONS):
            kafka.put(source, [b"row"] * (options.rows // PARTITIONS), partition=partition)
        for name in ("eoslog.fanout", "plain"):
            print(f"{name}: {options.rows} rows, {options.kills} kills, seed {options.seed}", flush=True)
            began, batch = time.monotonic(), max(2, options.rows // (4 * options.kills))
            soak = Soak(kafka, source, Path(folder) / name, options.rows, batch, plain=name == "plain")
            verdict = soak.run(options.kills, Random(options.seed))
            for place, (lost, doubled, strange) in verdict.items():
                print(f"  {place}: {lost} lost, {doubled} doubled, {strange} that never were")
            right[name] = set(verdict.values()) == {(0, 0, 0)}
            _audit(kafka.bootstrap, source, soak.folder, verdict)
            said = "exact" if right[name] else "NOT exact"
            print(f"  {said}, {time.monotonic() - began:.0f} s", flush=True)
    sys.exit(0 if right == {"eoslog.fanout": True, "plain": False} else 1)


if __name__ == "__main__":
    main()
