"""The data source as people use it, with steps that can be struck: a request about to leave, an answer that
is there, a line of Spark's logs. They have the names that those of the imitation have (processes.py).

Option beside the connector's: history.folder, of one run of a query or of a write. In it lie
    steps        what every process of the application did, a line each
    strike.json  what happens at which step; struck: it did
    held, woken  a process stands still, and goes on
    stop         query.stop() is asked for
    waiting      how many triggers the query has asked for; granted: how many it may do
    read         which records the tasks of a batch have read; began: where the query began
"""

import json
import os
import signal
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import InputPartition, WriterCommitMessage
from pyspark.sql.types import StructType

from eoslog.client.wire.connection import BrokerConnection
from eoslog.connector.commit.task_reports import Begun
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.options.sink_options import sink_options
from eoslog.connector.options.source_options import source_options
from eoslog.connector.sink.batch_writer import BatchWriter
from eoslog.connector.sink.stream_writer import StreamWriter
from eoslog.connector.source.reader import StoredOffset, StreamReader
from eoslog.connector.spark.versions import ReadLimit
from eoslog.protocol.apis import ApiKey
from eoslog.protocol.schema import Message
from tests.histories.sessions import kill_session

WIDTH = 256
"""Of a line of steps: where one ends tells how many there were."""
LOOK = 0.01
HELD_SECONDS = 900.0
STOP_STEP_SECONDS = 0.05
"""How long a task goes on beside query.stop(), for each step that it gets in the imitation."""


class Here:
    """Which run of which query this process works for just now, and as what."""

    folder: ClassVar[Path | None] = None
    kind: ClassVar[str] = ""


def enter(folder: str, kind: str) -> None:
    """From now on steps are those of this run."""
    Here.folder, Here.kind = Path(folder), kind


def step(what: str, of: str = "") -> None:
    """Note it, and be struck if that is told."""
    if Here.folder is None:
        return
    name = f"{Here.kind}: {what}"
    line = f"{time.time():.3f}\t{name}\t{of}"[: WIDTH - 1].ljust(WIDTH - 1) + "\n"
    file = os.open(Here.folder / "steps", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
        number = os.lseek(file, 0, os.SEEK_CUR) // WIDTH
    finally:
        os.close(file)
    told = Here.folder / "strike.json"
    if told.exists():
        strike = json.loads(told.read_text())
        if _is_there(strike, name, number) and _is_first(Here.folder / "struck", name):
            _strike(strike, Here.folder)


def steps(folder: Path) -> list[tuple[float, str, str]]:
    """All steps so far: when, what, of which transaction."""
    path = folder / "steps"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(float(at), name, of.strip()) for at, name, of in (line.split("\t") for line in lines)]


def _is_there(strike: Mapping[str, Any], name: str, number: int) -> bool:
    if strike["kind"] == "task" and Here.kind != "task":
        return False
    if isinstance(strike["at"], int):
        return number - int(strike["base"]) >= strike["at"]
    assert Here.folder is not None
    wanted, times = strike["at"]
    done = [what for _, what, _ in steps(Here.folder)[strike["base"] : number]]
    return bool(name == wanted and done.count(wanted) >= times)


def _is_first(path: Path, name: str) -> bool:
    try:
        with path.open("x") as file:
            file.write(name)
    except FileExistsError:
        return False
    return True


def _strike(strike: Mapping[str, Any], folder: Path) -> None:
    if strike["kind"] == "kill":
        kill_session(os.getsid(0))
    elif strike["kind"] == "task":
        os.kill(os.getpid(), signal.SIGKILL)
    elif strike["kind"] == "stop":
        (folder / "stop").touch()
        time.sleep(strike["more"] * STOP_STEP_SECONDS)
    elif strike["kind"] == "hold":
        (folder / "held").touch()
        until = time.monotonic() + HELD_SECONDS
        while not (folder / "woken").exists() and time.monotonic() < until:
            time.sleep(LOOK)


# -- requests and answers -----------------------------------------------------------------------


class _Stepping:
    """Connections whose requests and answers are steps."""

    send, receive = BrokerConnection.send, BrokerConnection.receive


def _send(
    self: BrokerConnection, api: ApiKey, body: Message, version: int | None = None, *, answered: bool = True
) -> int:
    of = str(body.get("transactional_id") or body.get("v3_and_below_transactional_id") or "")
    step(f"before {api.name}", of)
    number = _Stepping.send(self, api, body, version, answered=answered)
    if answered:
        vars(self).setdefault("_told", deque()).append((api.name, of))
    return number


