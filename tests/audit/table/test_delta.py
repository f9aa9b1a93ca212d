"""Delta tables: which rows a version has, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from eoslog.audit.table.delta import DeltaFolder
from eoslog.audit.table.files import BadTable


def rows(*offsets: int, topic: str | None = "a b/c", **more: Any) -> pa.Table:
    return pa.table({
        "topic": pa.array([topic] * len(offsets), pa.string()),
        "partition": pa.array([n % 2 for n in offsets], pa.int32()), "offset": list(offsets), **more,
    })  # fmt: skip


def read(folder: Path, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
    table = DeltaFolder(str(folder), version)
    found: list[tuple[Any, ...]] = []
    for number, file in enumerate(table.files):
        batches = list(table.batches(number, columns or ["offset"]))
        assert sum(batch.num_rows for batch in batches) == file.size
        found += [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    return sorted(found, key=str)


def test_each_version_has_its_rows(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2))
    write_deltalake(tmp_path, rows(3), mode="append")
    DeltaTable(tmp_path).delete("offset = 2")
    assert read(tmp_path) == [(1,), (3,)], "files that were replaced are still in the folder"
    assert read(tmp_path, version=1) == [(1,), (2,), (3,)]
    assert read(tmp_path, version=0) == [(1,), (2,)]
    assert DeltaFolder(str(tmp_path)).version == f"delta:{tmp_path}@2"
    with pytest.raises(BadTable, match="@7"):
        DeltaFolder(str(tmp_path), 7)


def test_columns_of_folders_and_columns_that_were_added(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2), partition_by=["topic", "partition"])
    write_deltalake(tmp_path, rows(3, topic=None), mode="append")
    more = rows(4, value=["v"])
    write_deltalake(tmp_path, more, mode="append", schema_mode="merge")
    assert read(tmp_path, "offset", "value", "topic", "partition") == [
        (1, None, "a b/c", 1), (2, None, "a b/c", 0), (3, None, None, 1), (4, "v", "a b/c", 0),
    ]  # fmt: skip


def test_a_table_without_rows_has_columns(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path, rows(1).schema)
    assert DeltaFolder(str(tmp_path)).schema.names == ["topic", "partition", "offset"]
    assert read(tmp_path) == []


def changed(folder: Path, **values: Any) -> None:
    """The first commit says otherwise what the table is."""
    path = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for kind in line.keys() & values.keys():
            line[kind] |= values[kind]
    path.write_text("\n".join(map(json.dumps, lines)))


def test_what_cannot_be_read_right_is_refused(tmp_path: Path) -> None:
    write_deltalake(tmp_path, rows(1, 2))
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
