"""Spark's part, imitated: its two logs, its order of calls, what it does when something fails.

As MicroBatchExecution of Spark 4.3 does it with a Python source and sink; recordings of the real one are in
recorded/, and test_recordings.py compares.
"""

import json
import logging
import os
import pickle
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from eoslog.connector.checkpoint.checkpoint import Checkpoint
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.source.reader import StreamReader
from eoslog.fanout.batch import carry_out
from eoslog.fanout.rules import Batch as FannedOut
from eoslog.fanout.rules import number_of, other_rows_word
from tests.histories.clock import Clock
from tests.histories.offset_log import ends_of, files_in, is_in, newest, offsets_of, source_name
from tests.histories.processes import Application, Strike, Worker
from tests.histories.reads_ahead import Reads
from tests.histories.sim_connection import Killed
from tests.histories.tables import Persisted, Stepping, TopicPlace

logger = logging.getLogger("eoslog.histories")

SCHEMA = StructType([StructField("value", BinaryType())])
_NAMING = StructType([*SCHEMA.fields, StructField("topic", StringType())])
_JUDGED = StructType([*SCHEMA.fields, StructField("deadletter", StringType())])
TASK_KILL_SECONDS = 2.0
"""spark.python.task.killTimeout."""

Rows = Iterator[pa.RecordBatch]
Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


class Stopped(Exception):
    """query.stop() came in the middle of a batch; the query has ended in order."""


class TaskFailed(Exception):
    """A task died and the job with it."""


class TaskContext:
    """TaskContext in a task."""

    now: "TaskContext | None" = None

    def __init__(self, partition: int, query: str = "", batch: int = 0, run: str = "") -> None:
        """`query`: "": the job is of no micro-batch."""
        self._partition = partition
        given = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
        self._properties = given | {"spark.jobGroup.id": run} if query else {}

    @classmethod
    def get(cls) -> "TaskContext | None":
        return cls.now

    def getLocalProperty(self, name: str) -> str | None:
        return self._properties.get(name)

    def partitionId(self) -> int:
        return self._partition


@dataclass
class Plan:
    """A query as its user starts it: options of source and sink, and where its checkpoint is.

    `token`: the batches go through foreachBatch and df.write, this is their write.token's beginning.
    `told`: checkpointLocation is an option (else: of the session). `mark`: what rows are marked with.
    `source_name`: that of readStream.name(), which makes the offset log's version 2. `ahead`: small batches
    are read as soon as their end is known, else when their rows are wanted. `files`: the query reads these
    with Spark's file source, and what it reads is told by `rows`. `left_out`: the function of foreachBatch
    writes nothing in these batches. `union`: each of its topics has a source of its own.
    `by_rows`: the rows name the topic, and the sink has no such option. `each`: df.write has no token.
    `second`: the function of foreachBatch writes the rows to this topic, too, marked with a plus, except in
    batches of `left_out_second`. `tables`: the batches go to these by a fan-out called `token`, beside the
    topic, and to the places `apart` by another one called `apart_token`; `accept`: the word for the batch
    that may have other rows.
    """

    checkpoint: Path
    source: dict[str, str]
    sink: dict[str, str]
    token: str | None = None
    told: bool = True
    kind: type[EoslogDataSource] = EoslogDataSource
    mark: str = ""
    source_name: str | None = None
    ahead: bool = False
    files: Callable[[], list[str]] | None = None
    left_out: Collection[int] = ()
    union: bool = False
    by_rows: bool = False
    each: bool = False
    second: str | None = None
    left_out_second: Collection[int] = ()
    tables: Mapping[str, Any] = field(default_factory=dict)
    accept: str | None = None
    apart: Collection[str] = ()
    apart_token: str | None = None


@dataclass
class Batch:
    """A micro-batch that a run has planned or found planned."""

    number: int
    begin: dict[str, Any] | None
    end: dict[str, Any] | None
    """None: it was planned when the source had another name."""


