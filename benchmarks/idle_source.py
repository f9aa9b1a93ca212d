"""A Python data source that does nothing: what Spark itself takes for a Python source and sink.

Its source makes rows from memory, in as many tasks as the benchmark's topics have partitions; its sink drops
what it gets. Whatever eoslog does, it cannot be faster than this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StructField, StructType

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
_BATCH = 10_000
_TASKS = 4


class Rows(InputPartition):
    """How many rows a task makes, and how large their values are."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows, self.size = rows, size


def made(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Rows with keys of ten bytes, as the reader of a log gives them: key, value."""
    whole = min(rows, _BATCH)
    keys = pa.array([b"k" * 10], pa.binary()).take(pa.array([0] * whole))
    values = pa.array([b"v" * size], pa.binary()).take(pa.array([0] * whole))
    batch = pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])
    for at in range(0, rows, _BATCH):
        yield batch.slice(0, min(_BATCH, rows - at))


class Idle(DataSource):
    """`format("idle")`; options rows (of a task and batch) and size."""

    @classmethod
    def name(cls) -> str:
        return "idle"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return IdleReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return IdleStreamReader(self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return IdleWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return IdleStreamWriter()


class _Reads:
    def __init__(self, options: Any) -> None:
        self.rows, self.size = int(options.get("rows", "0")), int(options.get("size", "100"))

    def tasks(self) -> Sequence[InputPartition]:
        return [Rows(self.rows, self.size) for _ in range(_TASKS)]


class IdleReader(_Reads, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self.tasks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        return made(partition.rows, partition.size)


class IdleStreamReader(_Reads, DataSourceStreamReader):
    """A batch at every trigger."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.at = 0

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]
        self.at += 1
        return {"at": self.at}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self.tasks()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Rows)
        return made(partition.rows, partition.size)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to forget."""

    def stop(self) -> None:
        """Nothing to close."""


class _Drops:
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            continue
        return WriterCommitMessage()

    def commit(self, *messages: Any) -> None:
        """Nothing to do."""

    def abort(self, *messages: Any) -> None:
        """Nothing to do."""


class IdleWriter(_Drops, DataSourceArrowWriter):
    """df.write"""


class IdleStreamWriter(_Drops, DataSourceStreamArrowWriter):
    """df.writeStream"""
