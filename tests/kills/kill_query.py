"""Queries without Spark: real processes for a driver and its tasks, a checkpoint in Spark's layout, and the
product's own reader and writers, called in Spark's order. No JVM, so one can be killed many times a minute.

A `stream` copies its source by the streaming sink; a job of `tokens` does what `foreachBatch` does: each
micro-batch is a batch write with a `write.token`. Each row gets a header that says whose it is.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from eoslog.connector.commit import commands as c
from eoslog.connector.data_source import EoslogDataSource
from eoslog.connector.offsets import plan
from eoslog.connector.run.runner import Runner
from eoslog.connector.spark.columns import source_schema
from eoslog.connector.spark.versions import ReadMaxRows
from tests.kills.kill_steps import Steps

BATCH = 200
"""maxOffsetsPerTrigger."""
MARK = "of"
"""The header that says which query has written a row."""
ATTEMPTS = 4
PAUSE = 0.05
"""Between two looks for new rows."""
LOOK = 0.1
"""How often the driver looks whether it shall stop in mid-batch."""
DYING = 1.0
"""Seconds that tasks may outlive their batch by, when it failed."""
SECOND_COPY = 0.05
"""How often a task gets a copy that runs beside it."""

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(
    [
        "eoslog.connector.sink.batch_writer",
        "eoslog.connector.sink.stream_writer",
        "eoslog.connector.data_source",
        "pandas",
    ]
)
_forks = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Job:
    """A query as its user has set it up. `ways`: the brokers' addresses for its driver and its tasks."""

    name: str
    kind: str  # stream, tokens; spark-stream, spark-dedup, spark-tokens
    source: str
    target: str
    group: str
    ways: tuple[str, str]
    folder: Path
    options: dict[str, str] = field(default_factory=dict)
    harm: str = ""  # what is broken on purpose (kill_harms.py)

    @property
    def has_group(self) -> bool:
        """Whether its source offsets are committed with each batch."""
        return not self.kind.endswith("tokens")

    @property
    def steps(self) -> Path:
        """Where its processes note what they do."""
        return self.folder / "steps"


@dataclass(frozen=True)
class Life:
    """One run of a job's driver. `clock`: by how many seconds its wall clock is wrong."""

    checkpoint: Path
    starting: str = "earliest"
    seed: int = 0
    clock: float = 0.0


# -- starting one -----------------------------------------------------------------------------


class Running:
    """A driver that was started."""

    def __init__(self, job: Job, life: Life) -> None:
        self.job, self.life = job, life
        self._answers, there = FORKSERVER.Pipe(duplex=False)
        self.process: BaseProcess = FORKSERVER.Process(target=_drive, args=(job, life, there))
        self.process.start()
        there.close()

    @property
    def ended(self) -> str | None:
        """How it ended: "stopped", "killed", or what it raised. None while it runs."""
        if self.process.exitcode is None:
            return None
        with contextlib.suppress(EOFError):
            if self._answers.poll():
                return str(self._answers.recv())
        code = self.process.exitcode
        if code in (-signal.SIGTERM, -signal.SIGUSR1):
            return "stopped"  # before it listened to signals, which is its first step: it has done nothing
        return "killed" if code == -signal.SIGKILL else f"exit {code}"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGTERM stops it after its batch, SIGUSR1 in mid-batch."""
        if self.process.exitcode is None and self.process.pid is not None:
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        self.process.kill()
        self.process.join()


# -- the driver -------------------------------------------------------------------------------


class _Stopped(BaseException):
    """The user's query.stop(), in the middle of a batch."""


