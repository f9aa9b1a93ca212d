"""The sink with appointed places: format("eoslog_probe") writes as "eoslog" does, notes where its tasks and
its driver are, and waits ("wait") or fails ("fail") there if a test asks for it.

The folder in EOSLOG_PROBE holds the orders (orders.json: what to do at a place, in a batch, in a partition
if one is named; only at the first `visits`, by default one for each partition), the notes (notes.jsonl),
and a file for each place whose waiters may go on (go-<place>, or go-<place>-<pid> for one of them). The
sink's own code runs unchanged around it. Without a folder it does nothing.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.client.wire.cluster import shared_cluster
from eoslog.connector.commit import commands as c
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import OWN_TIMEOUT_MS, Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.batch_writer import BatchWriter
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.sink.task_message import reports_of

STARTED = "started"
WRITING = "writing"
"""In a task: the sink has taken its first Arrow batch, and sent it if kafka.max.request.size is small."""
PREPARED = "prepared"
"""In a task: all rows are acknowledged, Spark has no report yet."""
UNDECIDED = "undecided"
"""On the driver: all tasks have reported, commit has not begun."""
DECIDED = "decided"
"""On the driver: the batch is decided, no winner is committed."""

WAIT_SECONDS = 180
"""A waiter that nobody lets go or kills fails after this long."""


class Told(Exception):
    """A failure that a test has asked for."""


def at(place: str, batch: int, partition: int = -1, attempt: int = 0, **more: Any) -> None:
    """Note that a process is at a place, and do there what is ordered."""
    if "EOSLOG_PROBE" not in os.environ:
        return
    folder = Path(os.environ["EOSLOG_PROBE"])
    here = {"at": place, "batch": batch, "partition": partition}
    _note(folder, here | {"attempt": attempt} | more)
    path = folder / "orders.json"
    orders = json.loads(path.read_text()) if path.exists() else []
    for order in orders:
        if here == here | {key: value for key, value in order.items() if key in here}:
            lines = (folder / "notes.jsonl").read_text().splitlines()
            visits = sum(here.items() <= json.loads(line).items() for line in lines)
            if visits <= order.get("visits", 1):
                _obey(folder, place, order["do"])


def _obey(folder: Path, place: str, do: str) -> None:
    if do == "fail":
        raise Told(f"told to fail: {place}")
    deadline = time.monotonic() + WAIT_SECONDS
    names = (f"go-{place}", f"go-{place}-{os.getpid()}")
    while not any((folder / name).exists() for name in names):
        if time.monotonic() > deadline:
            raise Told(f"nobody came to {place} within {WAIT_SECONDS} s")
        time.sleep(0.02)


def _note(folder: Path, note: dict[str, Any]) -> None:
    """A line of its own, whoever else writes: small appends do not mix."""
    parents = psutil.Process().parents()
    jvm = next((process.pid for process in parents if process.name() == "java"), -1)
    line = json.dumps(note | {"pid": os.getpid(), "jvm": jvm, "time": time.time()}) + "\n"
    descriptor = os.open(folder / "notes.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


class _Task:
    """The running task attempt."""

    def __init__(self, batch: int) -> None:
        context = TaskContext.get()
        assert context is not None
        self._where = batch, context.partitionId(), context.attemptNumber()
        self._more = {"task": context.taskAttemptId(), "stage": context.stageId()}

    def at(self, place: str) -> None:
        at(place, *self._where, **self._more)

    def passing(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; the sink asks for the second Arrow batch when it has dealt with the first one."""
        self.at(STARTED)
        for number, batch in enumerate(rows):
            if number == 1:
                self.at(WRITING)
            yield batch


class ProbeStreamWriter(StreamWriter):
    """The sink of micro-batches."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        task = _Task(int(context.getLocalProperty("streaming.sql.batchId") or -1))
        message = super().write(task.passing(iterator))
        task.at(PREPARED)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        at(UNDECIDED, batchId)
        reports = reports_of(messages)
        committer.commit_stream(self._options, reports, batchId, _watched(self._options, batchId))


class ProbeBatchWriter(BatchWriter):
    """The sink of df.write. Batches are counted as the sink counts them: those of a token, from one write to
    the next."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _Task(self._begun.batch.batch_id if self._begun else 0)
        message = super().write(task.passing(iterator))
        task.at(PREPARED)
        return message

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        reports = reports_of(messages)
        batch = next((report.stamp.batch.batch_id for report in reports if report), 0)
        at(UNDECIDED, batch)
        committer.commit_batch(self._options, reports, _watched(self._options, batch))


def _watched(options: SinkOptions, batch: int) -> Runner:
    """A driver that is at DECIDED before it commits its first winner."""
    seen: list[str] = []

    def before(command: c.Command[Any]) -> None:
        if not isinstance(command, c.End) or not command.commit:
            return
        if seen == ["decision"]:
            at(DECIDED, batch)
        seen.append("winner" if seen else "decision")

    cluster = shared_cluster(options.client)
    return Runner(cluster, min(OWN_TIMEOUT_MS, options.transaction_timeout_ms), before=before)


class ProbeSource(EoslogDataSource):
    """format("eoslog_probe")."""

    @classmethod
    def name(cls) -> str:
        return "eoslog_probe"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return ProbeBatchWriter(sink_options(self.options, stream=False), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return ProbeStreamWriter(sink_options(self.options, stream=True), schema)
