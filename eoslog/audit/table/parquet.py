"""A folder of Parquet files, or a single one, as Spark reads it.

Names that begin with `_` or `.` are hidden (`_temporary`, `_SUCCESS`), also as folders. Folders `name=value`
are columns (`partitionBy`). If Spark's streaming file sink has written the folder, its log says which files
count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from eoslog.audit.table import spark_log
from eoslog.audit.table.files import BadTable, TableFile
from eoslog.audit.table.parquet_file import ParquetFile
from eoslog.connector.checkpoint.files import arrows_uri

_NULL = "__HIVE_DEFAULT_PARTITION__"


class ParquetFolder:
    """The files that are there when it is opened. Raises BadTable, OSError."""

    def __init__(self, name: str) -> None:
        self._system, self._root = _system(name)
        paths = self._paths(name)
        self.version = f"parquet:{name}"
        self.files: list[TableFile] = []
        self._stored: list[ParquetFile] = []
        self.schema = pa.schema([])
        for path in paths:
            self._open(path)

    def batches(self, number: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """As Table says."""
        return self._stored[number].batches(columns)

    def _open(self, path: str) -> None:
        whole = f"{self._root}/{path}"
        constants = {name: pa.scalar(value, pa.string()) for name, value in _folders(path).items()}
        stored = ParquetFile(whole, partial(self._system.open_input_file, whole), constants)
        with stored.opened() as file:
            folders = [pa.field(column, pa.string()) for column in constants]
            schema = pa.schema([*(f for f in file.schema_arrow if f.name not in constants), *folders])
            self.files.append(TableFile(path, file.metadata.num_rows))
        if self._stored and not _same(schema, self.schema):
            raise BadTable(
                f"{path} has other columns ({_listed(schema)}) than {self.files[0].name} "
                f"({_listed(self.schema)}): audit files of one schema"
            )
        self.schema = schema
        self._stored.append(stored)

    def _paths(self, name: str) -> list[str]:
        """The files that count, below the root, sorted."""
        (root,) = self._system.get_file_info([self._root])
        if root.type == fs.FileType.NotFound:
            raise BadTable(f"parquet:{name}: there is no such folder or file")
        if root.type == fs.FileType.File:
            self._root, _, file = self._root.rpartition("/")
            return [file]
        there = {
            info.path.removeprefix(f"{self._root}/"): info.size
            for info in self._system.get_file_info(fs.FileSelector(self._root, recursive=True))
            if info.type == fs.FileType.File
        }
        named = self._named(there)
        if named is None:
            return sorted(path for path in there if not _hidden(path))
        for path, size in named.items():
            if there.get(path) != size:
                now = f"has {there[path]}" if path in there else "is not there"
                raise BadTable(
                    f"{self._root}/{spark_log.FOLDER} names {path} with {size} bytes, but it {now}: "
                    "the table is damaged"
                )
        return sorted(named)

    def _named(self, there: dict[str, int]) -> dict[str, int] | None:
        """The files that Spark's sink names; None if it has not written this folder."""
        logs = [path for path in there if path.startswith(f"{spark_log.FOLDER}/")]
        if not logs:
            return None

        def read(name: str) -> str:
            with self._system.open_input_stream(f"{self._root}/{spark_log.FOLDER}/{name}") as file:
                return bytes(file.read()).decode()

        return spark_log.named_files((path.rpartition("/")[2] for path in logs), read, self._root)


def _system(name: str) -> tuple[fs.FileSystem, str]:
    if "://" not in name and not name.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(name).absolute())
    try:
        system, root = fs.FileSystem.from_uri(arrows_uri(name))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadTable(f"parquet:{name}: {error}. Give a path, or a URI as s3://bucket/folder") from error
    return system, root.rstrip("/")


def _hidden(path: str) -> bool:
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) or part.endswith("._COPYING_")
        for part in path.split("/")
    )


def _folders(path: str) -> dict[str, str | None]:
    """The columns that the folders of a path tell, as Spark escapes them."""
    pairs = (part.partition("=") for part in path.split("/")[:-1])
    return {
        unquote(name): None if value == _NULL else unquote(value) for name, equals, value in pairs if equals
    }


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    return {f.name: f.type for f in one} == {f.name: f.type for f in other}


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
