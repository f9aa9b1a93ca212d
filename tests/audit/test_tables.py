"""Tables as an audit sees them, in Delta, Iceberg and Parquet: which rows a version has, what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from eoslog.audit.table import files, iceberg
from eoslog.audit.table.delta import DeltaFolder
from eoslog.audit.table.files import BadTable
from eoslog.audit.table.iceberg import IcebergTable
from eoslog.audit.table.parquet import ParquetFolder

# -- Delta ---------------------------------------------------------------------------------------
# Delta tables: which rows a version has, and what is refused.


def delta_rows(*offsets: int, topic: str | None = "a b/c", **more: Any) -> pa.Table:
    return pa.table({
        "topic": pa.array([topic] * len(offsets), pa.string()),
        "partition": pa.array([n % 2 for n in offsets], pa.int32()), "offset": list(offsets), **more,
    })  # fmt: skip


def delta_read(folder: Path, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
    table = DeltaFolder(str(folder), version)
    found: list[tuple[Any, ...]] = []
    for number, file in enumerate(table.files):
        batches = list(table.batches(number, columns or ["offset"]))
        assert sum(batch.num_rows for batch in batches) == file.size
        found += [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=str)


def test_each_version_has_its_rows(tmp_path: Path) -> None:
    write_deltalake(tmp_path, delta_rows(1, 2))
    write_deltalake(tmp_path, delta_rows(3), mode="append")
    DeltaTable(tmp_path).delete("offset = 2")
    assert delta_read(tmp_path) == [(1,), (3,)], "files that were replaced are still in the folder"
    assert delta_read(tmp_path, version=1) == [(1,), (2,), (3,)]
    assert delta_read(tmp_path, version=0) == [(1,), (2,)]
    assert DeltaFolder(str(tmp_path)).version == f"delta:{tmp_path}@2"
    with pytest.raises(BadTable, match="@7"):
        DeltaFolder(str(tmp_path), 7)


def test_columns_of_folders_and_columns_that_were_added(tmp_path: Path) -> None:
    write_deltalake(tmp_path, delta_rows(1, 2), partition_by=["topic", "partition"])
    write_deltalake(tmp_path, delta_rows(3, topic=None), mode="append")
    more = delta_rows(4, value=["v"])
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    assert delta_read(tmp_path, "offset", "value", "topic", "partition") == [
        (1, None, "a b/c", 1), (2, None, "a b/c", 0), (3, None, None, 1), (4, "v", "a b/c", 0),
    ]  # fmt: skip


def test_a_table_without_rows_has_columns(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, delta_rows(1).schema)
    assert DeltaFolder(str(tmp_path)).schema.names == ["topic", "partition", "offset"]
    assert delta_read(tmp_path) == []


def changed(folder: Path, **values: Any) -> None:
    """The first commit says otherwise what the table is."""
    path = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for kind in line.keys() & values.keys():
            line[kind] |= values[kind]
    path.write_text("\n".join(map(json.dumps, lines)))


def test_what_cannot_be_read_right_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, delta_rows(1, 2))
    changed(tmp_path, metaData={"configuration": {"delta.columnMapping.mode": "name"}})
    with pytest.raises(BadTable, match="renamed columns"):
        DeltaFolder(str(tmp_path))
    changed(tmp_path, metaData={"configuration": {}}, protocol={
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"],
    })  # fmt: skip
    with pytest.raises(BadTable, match=r"deletionVectors.*audit a copy"):
        DeltaFolder(str(tmp_path))


def test_no_table_and_no_package_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(BadTable, match="there is no such Delta table"):
            DeltaFolder(str(folder))
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(BadTable, match=r"pip install 'eoslog\[delta\]'"):
        DeltaFolder(str(tmp_path))


# -- Iceberg -------------------------------------------------------------------------------------
# Iceberg tables: which rows a snapshot has, and what is refused.


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


# -- Parquet -------------------------------------------------------------------------------------
# Folders of Parquet files: which files count, and what their columns are.


def put(folder: Path, name: str, *numbers: int, **more: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"offset": list(numbers), **more}), path)
    return path


def parquet_read(folder: Path | str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows, file by file."""
    table = ParquetFolder(str(folder))
    found: list[tuple[Any, ...]] = []
    for number, file in enumerate(table.files):
        batches = list(table.batches(number, columns or ["offset"]))
        assert sum(batch.num_rows for batch in batches) == file.size
        found += [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return found


def log(folder: Path, name: str, *entries: Path, action: str = "add", first: str = "v1") -> None:
    """A file of the log of Spark's sink."""
    lines = [
        {"path": f"file://{quote(str(e))}", "size": e.stat().st_size if e.exists() else 9, "isDir": False,
         "modificationTime": 1, "blockReplication": 1, "blockSize": 1, "action": action}
        for e in entries
    ]  # fmt: skip
    (folder / "_spark_metadata").mkdir(exist_ok=True)
    (folder / "_spark_metadata" / name).write_text("\n".join([first, *map(json.dumps, lines)]))


def test_hidden_files_are_no_rows(tmp_path: Path) -> None:
    put(tmp_path, "b/_x=2/b.parquet", 3)
    one = put(tmp_path, "a/_x=1/a.parquet", 1, 2)
    for name in ("_temporary/0/c.parquet", ".d.parquet", "_e.parquet", "a/.f/g.parquet", "h._COPYING_"):
        put(tmp_path, name, 9)
    (tmp_path / "_SUCCESS").touch()
    assert parquet_read(tmp_path) == [(1,), (2,), (3,)]
    assert parquet_read(f"file://{tmp_path}") == [(1,), (2,), (3,)]
    assert parquet_read(one) == [(1,), (2,)]


def test_folders_are_columns(tmp_path: Path) -> None:
    put(tmp_path, "topic=a%2Fb/partition=0/x.parquet", 1)
    put(tmp_path, "topic=__HIVE_DEFAULT_PARTITION__/partition=1/y.parquet", 2)
    assert sorted(parquet_read(tmp_path, "partition", "offset", "topic")) == [("0", 1, "a/b"), ("1", 2, None)]
    assert ParquetFolder(str(tmp_path)).schema.names == ["offset", "topic", "partition"]


def test_files_of_another_schema_are_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.parquet", 1)
    put(tmp_path, "b.parquet", 1, partition=[1])
    with pytest.raises(BadTable, match=r"b.parquet has other columns .*partition int64.* than a.parquet"):
        ParquetFolder(str(tmp_path))


def test_what_is_no_parquet_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2,3 and so on")
    with pytest.raises(BadTable, match=r"a\.csv is no Parquet file"):
        ParquetFolder(str(tmp_path))


def test_large_rows_are_read_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BATCH_BYTES", 10_000)
    put(tmp_path, "a.parquet", *range(100), value=[f"{n}" * 1000 for n in range(100)])
    table = ParquetFolder(str(tmp_path))
    sizes = [batch.num_rows for batch in table.batches(0, ["offset"])]
    assert sum(sizes) == 100 and max(sizes) <= 20


def test_only_files_that_the_sinks_log_names_count(tmp_path: Path) -> None:
    root = tmp_path / "a table"
    named = [put(root, f"part-{n}.parquet", n) for n in range(4)]
    put(root, "part-of-a-dead-task.parquet", 9)
    log(root, "0", named[0])
    log(root, "1", named[1], named[2])
    (root / "_spark_metadata" / ".2.crc").touch()
    (root / "_spark_metadata" / ".2.tmp").touch()
    assert parquet_read(root) == [(0,), (1,), (2,)]
    log(root, "2.compact", named[0], named[3])
    assert parquet_read(root) == [(0,), (3,)], "the compact file says all of what was before"
    log(root, "3", named[1])
    log(root, "4", named[3], action="delete")
    assert parquet_read(root) == [(0,), (1,)]
    for name in ("0", "1"):
        (root / "_spark_metadata" / name).unlink()
    assert parquet_read(root) == [(0,), (1,)]


def test_paths_are_escaped_as_uris(tmp_path: Path) -> None:
    log(tmp_path, "0", put(tmp_path, "x=a%2Fb/one two.parquet", 1))
    assert parquet_read(tmp_path, "x") == [("a/b",)]


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    file = put(tmp_path, "a.parquet", 1)

    def refused(match: str) -> None:
        with pytest.raises(BadTable, match=match):
            ParquetFolder(str(tmp_path))
        for left in (tmp_path / "_spark_metadata").iterdir():
            left.unlink()

    log(tmp_path, "0", file, first="v2")
    refused("begins with 'v2'")
    log(tmp_path, "0", tmp_path / "b.parquet")
    refused("names b.parquet with 9 bytes, but it is not there")
    log(tmp_path, "0", Path("/elsewhere/a.parquet"))
    refused("the folder was moved")
    log(tmp_path, "0", file)
    log(tmp_path, "2", file)
    refused("no file for batch 1, but for batch 2")
    log(tmp_path, "1", file)
    refused("no file for batch 0, but for batch 1")
    log(tmp_path, "0", file, action="append")
    refused("the action 'append' is not known")
    (tmp_path / "_spark_metadata" / "0").write_text("v1\n{}")
    refused("a line is not an entry of a file")
    log(tmp_path, "0", file)
    put(tmp_path, "a.parquet", *range(100))
    refused("names a.parquet with .* bytes, but it has")
