"""A batch's rows: what runs in tasks, and what comes back to the driver, which is never the rows
themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from eoslog.fanout.rules import Content

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HASH = "__eoslog_hash"
"""A column with a hash of each row, made by Spark, that goes to the tasks but not into the files."""
MODULUS = 2**63
_OUT = pa.schema([("file", pa.binary()), ("rows", pa.int64()), ("checksum", pa.int64())])
_OUT_DDL = "file binary, rows long, checksum long"


class FileWriter(Protocol):
    """Writes the rows of a task to data files."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows without HASH."""

    def close(self) -> list[bytes]:
        """What the driver needs to know of each file, which is complete now."""


class Staged(NamedTuple):
    """Files that are written and in no table yet, each as its writer describes it."""

    files: list[bytes]
    content: Content


class Rows(Protocol):
    """The rows of a batch, as a target wants them."""

    @property
    def schema_json(self) -> str:
        """The columns, as Spark's JSON."""

    def stage(self, writer: Callable[[], FileWriter]) -> Staged:
        """Write them in tasks, each with a writer of its own; of a task that ran twice, one attempt
        counts."""


class Nothing:
    """A writer that writes nothing: to count alone."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows that are already there."""

    def close(self) -> list[bytes]:
        """No file."""
        return []


def run_task(batches: Iterator[pa.RecordBatch], writer: FileWriter) -> pa.RecordBatch:
    """Write a task's rows, and count them: a row for each file, and a last one with the sums."""
    rows = checksum = 0
    for batch in batches:
        if not len(batch):
            continue
        rows += len(batch)
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
        checksum = (checksum + int(hashes.view("uint64").sum())) % MODULUS
        writer.add(batch.drop_columns([HASH]))
    files = writer.close()
    counted = [(one, 0, 0) for one in files] + [(None, rows, checksum)]
    columns = [
        pa.array(column, field.type) for column, field in zip(zip(*counted, strict=True), _OUT, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_OUT)


class SparkRows:
    """The rows of a DataFrame."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame

    def through(self, transform: Callable[[DataFrame], DataFrame] | None) -> Self:
        """These rows, as a target's transform makes them."""
        return self if transform is None else type(self)(transform(self.frame))

    @property
    def schema_json(self) -> str:
        """The columns, as Spark's JSON."""
        return str(self.frame.schema.json())

    def stage(self, writer: Callable[[], FileWriter]) -> Staged:
        """Write them by `mapInArrow`."""

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield run_task(batches, writer())

        hashed = self.frame.select("*", _hash(self.frame).alias(HASH))
        told = hashed.mapInArrow(task, _OUT_DDL).collect()
        content = Content(sum(one[1] for one in told), sum(one[2] for one in told) % MODULUS)
        return Staged([bytes(one[0]) for one in told if one[0] is not None], content)


def _hash(frame: DataFrame) -> Column:
    """A hash of each row. Spark hashes no maps and variants: their JSON; it skips nulls: their places too."""
    from pyspark.sql import functions as f

    columns: list[Column] = []
    for field in frame.schema.fields:
        column = frame[f"`{field.name}`"]
        unhashable = any(kind in field.dataType.simpleString() for kind in ("map<", "variant"))
        columns += [f.to_json(f.struct(column)) if unhashable else column, column.isNull()]
    return f.xxhash64(*columns)


def same_value(column: pa.Array, value: object) -> pa.Array:
    """Which entries have the value; null is one."""
    return (
        pc.is_null(column)
        if value is None
        else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
    )