class _Query:
    """What one driver process knows."""

    def __init__(self, job: Job, life: Life, steps: Steps) -> None:
        self.job, self.steps, self.checkpoint = job, steps, life.checkpoint
        self.draw = Random(life.seed)
        self.over = self.now = False
        made = source_of(job, job.ways[0], {"startingOffsets": life.starting})
        self.reader = made.streamReader(made.schema())
        self.id = _query_id(self.checkpoint)
        self.reports: list[Any] = []

    # -- Spark's logs -------------------------------------------------------------------------

    def newest(self, log: str) -> int:
        return newest(self.checkpoint, log)

    def offset(self, batch: int) -> dict[str, Any]:
        text = (self.checkpoint / "offsets" / str(batch)).read_text()
        found: dict[str, Any] = json.loads(text.splitlines()[2])
        return found

    def start_of(self, batch: int) -> dict[str, Any]:
        return self.offset(batch - 1) if batch else self.reader.initialOffset()

    # -- the batches --------------------------------------------------------------------------

    def run(self) -> None:
        """As MicroBatchExecution: replay what is planned and not noted, then plan and run."""
        planned, done = self.newest("offsets"), self.newest("commits")
        if planned > done:
            self.batch(planned)
        while not self.over:
            self.steps.note("driver, between two batches")
            batch = self.newest("commits") + 1
            start = self.start_of(batch)
            self.steps.note("driver, planning")
            end = self.reader.latestOffset(start, ReadMaxRows(BATCH))
            if batch and json.dumps(end) == json.dumps(start):
                self.steps.note("driver, waiting for rows")
                time.sleep(PAUSE)
                continue
            _log(self.checkpoint / "offsets" / str(batch), f"v1\n{{}}\n{json.dumps(end)}")
            self.batch(batch)

    def batch(self, batch: int) -> None:
        """Tasks, and commit or abort."""
        self.steps.note("driver, planned")
        ranges = list(self.reader.partitions(self.start_of(batch), self.offset(batch)))
        ranges = ranges or [plan.Range("", 0, 0, 0)]  # Spark runs one task at least
        writer = self.writer(batch)
        this_is(self.steps, "driver, begin")
        pickled = pickle.dumps(writer)
        self.steps.note("driver, tasks run")
        messages: list[Any] = [None] * len(ranges)
        tasks = Tasks(self, batch, pickled, ranges, messages)
        try:
            tasks.run()
            this_is(self.steps, "driver, commit")
            self.commit(pickled, messages, batch)
        except (Exception, _Stopped):
            this_is(self.steps, "driver, abort")
            self.abort(pickled, messages, batch)
            tasks.end()
            raise
        self.steps.note("driver, finished, not noted")
        _log(self.checkpoint / "commits" / str(batch), "v1\n{}")

    def writer(self, batch: int) -> Any:
        return writer_of(self.job, self.job.ways[0], self.checkpoint, self.id, batch)

    def commit(self, pickled: bytes, messages: list[Any], batch: int) -> None:
        """Spark makes a writer anew for a stream, and takes the pickled one of a batch write."""
        if self.job.kind == "stream":
            self.writer(batch).commit(messages, batch)
        else:
            pickle.loads(pickled).commit(messages)

    def abort(self, pickled: bytes, messages: list[Any], batch: int) -> None:
        if self.job.kind == "stream":
            self.writer(batch).abort(messages, batch)
        else:
            pickle.loads(pickled).abort(messages)


def source_of(job: Job, bootstrap: str, more: dict[str, str]) -> EoslogDataSource:
    """`spark.readStream.format("eoslog")` with the job's options."""
    return EoslogDataSource(
        {
            "kafka.bootstrap.servers": bootstrap, "subscribe": job.source, "includeHeaders": "true",
            "kafka.isolation.level": "read_committed", "kafka.group.id": job.group, **clients(job), **more,
        }
    )  # fmt: skip


def clients(job: Job) -> dict[str, str]:
    """The options of the job that its source has too."""
    own = ("kafka.request.timeout.ms", "kafka.default.api.timeout.ms", "transactional.id")
    return {name: value for name, value in job.options.items() if name in own}


def writer_of(job: Job, bootstrap: str, checkpoint: Path, query: str, batch: int) -> Any:
    """The job's writer of a micro-batch, or of its batch write."""
    options = {"kafka.bootstrap.servers": bootstrap, "topic": job.target, **job.options}
    if job.kind == "stream":
        options |= {"checkpointLocation": str(checkpoint), "kafka.group.id": job.group}
        made = EoslogDataSource(options)
        return made.streamWriter(_schema(), False)
    token = {"write.token": f"{query[:8]}-{batch}"}
    return EoslogDataSource(options | token).writer(_schema(), False)


def _schema() -> Any:
    whole = source_schema(True)
    from pyspark.sql.types import StructType

    return StructType([column for column in whole if column.name in ("key", "value", "headers")])


