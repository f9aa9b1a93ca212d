"""A million records and tables of them: right, one row removed, doubled, altered. make audit-tables-million.

Each table is audited by a process of its own, as a user would; what it says is checked, its time and the most
memory it had are measured: a minute and 200 MB are the bounds for a million. eoslog does not need pandas, and
pyarrow loads it where it is installed, some 40 MB: it is hidden, unless asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

from eoslog.testing import EmbeddedBroker
from tests.audit.auditkit import SCHEMA, cluster_at, create, fill, rows, split
from tests.audit.million import MEGABYTES, SECONDS, audit

_FIRST = 51  # the offset behind the aborted records that `fill` writes, and their marker
_HURTS = {"nothing": None, "removed": "lost", "doubled": "doubled", "altered": "altered"}
_KINDS = ("lost", "doubled", "altered", "phantom", "foreign", "unchecked")
_BY_CONTENT = {"altered": {"lost": 1, "doubled": 1}}
"""What is found by --content where it is not what is found by partition and offset: the altered row has the
content of the next record."""
_PIECE = 250_000


def pieces(count: int, value_bytes: int, how: str) -> list[Callable[[], pa.Table]]:
    """The table's rows, to be made a few at a time."""
    made: list[Callable[[], pa.Table]] = []
    for partition, numbers in enumerate(split(count)):
        for first in range(0, len(numbers), _PIECE):
            harm = how if (partition, first) == (1, 0) else "nothing"
            part = numbers[first : first + _PIECE]

            def make(
                partition: int = partition, first: int = first, part: object = part, harm: str = harm
            ) -> pa.Table:
                return _piece(partition, first, np.asarray(part), value_bytes, harm)

            made.append(make)
    return made


def _piece(partition: int, first: int, numbers: np.ndarray, value_bytes: int, how: str) -> pa.Table:
    at = np.arange(len(numbers))
    middle = len(at) // 2
    if how == "removed":
        at = np.delete(at, middle)
    if how == "doubled":
        at = np.append(at, middle)
    shown = numbers[at]
    if how == "altered":
        shown = shown.copy()
        shown[middle] += 1
    keys, values = rows(shown, value_bytes)
    columns = {
        "key": keys.cast(pa.binary()), "value": values.cast(pa.binary()),
        "topic": pa.repeat(pa.scalar("orders"), len(at)), "partition": np.full(len(at), partition),
        "offset": _FIRST + first + at,
    }  # fmt: skip
    return pa.table([pa.array(columns[f.name]).cast(f.type) for f in SCHEMA], schema=SCHEMA)


def store(kind: str, how: str, made: list[Callable[[], pa.Table]], folder: Path, catalog: SqlCatalog) -> str:
    """A table of a kind; what --to calls it."""
    name = f"{kind}_{how}"
    table = catalog.create_table(f"ns.{name}", SCHEMA) if kind == "iceberg" else None
    for number, make in enumerate(made):
        if kind == "parquet":
            (folder / name).mkdir(exist_ok=True)
            pq.write_table(make(), folder / name / f"part-{number:04}.parquet")
        elif kind == "delta":
            write_deltalake(folder / name, make(), mode="append")
        else:
            assert table is not None
            table.append(make())
    return f"iceberg:here.ns.{name}" if kind == "iceberg" else f"{kind}:{folder / name}"


def measure(
    bootstrap: str,
    count: int,
    value_bytes: int,
    kinds: list[str],
    hurts: list[str],
    more: list[str],
    lean: bool,
) -> bool:
    """Fill, audit, print; whether all was as it should be. `more`: options of the audit; `lean`: pandas is
    hidden."""
    fine = True
    with cluster_at(bootstrap) as cluster, tempfile.TemporaryDirectory() as directory:
        create(cluster, "orders")
        fill(cluster, "orders", split(count), value_bytes)
        uri = f"sqlite:///{directory}/catalog.db"
        os.environ |= {"PYICEBERG_CATALOG__HERE__URI": uri, "PYICEBERG_CATALOG__HERE__TYPE": "sql"}
        catalog = SqlCatalog("here", uri=uri, warehouse=f"file://{directory}/warehouse")
        catalog.create_namespace("ns")
        print(f"{count:,} records of {value_bytes} bytes in 4 partitions")
        for kind in kinds:
            for how in hurts:
                to = store(kind, how, pieces(count, value_bytes, how), Path(directory), catalog)
                fine &= _measured(bootstrap, kind, how, to, count, more, lean)
    return fine


def _measured(bootstrap: str, kind: str, how: str, to: str, count: int, more: list[str], lean: bool) -> bool:
    report, status, cost = audit(bootstrap, to, *more, without="pandas" if lean else "")
    expected = {name: 1 for name in _KINDS if name == _HURTS[how]}
    if "--content" in more:
        expected = _BY_CONTENT.get(how, expected)
    found = {name: report["counts"][name] for name in _KINDS if report["counts"].get(name)}
    wrong = [] if found == expected else [f"found {found}"]
    wrong += [] if status == int(how != "nothing") else [f"exit status {status}"]
    wrong += [] if report["counts"]["source"] == count else [f"{report['counts']['source']} records"]
    scale = max(count / 1_000_000, 1)
    wrong += [f"above {SECONDS * scale:.0f} s"] if cost.seconds > SECONDS * scale else []
    wrong += [f"above {MEGABYTES} MB"] if cost.megabytes > MEGABYTES else []
    others = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    figures = f"{cost.seconds:5.1f} s ({cost.cpu:.1f} s of a core; {others}), {cost.megabytes:.0f} MB"
    print(
        f"{kind:>8} {how:>8}: {figures}, {'WRONG: ' + ', '.join(wrong) if wrong else 'as it should be'}",
        flush=True,
    )
    return not wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", default=["parquet", "delta", "iceberg"])
    parser.add_argument("--hurts", nargs="+", choices=_HURTS, default=list(_HURTS))
    parser.add_argument(
        "--pandas", action="store_true", help="with pandas, as pyarrow loads it if it is there"
    )
    parser.add_argument("more", nargs="*", help="options of eoslog audit, behind --")
    given = parser.parse_args()
    os.chdir(Path(__file__).parents[2])
    with EmbeddedBroker() as started:
        fine = measure(
            started.bootstrap, given.records, given.value_bytes, given.kinds, given.hurts, given.more,
            not given.pandas,
        )  # fmt: skip
    sys.exit(not fine)


if __name__ == "__main__":
    main()
