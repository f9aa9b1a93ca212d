"""`format("eoslog_noted")`: eoslog whose processes note what they do, for whoever kills them.

The product's own code runs unchanged; Spark's Python processes import this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.sink.batch_writer import BatchWriter
from eoslog.connector.sink.stream_writer import StreamWriter
from tests.kills.kill_query import note_commands, this_is
from tests.kills.kill_steps import Steps

STEPS, OF = "steps", "steps.of"
"""Options: the folder of the notes, and the query."""


def _here(folder: str, of: str, kind: str, step: str) -> None:
    """What this process does. Its kind and query are those of its first call."""
    this_is(Steps.of_process(Path(folder), kind, of), step)
    note_commands()


class _Noted:
    """What both writers share: their driver's part is noted, and each task's rows."""

    def __init__(self, folder: str, of: str) -> None:
        self.folder, self.of = folder, of

    def driver(self, step: str) -> None:
        _here(self.folder, self.of, "planner", f"planner, {step}")

    def rows(self, found: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _here(self.folder, self.of, "worker", "worker, reading")
        for batch in found:
            half = len(batch) // 2
            for piece in (batch.slice(0, half), batch.slice(half)):
                if len(piece):
                    yield piece
                    _here(self.folder, self.of, "worker", "worker, writing")
        _here(self.folder, self.of, "worker", "worker, all rows given, waiting for the brokers")

    def idle(self, kind: str) -> None:
        _here(self.folder, self.of, kind, f"{kind}, between two calls")


class NotedStreamWriter(StreamWriter):
    """The product's writer of micro-batches."""

    def __init__(self, noted: _Noted, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._noted = noted

    def _begin(self) -> Begun | None:
        self._noted.driver("begin")
        try:
            return super()._begin()
        finally:
            self._noted.idle("planner")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(self._noted.rows(iterator))
        _here(self._noted.folder, self._noted.of, "worker", "worker, prepared")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._noted.driver("commit")
        super().commit(messages, batchId)
        self._noted.driver("committed, not noted by Spark")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self._noted.driver("abort")
        super().abort(messages, batchId)
        self._noted.idle("planner")


class NotedBatchWriter(BatchWriter):
    """The product's writer of whole DataFrames."""

    def __init__(self, noted: _Noted, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._noted = noted

    def _begin(self) -> Begun | None:
        self._noted.driver("begin")
        try:
            return super()._begin()
        finally:
            self._noted.idle("planner")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(self._noted.rows(iterator))
        _here(self._noted.folder, self._noted.of, "worker", "worker, prepared")
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._noted.driver("commit")
        super().commit(messages)
        self._noted.driver("committed, not noted by Spark")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._noted.driver("abort")
        super().abort(messages)
        self._noted.idle("planner")


class NotedSource(EoslogDataSource):
    """eoslog under another name."""

    @classmethod
    def name(cls) -> str:
        return "eoslog_noted"

    def _split(self) -> tuple[_Noted, dict[str, str]]:
        given = {name: value for name, value in self.options.items() if name.lower() not in (STEPS, OF)}
        return _Noted(str(self.options[STEPS]), str(self.options[OF])), given

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        _, given = self._split()
        return EoslogDataSource(given).streamReader(schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        noted, given = self._split()
        return NotedStreamWriter(noted, sink_options(given, stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        noted, given = self._split()
        return NotedBatchWriter(noted, sink_options(given, stream=False), schema)
