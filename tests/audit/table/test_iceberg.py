"""Iceberg tables: which rows a snapshot has, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from eoslog.audit.table import iceberg
from eoslog.audit.table.files import BadTable
from eoslog.audit.table.iceberg import IcebergTable


def rows(*offsets: int, **more: Any) -> pa.Table:
    return pa.table(
        {"partition": pa.array([n % 2 for n in offsets], pa.int32()), "offset": list(offsets), **more}
    )


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return catalog.create_table("ns.t", rows(1, value=["v"]).schema)


def read(*columns: str, snapshot: int | None = None) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    opened = IcebergTable("here.ns.t", snapshot)
    for number in range(len(opened.files)):
        for batch in opened.batches(number, columns or ["offset"]):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found)


def test_each_snapshot_has_its_rows(table: Table) -> None:
    assert IcebergTable("here.ns.t").version == "iceberg:here.ns.t" and read() == []
    table.append(rows(1, 2, value=["a", "b"]))
    table.append(rows(3, value=["c"]))
    first, second = (one.snapshot_id for one in table.snapshots())
    assert IcebergTable("here.ns.t").version == f"iceberg:here.ns.t@{second}"
    assert read("value", "offset") == [("a", 1), ("b", 2), ("c", 3)]
    assert read(snapshot=first) == [(1,), (2,)]
    with pytest.raises(BadTable, match=f"@5: the table has no such snapshot, but {first}, {second}"):
        read(snapshot=5)


def test_columns_keep_what_they_are_when_they_are_renamed(table: Table) -> None:
    """A name may have been another column's before."""
    table.append(rows(1, value=["old"]))
    with table.update_schema() as update:
        update.rename_column("value", "before")
    with table.update_schema() as update:
        update.rename_column("partition", "value")
    table.append(pa.table({"value": pa.array([0], pa.int32()), "offset": [2], "before": ["new"]}))
    assert read("offset", "value", "before") == [(1, 1, "old"), (2, 0, "new")]


def test_partitioned_tables(catalog: SqlCatalog) -> None:
    table = catalog.create_table("ns.t", rows(1).schema)
    with table.update_spec() as update:
        update.add_field("partition", IdentityTransform())
    table.append(rows(1, 2, 3))
    assert len(IcebergTable("here.ns.t").files) == 2
    assert read("partition", "offset") == [(0, 2), (1, 1), (1, 3)]


def test_files_that_were_added_without_ids_are_read_by_name(table: Table, tmp_path: Path) -> None:
    pq.write_table(rows(7, value=["x"]), tmp_path / "added.parquet")
    table.add_files([f"file://{tmp_path}/added.parquet"])
    assert read("offset", "value") == [(7, "x")]


def test_a_column_that_was_added_is_null_before(table: Table) -> None:
    table.append(rows(1, value=["a"]))
    with table.update_schema() as update:
        from pyiceberg.types import StringType

        update.add_column("key", StringType())
    assert read("offset", "key") == [(1, None)]


def test_files_with_deletes_are_left_to_pyiceberg(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyiceberg writes no delete files: here it is told that there is one, and hands out what it would."""
    table.append(rows(1, 2, value=["a", "b"]))
    opened = IcebergTable("here.ns.t")
    (task,) = opened._tasks
    position = pa.chunked_array([pa.array([0])])
    monkeypatch.setattr(
        "pyiceberg.io.pyarrow._read_all_delete_files", lambda *_: {task.file.file_path: [position]}
    )
    task.delete_files.add(task.file)
    (batch,) = opened.batches(0, ["offset", "value"])
    assert batch.to_pylist() == [{"offset": 2, "value": "b"}]


def test_what_pyiceberg_cannot_read_is_refused(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise ValueError("PyIceberg does not yet support equality deletes")

    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", refuse)
    with pytest.raises(BadTable, match=r"cannot be read right by pyiceberg: .*equality deletes"):
        IcebergTable("here.ns.t")


def test_what_is_not_there_is_told(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadTable, match=r"the catalog here has no table ns\.none"):
        IcebergTable("here.ns.none")
    with pytest.raises(BadTable, match="the catalog nowhere cannot be opened"):
        IcebergTable("nowhere.ns.t")
    with pytest.raises(BadTable, match="give catalog, namespace and table"):
        IcebergTable("here.t")
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)
    with pytest.raises(BadTable, match=r"pip install 'eoslog\[iceberg\]'"):
        iceberg.IcebergTable("here.ns.t")