@dataclass
class Told:
    """What a harness hears of a run. Called with the batch's number."""

    planned: Callable[[int], None] = lambda _: None
    completed: Callable[[int], None] = lambda _: None
    read: Callable[[int, pa.RecordBatch], pa.RecordBatch] = lambda _, rows: rows


class Stream:
    """One run of a streaming query, from start() to its end."""

    def __init__(self, plan: Plan, app: Application, clock: Clock, told: Told | None = None) -> None:
        self.plan, self.app, self.clock, self.told = plan, app, clock, told or Told()
        self._batch: Batch | None = None
        self._next = 0
        self._committed: dict[str, Any] | None = None
        self._begun = self.until_now = self.busy = False
        plan.checkpoint.mkdir(parents=True, exist_ok=True)
        for name in ("offsets", "commits"):
            (plan.checkpoint / name).mkdir(exist_ok=True)
        if not (plan.checkpoint / "metadata").exists():
            _write(plan.checkpoint / "metadata", json.dumps({"id": str(uuid.uuid4())}))
        self.query_id = str(json.loads((plan.checkpoint / "metadata").read_text())["id"])
        self.run_id = str(uuid.uuid4())
        with app.source.runs():
            made = plan.kind(plan.source)
            reader = made.streamReader(made.schema())
        assert isinstance(reader, StreamReader)
        self.reader = reader
        self.reader._small._thread = Reads(at_once=plan.ahead)  # type: ignore[assignment]

    @property
    def began(self) -> dict[str, dict[str, int]]:
        """Where it began, if this run began it."""
        return self.reader._began or {}

    @property
    def between(self) -> bool:
        """Whether no batch is planned and not complete."""
        return self._batch is None

    # -- MicroBatchExecution --------------------------------------------------------------------

    def trigger(self, strike: Strike | None = None) -> bool:
        """One trigger; whether there was a batch. Raises what the connector raises, Killed, Stopped."""
        self.app.arm(strike)
        self.busy = True
        try:
            if not self._begun:
                self._populate()
            if self._batch is None and not self._construct():
                return False
            assert self._batch is not None
            self._run(self._batch)
            return True
        finally:
            self.busy = False
            self.app.arm(None)

    def available_now(self, strike: Strike | None = None) -> None:
        """Trigger.AvailableNow: batches until all is read that is there at the beginning."""
        self.until_now = True
        while self.trigger(strike):
            strike = None
        self.stop()

    def stop(self) -> None:
        """The end in order, between two batches. Spark ends the source's process without a word to it."""
        self.app.ended = "stopped"

    def _populate(self) -> None:
        self._begun = True
        if self.until_now:
            with self.app.source.runs():
                self.reader.prepareForTriggerAvailableNow()
        planned, completed = (
            newest(self.plan.checkpoint / "offsets"),
            newest(self.plan.checkpoint / "commits"),
        )
        if planned is None:
            return
        end, before = self._logged(planned), self._logged(planned - 1) if planned else None
        if completed == planned:
            self._next, self._committed = planned + 1, before if end is None else end
            return
        self._committed = before
        self._batch = Batch(planned, before, end)

    def _construct(self) -> bool:
        with self.app.source.runs():
            start = self._committed
            if start is None:
                start = self.reader.initialOffset()
            limit = self.reader.getDefaultReadLimit()
            end = _json(self.reader.latestOffset(_json(start), limit))
            self.reader.reportLatestOffset()
        if self._committed is not None and end == self._committed:
            return False
        self._step("before offsets")
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": self.clock.ms, "conf": {}})
        name = source_name(self.plan.checkpoint, self.plan.source_name)
        head, line = ("v1", json.dumps(end)) if name is None else ("v2", f"{name}:{json.dumps(end)}")
        _add(self.plan.checkpoint / "offsets" / str(self._next), f"{head}\n{settings}\n{line}")
        self.told.planned(self._next)
        self._step("after offsets")
        if self._next:
            with self.app.source.runs():
                self.reader.commit(self._committed or {})
        self._batch = Batch(self._next, self._committed, end)
        return True

    def _run(self, batch: Batch) -> None:
        rows: list[Callable[[], Rows]] = []
        with self.app.source.runs():
            begin = self._begins(batch)
            if batch.end is not None and (begin != batch.end or batch.begin is None):
                rows = self._planned(batch.number, begin, batch.end)
        rows = rows or [lambda: iter(())]
        if self.plan.token is not None and self.plan.tables:
            self._fan_out(self.plan.token, batch.number, rows)
        elif self.plan.token is not None:
            self._foreach(self.plan.token, batch.number, rows)
        else:
            options, schema = dict(self.plan.sink), SCHEMA
            if self.plan.told:
                options["checkpointLocation"] = str(self.plan.checkpoint)
            if self.plan.by_rows:
                rows, schema = _with_column(rows, _topics_named(options.pop("topic"))), _NAMING
            if "deadletter.topic" in options:
                rows, schema = _with_column(rows, _judged), _JUDGED
            to = StreamSink(self.app, options, self.plan.kind, self.query_id, batch.number, schema)
            Job(self.app, self.clock, to).run(rows)
        self._step("before commits")
        _add(self.plan.checkpoint / "commits" / str(batch.number), 'v1\n{"nextBatchWatermarkMs":0}')
        self.told.completed(batch.number)
        self._batch, self._next = None, batch.number + 1
        self._committed = self._committed if batch.end is None else batch.end
        self._step("after commits")

    def _foreach(self, token: str, number: int, rows: Sequence[Callable[[], Rows]]) -> None:
        """The function of foreachBatch: a write, or two."""

        def token_of(stem: str) -> dict[str, str]:
            return {} if self.plan.each else {"write.token": f"{stem}-{number}"}

        if number not in self.plan.left_out:
            self._write(number, token_of(token), rows)
        if self.plan.second is not None and number not in self.plan.left_out_second:
            self._step("between writes")
            self._write(number, {"topic": self.plan.second, **token_of(f"{token}+")}, _plus(rows))

    def _write(self, batch: int, more: dict[str, str], rows: Sequence[Callable[[], Rows]]) -> None:
        """df.write of foreachBatch."""
        within = (self.query_id, batch, self.run_id)
        Job(self.app, self.clock, BatchSink(self.app, self.plan.sink | more, self.plan.kind, within)).run(
            rows
        )

    def _fan_out(self, name: str, number: int, rows: Sequence[Callable[[], Rows]]) -> None:
        """As eoslog.fanout.fanout does it."""
        checkpoint = Checkpoint.at(str(self.plan.checkpoint))
        ends = checkpoint.planned(number).ends
        checkpoint.sync_planned(number)
        topic = TopicPlace(self.app, self.plan.sink, lambda token, held: self._write(number, token, held))
        given = Persisted(self.app, rows)
        for own, called in ((False, name), (True, self.plan.apart_token)):
            tables = [
                Stepping(table, self._step)
                for kind, table in self.plan.tables.items()
                if (kind in self.plan.apart) == own
            ]
            topics = [topic] if ("topic" in self.plan.apart) == own else []
            if called is not None and (tables or topics):
                batch = FannedOut(called, number_of(self.query_id), number, ends)
                carry_out(
                    batch,
                    given.through,
                    tables,
                    topics,
                    other_rows=self.plan.accept == other_rows_word(batch),
                )

    def _begins(self, batch: Batch) -> Any:
        """Where a batch begins. Spark asks the source anew if it is the first."""
        if batch.begin is None and batch.end is not None:
            return _json(self.reader.initialOffset())
        return batch.begin

    def _planned(self, number: int, begin: Any, end: Any) -> list[Callable[[], Rows]]:
        """What each task reads; one has the rows, if they have come with the plan."""
        parts = list(self.reader.partitions(begin, end))
        if not isinstance(self.reader, _SimpleStreamReaderWrapper):
            options = pickle.dumps(self.reader.options)
            return [self._rows(number, options, part) for part in parts]
        (_,), found = parts, list(self.reader.getCache(begin, end) or ())
        return [lambda: (self.told.read(number, rows) for rows in found)]

    def _rows(self, number: int, reader: bytes, part: Any) -> Callable[[], Rows]:
        def read() -> Rows:
            for rows in StreamReader(pickle.loads(reader)).read(part):
                yield self.told.read(number, rows)

        return read

    def _step(self, what: str) -> None:
        self.app.step(None, what)
        if self.app.dead:
            raise Killed

    def _logged(self, number: int) -> dict[str, Any] | None:
        """Where the source stands in a batch of the offset log. None: it has another name there."""
        path = self.plan.checkpoint / "offsets" / str(number)
        name = source_name(self.plan.checkpoint, self.plan.source_name)
        return offsets_of(path.read_text()) if path.exists() and is_in(path.read_text(), name) else None


