"""Parquet files of a Delta table, written by a task: streamed, one for each task and partition of the
table."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from eoslog.errors import OptionError
from eoslog.fanout.extras import library
from eoslog.fanout.rows import same_value


class DeltaFiles:
    """A task's writer. Its files lie in the table's folder: nobody reads them before a commit names them."""

    def __init__(
        self, uri: str, options: Mapping[str, str], columns: pa.Schema, partitions: Sequence[str], prefix: str
    ) -> None:
        """`columns`: the table's; `prefix` begins the files' names."""
        handler = library("deltalake.fs", "delta").DeltaStorageHandler(uri, dict(options))
        self._files = pafs.PyFileSystem(handler)
        self._schema = columns
        self._partitions, self._prefix = partitions, prefix
        inside = [column for column in self._schema if column.name not in partitions]
        self._inside = pa.schema(inside)
        self._open: dict[tuple[object, ...], tuple[str, Any, pq.ParquetWriter, list[int]]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows to the file of each one's partition."""
        table = pa.Table.from_batches([rows]).select(self._schema.names)
        if not self._partitions:
            self._write((), table)
            return
        keys = table.select(list(self._partitions)).group_by(list(self._partitions)).aggregate([]).to_pylist()
        for key in keys:
            values = tuple(key[name] for name in self._partitions)
            part = table
            for name, value in zip(self._partitions, values, strict=True):
                part = part.filter(same_value(part.column(name), value))
            self._write(values, part)

    def close(self) -> list[bytes]:
        """Close the files: an `add` action each."""
        return [self._closed(values, *file) for values, file in self._open.items()]

    def _write(self, values: tuple[object, ...], rows: pa.Table) -> None:
        if values not in self._open:
            path = f"{self._prefix}-{uuid4()}.parquet"
            stream = self._files.open_output_stream(path)
            self._open[values] = (
                path,
                stream,
                pq.ParquetWriter(stream, self._inside, compression="snappy"),
                [0],
            )
        _, _, writer, count = self._open[values]
        writer.write_table(rows.select(self._inside.names).cast(self._inside))
        count[0] += len(rows)

    def _closed(
        self, values: tuple[object, ...], path: str, stream: Any, writer: pq.ParquetWriter, count: list[int]
    ) -> bytes:
        writer.close()
        size = stream.tell()
        stream.close()
        action = {
            "path": path,
            "size": size,
            "partition_values": dict(zip(self._partitions, map(_text, values), strict=True)),
            "modification_time": int(time.time() * 1000),
            "data_change": True,
            "stats": json.dumps({"numRecords": count[0]}),
        }
        return json.dumps(action).encode()


def _text(value: object) -> str | None:
    """A partition's value, as Delta's protocol writes it ("Partition Value Serialization")."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | date) and not hasattr(value, "hour"):
        return str(value)
    raise OptionError(
        f"a Delta table partitioned by values like {value!r}: texts, whole numbers, dates and booleans "
        f"are supported"
    )
