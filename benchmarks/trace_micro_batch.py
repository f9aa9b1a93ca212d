"""`make trace-micro-batch`: one micro-batch of a small stream; every process is a lane, every call a bar.

The batch is the one of median length among some dozens, from a stream of 1,000 rows a second, copied on
the bundled broker or, with --kafka, on Apache Kafka. Spark's lane is what its progress report tells: its
phases follow one another.

format("eoslog_traced") is eoslog, with a note of each call of Spark's and of each request that it waits for.
Notes go to the file that EOSLOG_TRACE names, one line of JSON each: the process (pyspark's module), what was
called, when it began and ended by this machine's clock, in seconds. Each of Spark's processes that gets a
reader or a writer of this module imports it; there the client's connections note their requests, too.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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


# -- what is noted ---------------------------------------------------------------------------------

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


# -- the picture -----------------------------------------------------------------------------------

BATCHES = 40
_PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
_LANES = {
    "Spark": "Spark (JVM)",
    "pyspark.sql.streaming.python_streaming_source_runner": "source's process",
    "pyspark.sql.worker.write_into_data_source": "sink's planner",
    "pyspark.worker": "tasks",
    "pyspark.sql.worker.python_streaming_sink_runner": "sink's process",
}
_CALL, _REQUEST, _PHASE = "#0b6e4f", "#e2a33c", "#c9d6df"


class Bar(NamedTuple):
    """Something that took time: in which lane, what, from and to in ms since the trigger."""

    lane: str
    what: str
    began_ms: float
    ended_ms: float
    is_request: bool = False


def phases_of(progress: dict[str, Any]) -> tuple[float, list[Bar]]:
    """When the trigger began, in seconds since 1970, and Spark's phases after it."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    bars, at = [], 0.0
    for phase in _PHASES:
        took = float(progress["durationMs"].get(phase, 0))
        bars.append(Bar("Spark", phase, at, at + took))
        at += took
    return began, bars


def bars_of(progress: dict[str, Any], notes: list[dict[str, Any]]) -> list[Bar]:
    """The bars of one micro-batch."""
    began, bars = phases_of(progress)
    length = float(progress["durationMs"]["triggerExecution"])
    for one in notes:
        bar = Bar(one["process"], one["what"], (one["began"] - began) * 1000, (one["ended"] - began) * 1000)
        if bar.ended_ms >= 0 and bar.began_ms <= length:
            bars.append(bar._replace(is_request=one["request"]))
    return bars


def draw(bars: list[Bar], title: str, to: Path) -> None:
    """A picture of them."""
    import matplotlib as mpl  # not in Spark's processes, which import this module too

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "eoslog", "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    lanes = [lane for lane in _LANES if any(bar.lane == lane for bar in bars)]
    figure, axes = plt.subplots(figsize=(11, 0.8 + 0.8 * len(lanes)))
    for bar in bars:
        if bar.lane not in lanes:
            continue
        row = lanes.index(bar.lane)
        color = _PHASE if bar.lane == "Spark" else _REQUEST if bar.is_request else _CALL
        place, height = (row + 0.28, 0.24) if bar.is_request else (row - 0.36, 0.5)
        took = max(bar.ended_ms - bar.began_ms, 0.3)
        axes.broken_barh([(bar.began_ms, took)], (place, height), facecolors=color, edgecolors="white")
        if took > 9 and not bar.is_request:
            axes.text(bar.began_ms + 1, row - 0.1, f"{bar.what} {took:.0f}", fontsize=7, va="center")
    axes.set_yticks(range(len(lanes)), [_LANES[lane] for lane in lanes])
    axes.invert_yaxis()
    axes.set_xlabel("ms since the trigger; below each call the requests that it waits for")
    axes.set_title(title, fontsize=11)
    axes.grid(visible=True, axis="x", alpha=0.3)
    figure.savefig(to, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def told(bars: list[Bar]) -> str:
    """The same as lines of text."""
    ordered = sorted(
        bars, key=lambda bar: (list(_LANES).index(bar.lane) if bar.lane in _LANES else 9, bar.began_ms)
    )
    return "\n".join(
        f"{_LANES.get(bar.lane, bar.lane):18} {'  ' * bar.is_request}{bar.what:24} {bar.began_ms:7.1f} "
        f"to {bar.ended_ms:7.1f}  {bar.ended_ms - bar.began_ms:6.1f} ms"
        for bar in ordered
    )


def main() -> None:
    from benchmarks.spark import Bench
    from benchmarks.spark_works import traced_batches

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--kafka", type=Path, help="Apache Kafka's folder: trace on it, not on the bundled broker"
    )
    parser.add_argument(
        "--light", action="store_true", help="with the checkpoint that docs/starts.md recommends"
    )
    parser.add_argument("--tasks", action="store_true", help="let tasks read (small.batch.max.offsets=0)")
    parser.add_argument("--to", type=Path, default=Path("docs/pictures/micro-batch-trace.svg"))
    given = parser.parse_args()
    with tempfile.NamedTemporaryFile("r", prefix="eoslog-trace-") as notes:
        os.environ[FILE] = notes.name
        with ExitStack() as stack:
            bench = stack.enter_context(Bench(given.kafka or Path(), Path(".peers/spark-kafka-4.2.0")))
            if given.light:
                stack.enter_context(bench.light_checkpoints())
            bench.spark.dataSource.register(Traced)
            more = {"small.batch.max.offsets": "0"} if given.tasks else {}
            on = bench.peer if given.kafka else bench.own
            found = traced_batches(bench, Traced.name(), on, BATCHES, more)
        lines = [json.loads(line) for line in notes]
    found.sort(key=lambda one: float(one["durationMs"]["triggerExecution"]))
    chosen = found[len(found) // 2]
    bars = bars_of(chosen, lines)
    where = "Apache Kafka" if given.kafka else "the bundled broker"
    took = chosen["durationMs"]["triggerExecution"]
    title = f"A micro-batch of {chosen['numInputRows']} rows on {where}: {took} ms"
    print(title, told(bars), sep="\n")
    draw(bars, title, given.to)


if FILE in os.environ:
    _watch_requests()
    _watch_collector()
    _watch_worker()


if __name__ == "__main__":  # Spark's processes know its classes by this name
    importlib.import_module("benchmarks.trace_micro_batch").main()
