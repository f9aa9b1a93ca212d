"""What `eoslog audit` says of a soak's tables: it has to find what the soak's judge finds, and a harm done by
hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from tests.fanout.fanout_app import catalog_in

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