def _receive(self: BrokerConnection, timeout_ms: float | None = None) -> Message:
    answer: Message = _Stepping.receive(self, timeout_ms)
    name, of = vars(self)["_told"].popleft()
    step(f"after {name}", of)
    return answer


BrokerConnection.send, BrokerConnection.receive = _send, _receive  # type: ignore[method-assign,assignment]


# -- what Spark calls ---------------------------------------------------------------------------


class HistoryReader(StreamReader):
    """A reader whose triggers are let through one by one."""

    folder: str
    gated: bool
    _asked = 0
    _ran = False

    def initialOffset(self) -> StoredOffset:
        enter(self.folder, "source")
        began = super().initialOffset()
        put(Path(self.folder) / "began", json.dumps(began))
        return began

    def prepareForTriggerAvailableNow(self) -> None:
        enter(self.folder, "source")
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: Mapping[str, Mapping[str, int]], limit: ReadLimit) -> StoredOffset:
        enter(self.folder, "source")
        if self._ran:
            Here.kind = "spark"
            step("after commits")
            Here.kind = "source"
        self._ran = False
        if self.gated and not self._let_through():
            return {name: dict(parts) for name, parts in start.items()}
        return super().latestOffset(start, limit)

    def _let_through(self) -> bool:
        """Wait for the next trigger; False: the query shall stop."""
        folder = Path(self.folder)
        self._asked += 1
        put(folder / "waiting", str(self._asked))
        while True:
            if (folder / "ending").exists():
                time.sleep(LOOK)
                return False
            if number(folder / "granted") >= self._asked:
                return True
            time.sleep(LOOK)

    def partitions(self, start: StoredOffset, end: StoredOffset) -> Sequence[InputPartition]:
        enter(self.folder, "spark")
        self._ran = True
        step("after offsets")
        Here.kind = "source"
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        enter(self.folder, "task")
        context = TaskContext.get()
        batch = context.getLocalProperty("streaming.sql.batchId") if context else None
        for rows in super().read(partition):
            uids = [value.decode() for value in rows.column("value").to_pylist()]
            with (Path(self.folder) / "read").open("a") as file:
                file.write(json.dumps([int(batch or 0), uids]) + "\n")
            yield rows


class HistoryWriter(StreamWriter):
    """A writer of micro-batches."""

    folder: str

    def _begin(self) -> Begun | None:
        enter(self.folder, "plan")
        return super()._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        enter(self.folder, "task")
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        enter(self.folder, "commit")
        super().commit(messages, batchId)
        Here.kind = "spark"
        step("before commits")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        enter(self.folder, "abort")
        super().abort(messages, batchId)


class HistoryBatchWriter(BatchWriter):
    """A writer of DataFrames."""

    folder: str

    def _begin(self) -> Begun | None:
        enter(self.folder, "plan")
        return super()._begin()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        enter(self.folder, "task")
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        enter(self.folder, "commit")
        super().commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        enter(self.folder, "abort")
        super().abort(messages)


class HistorySource(EoslogDataSource):
    """format("history")."""

    @classmethod
    def name(cls) -> str:
        return "history"

    def _connectors(self) -> dict[str, str]:
        return {
            name: value for name, value in self.options.items() if not name.lower().startswith("history.")
        }

    def _told(self, name: str) -> str:
        return {key.lower(): value for key, value in self.options.items()}[f"history.{name}"]

    def streamReader(self, schema: StructType) -> HistoryReader:
        enter(self._told("folder"), "source")
        reader = HistoryReader(source_options(self._connectors(), stream=True))
        reader.folder, reader.gated = self._told("folder"), self._told("gated") == "yes"
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> HistoryWriter:
        writer = HistoryWriter(sink_options(self._connectors(), stream=True), schema)
        writer.folder = self._told("folder")
        return writer

    def writer(self, schema: StructType, overwrite: bool) -> HistoryBatchWriter:
        writer = HistoryBatchWriter(sink_options(self._connectors(), stream=False), schema, False)
        writer.folder = self._told("folder")
        return writer


def number(path: Path) -> int:
    """What is in a file, 0 while there is none."""
    return int(path.read_text() or 0) if path.exists() else 0


def put(path: Path, text: str) -> None:
    """At once, for who looks meanwhile."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.rename(path)