class FileStream(Stream):
    """A run of a query that reads files: FileStreamSource, with its log in sources/0. Its end is the number
    of that log's last entry, which names the files."""

    @property
    def began(self) -> dict[str, dict[str, int]]:
        """Nowhere in a topic."""
        return {}

    def _populate(self) -> None:
        self._begun = True
        planned, completed = newest(self._logs("offsets")), newest(self._logs("commits"))
        if planned is None:
            return
        before = self._logged(planned - 1) if planned else None
        if completed == planned:
            self._next, self._committed = planned + 1, self._logged(planned)
            return
        self._committed, self._batch = before, Batch(planned, before, self._logged(planned))

    def _construct(self) -> bool:
        assert self.plan.files is not None
        log = self._logs("sources/0")
        log.mkdir(parents=True, exist_ok=True)
        seen = {name for path in log.iterdir() for name in files_in(path)}
        new = [name for name in self.plan.files() if name not in seen]
        last = newest(log)
        if new:
            last = 0 if last is None else last + 1
            entries = [json.dumps({"path": name, "timestamp": 0, "batchId": last}) for name in new]
            _add(log / str(last), "\n".join(["v1", *entries]))
        end = None if last is None else {"logOffset": last}
        if end is None or end == self._committed:
            return False
        self._step("before offsets")
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": self.clock.ms, "conf": {}})
        line = json.dumps(end, separators=(",", ":"))  # as the JVM writes it
        _add(self._logs("offsets") / str(self._next), f"v1\n{settings}\n{line}")
        self.told.planned(self._next)
        self._step("after offsets")
        self._batch = Batch(self._next, self._committed, end)
        return True

    def _planned(self, number: int, begin: Any, end: Any) -> list[Callable[[], Rows]]:
        first = -1 if begin is None else begin["logOffset"]
        entries = [self._logs("sources/0") / str(at) for at in range(first + 1, end["logOffset"] + 1)]
        names = [name for path in entries for name in files_in(path)]

        def rows(mine: list[str]) -> Rows:
            yield self.told.read(number, pa.record_batch({"value": [name.encode() for name in mine]}))

        return [lambda mine=names[at::2]: rows(mine) for at in range(min(2, len(names)))]  # type: ignore[misc]

    def _begins(self, batch: Batch) -> Any:
        return batch.begin

    def _logs(self, name: str) -> Path:
        return self.plan.checkpoint / name


