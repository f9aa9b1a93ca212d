"""Folders of Parquet files: which files count, and what their columns are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eoslog.audit.table import files
from eoslog.audit.table.files import BadTable
from eoslog.audit.table.parquet import ParquetFolder


def put(folder: Path, name: str, *numbers: int, **more: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"offset": list(numbers), **more}), path)
    return path


def read(folder: Path | str, *columns: str) -> list[tuple[Any, ...]]:
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
    assert read(tmp_path) == [(1,), (2,), (3,)]
    assert read(f"file://{tmp_path}") == [(1,), (2,), (3,)]
    assert read(one) == [(1,), (2,)]


def test_folders_are_columns(tmp_path: Path) -> None:
    put(tmp_path, "topic=a%2Fb/partition=0/x.parquet", 1)
    put(tmp_path, "topic=__HIVE_DEFAULT_PARTITION__/partition=1/y.parquet", 2)
    assert sorted(read(tmp_path, "partition", "offset", "topic")) == [("0", 1, "a/b"), ("1", 2, None)]
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
    assert read(root) == [(0,), (1,), (2,)]
    log(root, "2.compact", named[0], named[3])
    assert read(root) == [(0,), (3,)], "the compact file says all of what was before"
    log(root, "3", named[1])
    log(root, "4", named[3], action="delete")
    assert read(root) == [(0,), (1,)]
    for name in ("0", "1"):
        (root / "_spark_metadata" / name).unlink()
    assert read(root) == [(0,), (1,)]


def test_paths_are_escaped_as_uris(tmp_path: Path) -> None:
    log(tmp_path, "0", put(tmp_path, "x=a%2Fb/one two.parquet", 1))
    assert read(tmp_path, "x") == [("a/b",)]


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