def newest(checkpoint: Path, log: str) -> int:
    """The newest batch of a log; -1: none."""
    with contextlib.suppress(FileNotFoundError):
        return max((int(n) for n in os.listdir(checkpoint / log) if n.isdecimal()), default=-1)
    return -1


def _query_id(checkpoint: Path) -> str:
    place = checkpoint / "metadata"
    checkpoint.mkdir(exist_ok=True)
    if not place.exists():
        draft = checkpoint / f".{os.getpid()}"
        draft.write_text(json.dumps({"id": str(uuid.uuid4())}))
        with contextlib.suppress(FileExistsError):
            os.link(draft, place)
        draft.unlink()
    return str(json.loads(place.read_text())["id"])


def _log(path: Path, text: str) -> None:
    """Add to a log as Spark does: whole or not at all, and never over another driver's entry."""
    path.parent.mkdir(exist_ok=True)
    draft = path.parent / f".{path.name}.{os.getpid()}"
    draft.write_text(text)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise RuntimeError(f"Concurrent update to the log: another driver has written {path.name}") from None
    finally:
        draft.unlink()


def _drive(job: Job, life: Life, answers: Connection) -> None:
    os.setpgid(0, 0)
    os.environ["PYTHON_WORKER_FACTORY_SECRET"] = uuid.uuid4().hex  # a driver of its own
    steps = Steps(job.steps, "driver", job.name)
    this_is(steps, "driver, starting")
    note_commands()
    if job.harm:
        from tests.kills.kill_harms import HARMS

        HARMS[job.harm]()
    if life.clock:
        real = time.time
        time.time = lambda: real() + life.clock
    try:
        _until_stopped(_Query(job, life, steps))
        answers.send("stopped")
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")
    finally:
        steps.over()


def _until_stopped(query: _Query) -> None:
    def after_the_batch(*_: Any) -> None:
        query.over = True

    def now(*_: Any) -> None:
        query.over = query.now = True

    signal.signal(signal.SIGTERM, after_the_batch)
    signal.signal(signal.SIGUSR1, now)
    with contextlib.suppress(_Stopped):
        query.run()
    query.reader.stop()


# -- what it does, step by step ---------------------------------------------------------------


@dataclass
class _Me:
    """This process, as its notes tell it."""

    steps: Steps | None = None
    part: str = "starting"


_me = _Me()


def this_is(steps: Steps, part: str) -> None:
    """From now on this process is `part`, a driver's step or a task."""
    _me.steps, _me.part = steps, part
    steps.note(part)


def commits() -> bool:
    """Whether this process is a driver in its commit."""
    return _me.part == "driver, commit"


def _note(step: str) -> None:
    if _me.steps is not None:
        _me.steps.note(f"{_me.part}: {step}")


def note_commands() -> None:
    """Note each command of the commit protocol, once a process; what is under way together stays so."""
    real = Runner._do
    if getattr(real, "notes", False):
        return

    def noting(self: Runner, command: c.Command[Any]) -> Any:
        _note(_name(command))
        return real(self, command)

    noting.notes = True  # type: ignore[attr-defined]
    Runner._do = noting  # type: ignore[method-assign]


def _name(command: c.Command[Any]) -> str:
    if isinstance(command, c.End):
        if not command.commit:
            return "aborts what is left over"
        decides = not any("/" in participant.name for participant in command.participants)
        return "decides" if decides else "finishes the winners"
    return _NAMES.get(type(command), type(command).__name__)


_NAMES: dict[type[Any], str] = {
    c.Acquire: "acquires a transaction",
    c.FetchStored: "reads the last decision",
    c.StageOffsets: "stages",
    c.Seal: "seals",
    c.AskOngoing: "asks what is open",
    c.ListOngoing: "lists what is open",
    c.Describe: "describes transactions",
    c.CommitOffsets: "notes a token",
    c.AwaitMarkers: "waits for markers",
    c.FindHeld: "asks partitions what is held open",
    c.FindOwn: "asks for its own markers",
    c.WriteMarkers: "writes markers",
    c.TransactionVersion: "asks for the cluster's rules",
}


# -- the tasks --------------------------------------------------------------------------------