class UnionStream(Stream):
    """A run of a query with a source for each topic, and their union. Each end is a list, a source each."""

    def __init__(self, plan: Plan, app: Application, clock: Clock, told: Told | None = None) -> None:
        super().__init__(plan, app, clock, told)
        self.readers: list[StreamReader] = []
        for topic in plan.source["subscribe"].split(","):
            starting = of_topic(plan.source["startingOffsets"], topic)
            with app.source.runs():
                made = plan.kind({**plan.source, "subscribe": topic, "startingOffsets": starting})
                reader = made.streamReader(made.schema())
            assert isinstance(reader, StreamReader)
            reader._small._thread = Reads(at_once=plan.ahead)  # type: ignore[assignment]
            self.readers.append(reader)

    @property
    def began(self) -> dict[str, dict[str, int]]:
        """Where it began, if this run began it."""
        return {topic: ends for reader in self.readers for topic, ends in (reader._began or {}).items()}

    def _populate(self) -> None:
        self._begun = True
        if self.until_now:
            with self.app.source.runs():
                for reader in self.readers:
                    reader.prepareForTriggerAvailableNow()
        planned, completed = (newest(self.plan.checkpoint / log) for log in ("offsets", "commits"))
        if planned is None:
            return
        before = self._ends(planned - 1) if planned else None
        if completed == planned:
            self._next, self._committed = planned + 1, self._ends(planned)
        else:
            self._committed, self._batch = before, Batch(planned, before, self._ends(planned))

    def _construct(self) -> bool:
        stood: list[Any] = self._committed or [None] * len(self.readers)  # type: ignore[assignment]
        ends: list[Any] = []
        with self.app.source.runs():
            for reader, start in zip(self.readers, stood, strict=True):
                begin = reader.initialOffset() if start is None else start
                end = _json(reader.latestOffset(_json(begin), reader.getDefaultReadLimit()))
                reader.reportLatestOffset()
                ends.append(end)
        if self._committed is not None and ends == stood:
            return False
        self._step("before offsets")
        settings = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": self.clock.ms, "conf": {}})
        _add(
            self.plan.checkpoint / "offsets" / str(self._next),
            "\n".join(["v1", settings, *map(json.dumps, ends)]),
        )
        self.told.planned(self._next)
        self._step("after offsets")
        if self._next:
            with self.app.source.runs():
                for reader, start in zip(self.readers, stood, strict=True):
                    reader.commit(start or {})
        self._batch = Batch(self._next, self._committed, ends)  # type: ignore[arg-type]
        return True

    def _begins(self, batch: Batch) -> Any:
        stood: list[Any] = batch.begin or [None] * len(self.readers)  # type: ignore[assignment]
        pairs = zip(self.readers, stood, strict=True)
        return [_json(reader.initialOffset()) if start is None else start for reader, start in pairs]

    def _planned(self, number: int, begin: Any, end: Any) -> list[Callable[[], Rows]]:
        rows: list[Callable[[], Rows]] = []
        for reader, first, last in zip(self.readers, begin, end, strict=True):
            if last is not None and first != last:
                self.reader = reader
                rows += super()._planned(number, first, last)
        return rows

    def _ends(self, number: int) -> Any:
        path = self.plan.checkpoint / "offsets" / str(number)
        return ends_of(path.read_text()) if path.exists() else None


