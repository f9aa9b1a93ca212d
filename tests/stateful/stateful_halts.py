"""The sink with eyes: it stops (SIGSTOP) at a named place of a micro-batch when it is ordered to.

An order is a file in a folder that all processes of an application see, so it can be given while the
application runs. Whoever comes to the place first takes the order, tells its process id and sleeps; what is
killed then, and whether the sleeper goes on, is up to who gave the order. All that is done in between is the
product's own code.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.batch_writer import BatchWriter
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.sink.task_message import reports_of

MIDDLE = "a task in the middle of its rows"
PREPARED = "a task prepared, its report lost"
FINISHED = "all finished, not logged"
OF_TRANSACTIONS = (
    "begun",
    "some winners sealed",
    "before the decision",
    "decided, no winner finished",
    "decided, some winners finished",
)
SAVED = "the state written, not decided"
"""With state.topic."""
EVERYWHERE = (MIDDLE, PREPARED, FINISHED)
"""Places that at_least_once has too."""


class Halts:
    """Both sides of the orders; `folder` is shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def order(self, place: str, batch: int) -> None:
        """Stop at `place` in the first batch from `batch` on that comes to it."""
        self.recall()
        draft = self._folder / "draft"
        draft.write_text(json.dumps({"place": place, "batch": batch}))
        draft.rename(self._folder / "order")

    def recall(self) -> None:
        """Nobody stops any more."""
        for name in ("order", "taken", "stopped"):
            (self._folder / name).unlink(missing_ok=True)

    def stopped(self) -> tuple[int, int] | None:
        """The process that sleeps and its batch, once it does."""
        told = self._folder / "stopped"
        if not told.exists():
            return None
        pid, batch = json.loads(told.read_text())
        return (pid, batch) if _sleeps(pid) else None

    def here(self, place: str, batch: int) -> None:
        """Sleep if it is ordered so."""
        try:
            order = json.loads((self._folder / "order").read_text())
            if order["place"] != place or batch < order["batch"]:
                return
            (self._folder / "order").rename(self._folder / "taken")
        except FileNotFoundError:  # no order, or somebody else was quicker
            return
        draft = self._folder / "telling"
        draft.write_text(json.dumps([os.getpid(), batch]))
        draft.rename(self._folder / "stopped")
        os.kill(os.getpid(), signal.SIGSTOP)


def _sleeps(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except FileNotFoundError:
        return False


def _watched(rows: Iterator[pa.RecordBatch], halts: Halts, batch: int) -> Iterator[pa.RecordBatch]:
    for whole in rows:
        half = len(whole) // 2
        if half:
            yield whole.slice(0, half)
            halts.here(MIDDLE, batch)
        yield whole.slice(half)


def _decides(command: c.Command[Any]) -> bool:
    """Whether this commits the sink's own transaction; the names of participants have a slash."""
    return isinstance(command, c.End) and command.commit and "/" not in command.participants[0].name


def _runner(options: SinkOptions, halts: Halts, batch: int) -> Runner:
    """The product's driver, watched around every request."""
    finished = 0

    def before(command: c.Command[Any]) -> None:
        if _decides(command):
            halts.here("before the decision", batch)

    def after(command: c.Command[Any]) -> None:
        nonlocal finished
        if isinstance(command, c.SaveState):
            halts.here(SAVED, batch)
        if isinstance(command, c.Seal):
            halts.here("some winners sealed", batch)
        if _decides(command):
            halts.here("decided, no winner finished", batch)
        elif isinstance(command, c.End) and command.commit:
            finished += 1
            if finished == 1:
                halts.here("decided, some winners finished", batch)

    timeout = min(OWN_TIMEOUT_MS, options.transaction_timeout_ms)
    return Runner(shared_cluster(options.client), timeout, before=before, after=after)


class HaltingWriter(StreamWriter):
    """The product's writer of micro-batches, watched."""

    def __init__(self, options: SinkOptions, schema: StructType, folder: Path) -> None:
        super().__init__(options, schema)
        self._halts = Halts(folder)

    def _begin(self) -> Begun | None:
        begun = super()._begin()
        if begun is not None and begun.batch is not None:
            self._halts.here("begun", begun.batch.batch_id)
        return begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        message = super().write(_watched(iterator, self._halts, batch))
        self._halts.here(PREPARED, batch)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        runner = _runner(self._options, self._halts, batchId)
        committer.commit_stream(self._options, reports_of(messages), batchId, runner)
        self._halts.here(FINISHED, batchId)


class HaltingBatchWriter(BatchWriter):
    """The product's writer of whole DataFrames, watched; the write's token ends in the number of a batch."""

    def __init__(self, options: SinkOptions, schema: StructType, folder: Path) -> None:
        super().__init__(options, schema)
        self._halts, self._batch = Halts(folder), int((options.write_token or "-0").rpartition("-")[2])

    def _begin(self) -> Begun | None:
        begun = super()._begin()
        self._halts.here("begun", self._batch)
        return begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(_watched(iterator, self._halts, self._batch))
        self._halts.here(PREPARED, self._batch)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        runner = _runner(self._options, self._halts, self._batch)
        committer.commit_batch(self._options, reports_of(messages), runner)
        self._halts.here(FINISHED, self._batch)


class HaltingSource(EoslogDataSource):
    """`format("eoslog_halting")`: eoslog with the option `halts`, the folder of the orders."""

    @classmethod
    def name(cls) -> str:
        return "eoslog_halting"

    def _sink(self, *, stream: bool) -> tuple[SinkOptions, Path]:
        options = {name: value for name, value in self.options.items() if name.lower() != "halts"}
        return sink_options(options, stream=stream), Path(self.options["halts"])

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        options, folder = self._sink(stream=True)
        return HaltingWriter(options, schema, folder)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options, folder = self._sink(stream=False)
        return HaltingBatchWriter(options, schema, folder)
