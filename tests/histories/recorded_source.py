"""The data source with a diary: every call of Spark is noted, with what its two logs hold then.

Real Spark (record_spark.py) and its imitation (spark.py) run the same source: their diaries can be compared.
Options beside the connector's: diary.file, diary.checkpoint, and diary.strike ("kill <call> <n>", "fail write
<n>", "wait write <n>"): what happens at a call's n-th time in a life.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink.batch_writer import BatchWriter
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.source.reader import StoredOffset, StreamReader
from eoslog.connector.spark.versions import ReadLimit


def die(diary: Path) -> None:
    """Ask to be killed, and wait for that."""
    Path(f"{diary}.kill").touch()
    time.sleep(600)


def stay() -> None:
    """Wait for query.stop()."""
    time.sleep(600)


wait: list[Callable[[], None]] = [stay]
"""How a task stands still."""
end: list[Callable[[Path], None]] = [die]
"""How a process dies; the imitation has another way."""


class Diary:
    """Where calls are noted."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {name.lower(): value for name, value in options.items()}
        self.file, self.checkpoint = Path(given["diary.file"]), Path(given["diary.checkpoint"])
        self.strike = given.get("diary.strike", "").split()

    def note(self, call: str, *told: Any) -> None:
        """A call, with the newest batches in Spark's logs."""
        logs = [_newest(self.checkpoint / log) for log in ("offsets", "commits")]
        line = json.dumps([call, *logs, *told])
        with self.file.open("a") as file:
            file.write(f"{line}\n")
        if self.strike[1:2] == [call] and int(self.strike[2]) == self._times(call):
            self._strike()

    def _times(self, call: str) -> int:
        lines = [json.loads(line)[0] for line in self.file.read_text().splitlines()]
        life = lines[max((n for n, name in enumerate(lines) if name == "life"), default=-1) + 1 :]
        return life.count(call)

    def _strike(self) -> None:
        kind = self.strike[0]
        if kind == "kill":
            end[0](self.file)
        if kind == "fail":
            raise RuntimeError("a task fails")
        if kind == "wait":
            wait[0]()


def _newest(folder: Path) -> int:
    found = folder.iterdir() if folder.exists() else ()
    return max((int(path.name) for path in found if path.name.isdecimal()), default=-1)


def _plain(offset: Mapping[str, Any]) -> dict[str, Any]:
    """Offsets without ids, which differ."""
    return {topic: parts for topic, parts in offset.items() if ":" not in topic}


class RecordedReader(StreamReader):
    """A reader with a diary."""

    diary: Diary

    def initialOffset(self) -> StoredOffset:
        self.diary.note("initialOffset")
        return super().initialOffset()

    def prepareForTriggerAvailableNow(self) -> None:
        self.diary.note("prepareForTriggerAvailableNow")
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> StoredOffset:
        self.diary.note("latestOffset", _plain(start))
        return super().latestOffset(start, limit)

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        self.diary.note("partitions", _plain(start), _plain(end))
        return super().partitions(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        self.diary.note("commit of the source", _plain(end))
        super().commit(end)

    def stop(self) -> None:
        self.diary.note("stop")
        super().stop()


class RecordedWriter(StreamWriter):
    """A writer of micro-batches with a diary."""

    diary: Diary

    def _begin(self) -> Begun | None:
        self.diary.note("begin")
        return super()._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.diary.note("write")
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.diary.note("commit", batchId, len(messages))
        super().commit(messages, batchId)
        self.diary.note("committed")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        self.diary.note("abort", batchId, len(messages))
        super().abort(messages, batchId)


class RecordedBatchWriter(BatchWriter):
    """A writer of DataFrames with a diary."""

    diary: Diary

    def _begin(self) -> Begun | None:
        self.diary.note("begin")
        return super()._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.diary.note("write")
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.diary.note("commit", len(messages))
        super().commit(messages)
        self.diary.note("committed")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self.diary.note("abort", len(messages))
        super().abort(messages)


class RecordedSource(EoslogDataSource):
    """format("recorded")."""

    @classmethod
    def name(cls) -> str:
        return "recorded"

    def _connectors(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if not name.lower().startswith("diary.")}

    def streamReader(self, schema: StructType) -> StreamReader:
        reader = RecordedReader(source_options(self._connectors(), stream=True))
        reader.diary = Diary(self.options)
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        writer = RecordedWriter(sink_options(self._connectors(), stream=True), schema)
        writer.diary = Diary(self.options)
        return writer

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        writer = RecordedBatchWriter(sink_options(self._connectors(), stream=False), schema, False)
        writer.diary = Diary(self.options)
        return writer