def of_topic(starting: str, topic: str) -> str:
    """startingOffsets of a source that reads one of the topics."""
    if not starting.startswith("{"):
        return starting
    given = json.loads(starting)
    own = {key: ends for key, ends in given.items() if key == topic or topic in key.split(":")[1:2]}
    rest = {key: ends for key, ends in given.items() if key.startswith("cluster-id:")}
    return json.dumps(own | rest)


# -- a job that writes --------------------------------------------------------------------------


Column = tuple[str, pa.StringArray]


def _with_column(
    rows: Sequence[Callable[[], Rows]], column: Callable[[pa.RecordBatch], Column]
) -> list[Callable[[], Rows]]:
    """Each task's rows, with a column more."""

    def wider(read: Callable[[], Rows]) -> Callable[[], Rows]:
        return lambda: (batch.append_column(*column(batch)) for batch in read())

    return [wider(read) for read in rows]


def _topics_named(topic: str) -> Callable[[pa.RecordBatch], Column]:
    """Each row names the topic."""
    return lambda batch: ("topic", pa.array([topic] * batch.num_rows, pa.string()))


def _judged(batch: pa.RecordBatch) -> Column:
    """Every other record's row is a dead letter."""
    wrong = [int(value.rpartition(b"/")[2]) % 2 for value in batch.column("value").to_pylist()]
    return "deadletter", pa.array(["odd" if one else None for one in wrong], pa.string())


