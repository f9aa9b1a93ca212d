"""Data files of an Iceberg table, written by a task with pyiceberg: its partitions, statistics and field
ids."""

from __future__ import annotations

import itertools
import pickle
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from eoslog.fanout.extras import library

ENOUGH_BYTES = 64 * 2**20
"""Of rows in memory, before a file is written."""


class IcebergFiles:
    """A task's writer. Nobody reads its files before a commit names them."""

    def __init__(self, metadata: Any, io: Any, columns: pa.Schema) -> None:
        """`metadata`, `io`: of the pyiceberg table; `columns`: the rows', with their times in UTC."""
        self._metadata, self._io, self._columns = metadata, io, columns
        self._uuid, self._counter = uuid4(), itertools.count()
        self._rows: list[pa.RecordBatch] = []
        self._files: list[bytes] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Keep rows, and write a file when they are many."""
        self._rows.append(rows)
        if sum(one.nbytes for one in self._rows) >= ENOUGH_BYTES:
            self._write()

    def close(self) -> list[bytes]:
        """Write the last file: a pickled DataFile each."""
        self._write()
        return self._files

    def _write(self) -> None:
        if not self._rows:
            return
        files_of = library("pyiceberg.io.pyarrow", "iceberg")._dataframe_to_data_files
        table = pa.Table.from_batches(self._rows).cast(self._columns)
        found = files_of(self._metadata, table, self._io, self._uuid, self._counter)
        self._files += [pickle.dumps(one) for one in found]
        self._rows = []


class ChangeFiles:
    """A task's writer of changes, for the driver: one file."""

    def __init__(self, location: str, io: Any, columns: pa.Schema) -> None:
        """`location` begins the file's name."""
        self._path, self._io, self._columns = f"{location}-{uuid4()}.parquet", io, columns
        self._open: tuple[Any, pq.ParquetWriter] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Write rows."""
        if self._open is None:
            stream = self._io.new_output(self._path).create()
            self._open = stream, pq.ParquetWriter(stream, self._columns)
        self._open[1].write_table(pa.Table.from_batches([rows]).cast(self._columns))

    def close(self) -> list[bytes]:
        """Close the file: its path."""
        if self._open is None:
            return []
        stream, writer = self._open
        writer.close()
        stream.close()
        return [self._path.encode()]