class Tasks:
    """Attempts of the tasks of a batch, in processes of their own, until each has reported."""

    def __init__(
        self, query: _Query, batch: int, pickled: bytes, ranges: list[Any], messages: list[Any]
    ) -> None:
        self._query, self._batch, self._pickled = query, batch, pickled
        self._ranges, self._messages = ranges, messages
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}
        self._attempts = [0] * len(ranges)

    def run(self) -> None:
        """Until all have reported. Raises what a task raised, and where one has failed four times."""
        for number in range(len(self._ranges)):
            self._start(number)
            if self._query.draw.random() < SECOND_COPY:
                self._start(number)
        while None in self._messages:
            if self._query.now:
                raise _Stopped
            for one in wait(list(self._running), LOOK):
                self._heard(one)  # type: ignore[arg-type]
        if self._query.draw.random() < 0.5:
            self.kill()  # copies that are too late; the others find that out by themselves

    def end(self) -> None:
        """The batch has failed: Spark calls abort first, and its tasks die some time later."""
        if self._running:
            time.sleep(self._query.draw.uniform(0, DYING))
            self.kill()

    def kill(self) -> None:
        """SIGKILL to those that still run."""
        for answers, (_, process) in self._running.items():
            process.kill()
            process.join()
            answers.close()
        self._running.clear()

    def _start(self, number: int) -> None:
        here, there = _forks.Pipe(duplex=False)
        arguments = (self._query, self._batch, self._pickled, self._ranges[number], number, there)
        process = _forks.Process(target=_attempt, args=arguments)
        process.start()
        there.close()
        self._running[here] = (number, process)
        self._attempts[number] += 1

    def _heard(self, answers: Connection) -> None:
        number, process = self._running[answers]
        try:
            answer: Any = answers.recv()
        except EOFError:
            answer = None  # killed
        del self._running[answers]
        answers.close()
        process.join()
        if self._messages[number] is not None:
            return
        if answer is not None and not isinstance(answer, Exception):
            self._messages[number] = answer
        elif not any(other == number for other, _ in self._running.values()):
            if self._attempts[number] >= ATTEMPTS:
                raise answer or RuntimeError(f"task {number} was killed {ATTEMPTS} times")
            self._start(number)


def _attempt(
    query: _Query, batch: int, pickled: bytes, wanted: Any, number: int, answers: Connection
) -> None:
    job = query.job
    for name in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(name, signal.SIG_DFL)
    steps = Steps(job.steps, "task", job.name)
    this_is(steps, "task, written")
    steps.note("task, starting")
    try:
        context = TaskContext._getOrCreate()
        context._partitionId = number
        context._localProperties = {"sql.streaming.queryId": query.id, "streaming.sql.batchId": str(batch)}
        own = writer_of(job, job.ways[1], query.checkpoint, query.id, batch)
        writer = pickle.loads(pickled)
        writer._options = own._options
        source = source_of(job, job.ways[1], {})
        found = source.streamReader(source.schema()).read(wanted)
        message = writer.write(_watched(_marked(found, job.name), steps))
        steps.note("task, prepared, its report not sent")
        with contextlib.suppress(BrokenPipeError):  # its driver is dead
            answers.send(message)
    except Exception as error:
        with contextlib.suppress(BrokenPipeError):
            answers.send(_plain(error))
    finally:
        steps.over()
        os._exit(0)


def _plain(error: Exception) -> Exception:
    try:
        return pickle.loads(pickle.dumps(error))  # type: ignore[no-any-return]
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")


def _marked(found: Iterator[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """The rows as they are, with one header more, that of the query."""
    mark = {"key": MARK, "value": name.encode()}
    for batch in found:
        headers = [[*(each or ()), mark] for each in batch.column("headers").to_pylist()]
        columns = {
            "key": batch.column("key"),
            "value": batch.column("value"),
            "headers": pa.array(headers, batch.schema.field("headers").type),
        }
        yield pa.record_batch(columns)


def _watched(found: Iterator[pa.RecordBatch], steps: Steps) -> Iterator[pa.RecordBatch]:
    """In pieces, so that a task can die between two of them; the step says where it is."""
    steps.note("task, reading")
    for batch in found:
        half = len(batch) // 2
        for piece in (batch.slice(0, half), batch.slice(half)):
            if len(piece):
                yield piece
                steps.note("task, writing")
    steps.note("task, all rows given, waiting for the brokers")