def _plus(rows: Sequence[Callable[[], Rows]]) -> list[Callable[[], Rows]]:
    """Each task's rows, marked with a plus."""

    def marked(read: Callable[[], Rows]) -> Callable[[], Rows]:
        return lambda: (
            pa.record_batch(
                {"value": [one.replace(b":", b"+:", 1) for one in batch.column("value").to_pylist()]}
            )
            for batch in read()
        )

    return [marked(read) for read in rows]


class StreamSink:
    """The writer of a micro-batch, as Spark makes it: one for the tasks, another one for commit or abort."""

    def __init__(
        self,
        app: Application,
        options: dict[str, str],
        kind: type[EoslogDataSource],
        query: str,
        batch: int,
        schema: StructType = SCHEMA,
    ) -> None:
        self.app, self.options, self.kind, self.query, self.batch = app, options, kind, query, batch
        self.schema = schema

    def plan(self) -> bytes:
        with self.app.planner(self.batch).runs():
            return pickle.dumps(self.kind(self.options).streamWriter(self.schema, False))

    def context(self, partition: int) -> TaskContext:
        return TaskContext(partition, self.query, self.batch)

    def commit(self, pickled: bytes, messages: list[WriterCommitMessage | None]) -> None:
        with self.app.committer.runs():
            self.kind(self.options).streamWriter(self.schema, False).commit(messages, self.batch)

    def abort(self, pickled: bytes, messages: list[WriterCommitMessage | None]) -> None:
        with Worker(self.app, "abort").runs():
            self.kind(self.options).streamWriter(self.schema, False).abort(messages, self.batch)


class BatchSink:
    """The writer of df.write: the same pickle goes to the tasks, to commit and to abort. `within`: query,
    batch and run of the foreachBatch that makes it."""

    def __init__(
        self,
        app: Application,
        options: dict[str, str],
        kind: type[EoslogDataSource] = EoslogDataSource,
        within: tuple[str, int, str] = ("", 0, ""),
    ) -> None:
        self.app, self.options, self.kind, self.within = app, options, kind, within

    def plan(self) -> bytes:
        with self.app.planner(0).runs():
            return pickle.dumps(self.kind(self.options).writer(SCHEMA, False))

    def context(self, partition: int) -> TaskContext:
        return TaskContext(partition, *self.within)

    def commit(self, pickled: bytes, messages: list[WriterCommitMessage | None]) -> None:
        with self.app.committer.runs():
            pickle.loads(pickled).commit(messages)

    def abort(self, pickled: bytes, messages: list[WriterCommitMessage | None]) -> None:
        with Worker(self.app, "abort").runs():
            pickle.loads(pickled).abort(messages)


