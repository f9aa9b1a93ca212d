"""A folder of Parquet files, or a single one, as Spark reads it.

Names that begin with `_` or `.` are hidden (`_temporary`, `_SUCCESS`), also as folders. Folders `name=value`
are columns (`partitionBy`). If Spark's streaming file sink has written the folder, its log says which files
count: `_spark_metadata` has a file a batch, which names the files of the batch; those of tasks that died stay
in the folder, but are not named. Every tenth file (`spark.sql.streaming.fileSink.log.compactInterval`) is
N.compact and names all files of batches 0..N; older ones may be deleted. A line of JSON each, after a first
line with the log's version (Spark's FileStreamSinkLog and CompactibleFileStreamLog).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from eoslog.audit.table.files import BadTable, TableFile, rows_at_once
from eoslog.connector.checkpoint.files import arrows_uri

_BUFFER = 1 << 18  # bytes; without one, a whole column of a row group is read at once


@dataclass(frozen=True)
class ParquetFile:
    """A file, and how it tells the table's columns."""

    name: str
    open: Callable[[], Any]
    """Its bytes, as a file that can be read anywhere."""
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Columns that have one value for all rows, and are not in the file."""
    stored: Mapping[str, str] = field(default_factory=dict)
    """The file's names of columns that are called otherwise in the table."""

    @contextmanager
    def opened(self) -> Iterator[pq.ParquetFile]:
        """The open file. Raises BadTable, OSError."""
        with self.open() as source:
            try:
                file = pq.ParquetFile(source, buffer_size=_BUFFER, pre_buffer=False)
            except pa.ArrowInvalid as error:
                raise BadTable(f"{self.name} is no Parquet file: {error}") from error
            with file:
                yield file

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all rows, in order. Raises BadTable, OSError."""
        names = {name: self.stored.get(name, name) for name in columns if name not in self.constants}
        with self.opened() as file:
            found = file.metadata
            size = sum(found.row_group(n).total_byte_size for n in range(found.num_row_groups))
            at_once = rows_at_once(found.num_rows, size)
            for batch in file.iter_batches(at_once, columns=list(names.values()), use_threads=False):
                arrays = [
                    batch[names[name]] if name in names else pa.repeat(self.constants[name], batch.num_rows)
                    for name in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


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
                    f"{self._root}/{FOLDER} names {path} with {size} bytes, but it {now}: "
                    "the table is damaged"
                )
        return sorted(named)

    def _named(self, there: dict[str, int]) -> dict[str, int] | None:
        """The files that Spark's sink names; None if it has not written this folder."""
        logs = [path for path in there if path.startswith(f"{FOLDER}/")]
        if not logs:
            return None

        def read(name: str) -> str:
            with self._system.open_input_stream(f"{self._root}/{FOLDER}/{name}") as file:
                return bytes(file.read()).decode()

        return named_files((path.rpartition("/")[2] for path in logs), read, self._root)


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


FOLDER = "_spark_metadata"
_NAME = re.compile(r"(\d+)(\.compact)?")
_VERSION = "v1"


def named_files(names: Iterable[str], read: Callable[[str], str], root: str) -> dict[str, int]:
    """The paths below `root` that the log names, with their sizes in bytes. Raises BadTable.

    `names`: the log's files; `read`: the text of one.
    """
    found: dict[str, int] = {}
    for name in _current(names):
        first, *lines = read(name).splitlines() or [""]
        if first != _VERSION:
            raise BadTable(
                f"{root}/{FOLDER}/{name} begins with {first!r} instead of {_VERSION}: it is damaged, or of a "
                "Spark that eoslog does not know"
            )
        for line in lines:
            _add(line, found, root, f"{root}/{FOLDER}/{name}")
    return found


def _current(names: Iterable[str]) -> list[str]:
    """The log's files to read, in order: the last .compact and what follows."""
    parsed = [found for found in map(_NAME.fullmatch, names) if found]
    compact = max((int(m[1]) for m in parsed if m[2]), default=-1)
    later = sorted(int(m[1]) for m in parsed if not m[2] and int(m[1]) > compact)
    if later != list(range(compact + 1, compact + 1 + len(later))):
        gap = next(n for n, at in enumerate(later, compact + 1) if n != at)
        raise BadTable(f"{FOLDER} has no file for batch {gap}, but for batch {later[-1]}: the log is damaged")
    return [*([f"{compact}.compact"] if compact >= 0 else []), *map(str, later)]


def _add(line: str, found: dict[str, int], root: str, log: str) -> None:
    try:
        entry = json.loads(line)
        path, size, action = unquote(urlsplit(entry["path"]).path), int(entry["size"]), entry["action"]
    except (ValueError, KeyError, TypeError) as error:
        raise BadTable(f"{log}: a line is not an entry of a file ({error}): the log is damaged") from error
    inside = path.removeprefix(root.rstrip("/") + "/")
    if inside == path:
        raise BadTable(
            f"{log} names {path}, which is not in {root}: the folder was moved. Give the path that Spark "
            "wrote to"
        )
    if action == "add":
        found[inside] = size
    elif action == "delete":
        found.pop(inside, None)
    else:
        raise BadTable(f"{log}: the action {action!r} is not known")
