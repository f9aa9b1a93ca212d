"""format("eoslog_traced"): eoslog, with a note of each call of Spark's and of each request that it waits
for.

Notes go to the file that EOSLOG_TRACE names, one line of JSON each: the process (pyspark's module), what
was called, when it began and ended by this machine's clock, in seconds. Each of Spark's processes that gets
a reader or a writer of this module imports it; there the client's connections note their requests, too.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, DataSourceStreamWriter, InputPartition
from pyspark.sql.types import StructType

from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.source.reader import StreamReader
from eoslog.protocol.apis import APIS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage

FILE = "EOSLOG_TRACE"
_RUNS = {
    "latestOffset": "pyspark.sql.streaming.python_streaming_source_runner",
    "partitions": "pyspark.sql.streaming.python_streaming_source_runner",
    "begin": "pyspark.sql.worker.write_into_data_source",
    "read": "pyspark.worker",
    "write": "pyspark.worker",
    "commit": "pyspark.sql.worker.python_streaming_sink_runner",
}
"""Which of Spark's modules makes a call: a process that was forked does not tell."""
_here = ["pyspark.worker"]


def note(what: str, began: float, *, is_request: bool = False) -> None:
    """Something that began then has ended now. Small appends do not mix."""
    line = {"process": _here[0], "what": what, "began": began, "ended": time.time(), "request": is_request}
    with open(os.environ[FILE], "a") as file:
        file.write(json.dumps(line) + "\n")


def noted(what: str, call: Callable[..., Any], *given: Any) -> Any:
    """The call's result, with a note of it."""
    _here[0] = _RUNS[what]
    began = time.time()
    try:
        return call(*given)
    finally:
        note(what, began)


def pieces(what: str, of: Iterator[Any]) -> Iterator[Any]:
    """The same pieces, with a note from the first to the last of them."""
    _here[0] = _RUNS[what]
    began = time.time()
    yield from of
    note(what, began)


class TracedReader(StreamReader):
    """The source's process; `read` runs in tasks."""

    def latestOffset(self, *given: Any) -> Any:
        """As StreamReader has it."""
        return noted("latestOffset", super().latestOffset, *given)

    def partitions(self, *given: Any) -> Any:
        """As StreamReader has it."""
        return noted("partitions", super().partitions, *given)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As StreamReader has it."""
        return pieces("read", super().read(partition))


class TracedWriter(StreamWriter):
    """The planner's process begins, tasks write, the sink's process commits."""

    def _begin(self) -> Begun | None:
        begun: Begun | None = noted("begin", super()._begin)
        return begun

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """As StreamWriter has it."""
        report: WriterCommitMessage = noted("write", super().write, iterator)
        return report

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """As StreamWriter has it."""
        noted("commit", super().commit, messages, batchId)


class Traced(EoslogDataSource):
    """eoslog under another name."""

    @classmethod
    def name(cls) -> str:
        """The name given to format()."""
        return "eoslog_traced"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """As EoslogDataSource has it."""
        return TracedReader(source_options(self.options, stream=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """As EoslogDataSource has it."""
        return TracedWriter(sink_options(self.options, stream=True), schema)


def _watch_requests() -> None:
    send, receive = BrokerConnection._send, BrokerConnection._receive
    began: dict[tuple[int, int], float] = {}

    def timed_send(self: BrokerConnection, *given: Any) -> int:
        now = time.time()
        number = send(self, *given)
        began[id(self), number] = now
        return number

    def timed_receive(self: BrokerConnection, deadline: float) -> Any:
        pending, frame = receive(self, deadline)
        note(APIS[pending.api].name, began.pop((id(self), pending.correlation_id)), is_request=True)
        return pending, frame

    BrokerConnection._send, BrokerConnection._receive = timed_send, timed_receive  # type: ignore[method-assign, assignment]


def _watch_worker() -> None:
    """Of Spark's own work in a task's process: reading what to run."""
    worker = sys.modules.get("pyspark.worker")
    if worker is None:
        return
    receiver = worker.SparkSocketMessageReceiver
    init, data = receiver.get_init_message, receiver.get_data_stream
    began = [0.0]

    def timed_init(self: Any) -> Any:
        message = init(self)
        began[0] = time.time()
        return message

    def timed_data(self: Any) -> Any:
        note("what to run", began[0])
        return data(self)

    receiver.get_init_message, receiver.get_data_stream = timed_init, timed_data


def _watch_collector() -> None:
    """PySpark's daemon has each worker collect all garbage after each call."""
    began = [0.0]

    def noted_collection(phase: str, about: dict[str, int]) -> None:
        if about["generation"] < 2:
            return
        if phase == "start":
            began[0] = time.time()
        else:
            note("garbage collection", began[0])

    gc.callbacks.append(noted_collection)


if FILE in os.environ:
    _watch_requests()
    _watch_collector()
    _watch_worker()