class Job:
    """WriteToDataSourceV2: plan, tasks, commit; abort if a task or the commit fails.

    A strike of kind "copy" is spark.speculation: the first task has a copy that comes to its end before the
    commit, or after it (`more` even); nobody hears of either.
    """

    def __init__(self, app: Application, clock: Clock, sink: StreamSink | BatchSink) -> None:
        self.app, self.clock, self.sink = app, clock, sink
        self._stopping = False
        self._committing: tuple[bytes, list[WriterCommitMessage | None]] | None = None
        self._abort_meanwhile = False

    def run(self, rows: Sequence[Callable[[], Rows]]) -> None:
        """Raises what the connector raises, Killed, Stopped."""
        strike = self.app.strike
        if strike is not None and strike.kind == "stop":
            strike.act, self._abort_meanwhile = self._stop, bool(strike.more % 2)
        pickled = self.sink.plan()
        if self._is_stopping():
            raise self._ended()
        messages: list[WriterCommitMessage | None] = [None] * len(rows)
        begun = 0
        try:
            for number, mine in enumerate(rows):
                begun = number + 1
                if strike is not None and strike.kind == "stop" and self.app.strike is strike:
                    self._stoppable(pickled, messages, number, rows, strike)
                else:
                    messages[number] = self._task(pickled, number, mine, self.app.worker(number))
            self._committing = pickled, messages
            copied = strike if strike is not None and strike.kind == "copy" else None
            if copied is not None and copied.more % 2:
                self._task(pickled, 0, rows[0], Worker(self.app, "task"))
            self.sink.commit(pickled, messages)
            if copied is not None and not copied.more % 2:
                self._task(pickled, 0, rows[0], Worker(self.app, "task"))
        except Stopped:
            raise
        except Killed:
            if self.app.dead:
                raise
            self._abort_beside(pickled, messages, rows, begun, strike)
            raise TaskFailed("a task was killed") from None
        except Exception:
            self._abort_beside(pickled, messages, rows, begun, strike)
            raise
        if self._stopping:
            if not self._abort_meanwhile:
                self._abort(pickled, messages)
            raise self._ended()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _abort(self, pickled: bytes, messages: list[WriterCommitMessage | None]) -> None:
        self.app.arm(None)
        try:
            self.sink.abort(pickled, messages)
        except Exception:  # Spark logs it and goes on with the first error
            logger.warning("abort failed", exc_info=True)

    def _abort_beside(
        self, pickled: bytes, messages: list[WriterCommitMessage | None],
        rows: Sequence[Callable[[], Rows]], begun: int, strike: Strike | None,
    ) -> None:  # fmt: skip
        """A task has failed: the others have begun beside it, and die while abort is called."""
        tasks = self._begun(pickled, rows, range(begun, len(rows)))
        self._outlive(pickled, messages, tasks, strike.more if strike else 0)

    def _begun(
        self, pickled: bytes, rows: Sequence[Callable[[], Rows]], numbers: Iterable[int]
    ) -> list["_Dying"]:
        """Tasks that run beside another one."""
        tasks = [self._dying(pickled, at, rows, Worker(self.app, "task")) for at in numbers]
        for task in tasks:
            task.one_step(self.app)
        return tasks

    def _task(
        self, pickled: bytes, number: int, rows: Callable[[], Rows], worker: Worker
    ) -> WriterCommitMessage:
        with worker.runs():
            kept, TaskContext.now = TaskContext.now, self.sink.context(number)
            try:
                message: WriterCommitMessage = pickle.loads(pickled).write(rows())
                copied: WriterCommitMessage = pickle.loads(pickle.dumps(message))
                return copied
            finally:
                TaskContext.now = kept

    # -- query.stop() in the middle -------------------------------------------------------------

    def _stop(self) -> None:
        """In begin or commit, which the Python process carries to its end; Spark may call abort meanwhile."""
        self._stopping = True
        if self._committing and self._abort_meanwhile:
            self._abort(*self._committing)

    def _ended(self) -> Stopped:
        self.app.ended = "stopped"
        return Stopped()

    def _stoppable(
        self, pickled: bytes, messages: list[WriterCommitMessage | None], number: int,
        rows: Sequence[Callable[[], Rows]], strike: Strike,
    ) -> None:  # fmt: skip
        """A task that stop() may meet: Spark calls abort while it lives on, for 2 s at most.

        It runs in a thread of its own, and only when nobody else does.
        """
        dying = self._dying(pickled, number, rows, self.app.worker(number))
        strike.act, strike.kind = dying.pause, "stopped"
        try:
            if dying.until_paused():
                messages[number] = dying.result()
                return
            others = range(number + 1, len(rows))
            self._outlive(pickled, messages, [dying, *self._begun(pickled, rows, others)], strike.more)
            raise self._ended()
        finally:
            strike.act, strike.kind = self._stop, "stop"

    def _dying(
        self, pickled: bytes, number: int, rows: Sequence[Callable[[], Rows]], worker: Worker
    ) -> "_Dying":
        return _Dying(lambda: self._task(pickled, number, rows[number], worker), worker)

    def _outlive(
        self,
        pickled: bytes,
        messages: list[WriterCommitMessage | None],
        tasks: Sequence["_Dying"],
        steps: int,
    ) -> None:
        """Abort is called; meanwhile and afterwards each task does so many steps, until it is killed."""
        until, passed = self.clock.now + TASK_KILL_SECONDS, self.clock.passed
        left, busy = dict.fromkeys(tasks, steps), False

        def step(task: "_Dying") -> bool:
            nonlocal busy
            if busy or task.over or left[task] <= 0 or self.clock.now >= until:
                return False
            busy, left[task] = True, left[task] - 1
            task.one_step(self.app)
            busy = False
            return True

        def meanwhile() -> None:
            passed()
            if self.clock.now >= until and not busy:
                for task in tasks:
                    task.kill(self.app)
            for task in tasks:
                step(task)

        self.clock.passed = meanwhile
        try:
            self._abort(pickled, messages)
        finally:
            self.clock.passed = passed
        for task in tasks:
            while step(task):
                continue
            task.kill(self.app)


class _Dying:
    """Something that is done a step at a time, in a thread that runs only when it is let."""

    def __init__(self, work: Callable[[], WriterCommitMessage], worker: Worker) -> None:
        self.worker, self._work = worker, work
        self._mine, self._yours = threading.Semaphore(0), threading.Semaphore(0)
        self._answer: WriterCommitMessage | BaseException | None = None
        self.over = self._killed = False
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._begun = False

    def _go(self) -> None:
        self._mine.acquire()
        try:
            self._answer = self._work()
        except BaseException as error:
            self._answer = error
        self.over = True
        self._yours.release()

    def pause(self) -> None:
        """Called in its thread at a step: the others go on."""
        kept = _swap_out()
        self._yours.release()
        self._mine.acquire()
        _swap_in(kept)
        if self._killed:
            raise Killed

    def until_paused(self) -> bool:
        """Run it; whether it came to its end."""
        self._resume()
        return self.over

    def one_step(self, app: Application) -> None:
        """Let it go to its next step."""
        if not self.over:
            app.arm(Strike("step", 1, act=self.pause))
            self._resume()
            app.arm(None)

    def kill(self, app: Application) -> None:
        """SIGKILL."""
        self._killed = self.worker.dead = True
        if self._begun and not self.over:
            app.arm(None)
            self._resume()

    def result(self) -> WriterCommitMessage:
        """Its report; raises what it raised."""
        assert self._answer is not None
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer

    def _resume(self) -> None:
        if not self._begun:
            self._begun = True
            self._thread.start()
        kept = _swap_out()
        self._mine.release()
        self._yours.acquire()
        _swap_in(kept)


def _swap_out() -> tuple[Any, ...]:
    from eoslog.connector.run import run_memory
    from tests.histories.processes import _FRESH
    from tests.histories.sim_connection import Network

    modules = {(module, name): getattr(module, name) for module, name, _ in _FRESH}
    streams = run_memory.streams_now, run_memory.stream_lives
    return modules, run_memory.driver_token, streams, Network.process, TaskContext.now


def _swap_in(kept: tuple[Any, ...]) -> None:
    from eoslog.connector.run import run_memory
    from tests.histories.sim_connection import Network

    modules, run_memory.driver_token, streams, Network.process, TaskContext.now = kept
    run_memory.streams_now, run_memory.stream_lives = streams
    for (module, name), value in modules.items():
        setattr(module, name, value)


# -- files --------------------------------------------------------------------------------------


def _add(path: Path, text: str) -> None:
    """To one of the logs, where no other run of the query has been: HDFSMetadataLog.add."""
    if path.exists():
        raise TaskFailed(f"{path.parent.name}/{path.name} is there: two runs use this checkpoint")
    _write(path, text)


def _write(path: Path, text: str) -> None:
    """With the time of the history as the file's own."""
    path.write_text(text)
    os.utime(path, (time.time(), time.time()))


def _json(value: Any) -> dict[str, Any]:
    """Through Spark, as text."""
    found: dict[str, Any] = json.loads(json.dumps(value))
    return found
