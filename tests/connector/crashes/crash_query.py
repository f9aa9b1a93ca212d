"""A streaming query without Spark: real processes for its driver and its tasks, a checkpoint in Spark's
layout, the real code of the sink, and a SIGKILL wherever a test asks for one.

Batch n of partition p holds the rows "n/p/0", "n/p/1", ... The driver runs batches until all are done.
"""

import contextlib
import json
import multiprocessing
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.client.wire.cluster import shared_cluster
from eoslog.client.wire.connection import BrokerConnection as KafkaConnection
from eoslog.connector.commit import commands as c
from eoslog.connector.commit.task_reports import Report
from eoslog.connector.options.sink_options import SinkOptions, sink_options
from eoslog.connector.run.runner import Runner
from eoslog.connector.sink import committer
from eoslog.connector.sink.task_message import Attempt
from eoslog.connector.sink.task_writer import write_rows
from eoslog.protocol.apis import ApiKey

OFFSET_LOG = int(os.environ.get("EOSLOG_TEST_OFFSET_LOG", "1"))
ROWS = 50
SOURCE = "flights"
GROUP = "dashboards"

_processes = multiprocessing.get_context("forkserver")
# pandas: pyarrow looks for it once in each process, 0.4 s in every task.
_SINK = ["eoslog.connector.sink.committer", "eoslog.connector.sink.task_writer"]
_processes.set_forkserver_preload([*_SINK, "pandas", "tests.connector.crashes.crash_query"])
_forks = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Query:
    """A query as its user starts it. `options`: of the sink.

    Rows have their partition's number as key, or none (`keyed`): then each Arrow batch goes to another
    partition. If the query `varies`, every run names itself in its rows, and has a number of its own of them.
    `version`: of Spark's offset log and commit log. `ours`: the source is eoslog's, which names topic ids.
    """

    checkpoint: Path
    options: dict[str, str]
    partitions: int = 2
    batches: int = 2
    keyed: bool = True
    varies: bool = False
    version: int = OFFSET_LOG
    ours: bool = False
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def rows(self) -> list[bytes]:
        """Every row that must be visible in the end, once."""
        return sorted(
            b"%d/%d/%d" % (batch, partition, number)
            for batch in range(self.batches)
            for partition in range(self.partitions)
            for number in range(ROWS)
        )


@dataclass(frozen=True)
class Crash:
    """Where a process dies. `at` is the name of a point below; only in this `batch`.

    `task`: the partition whose first attempt dies, for the points of tasks.
    `stop`: it is stopped (SIGSTOP) there instead of killed, until somebody lets it go on.
    """

    at: str
    batch: int = 1
    task: int = 0
    stop: bool = False
    sleepers: Path = Path()

    def here(self) -> None:
        """Die, or sleep."""
        if self.stop:
            (self.sleepers / str(os.getpid())).touch()
        os.kill(os.getpid(), signal.SIGSTOP if self.stop else signal.SIGKILL)


def _is_decision(command: c.Command[Any], sink_id: str) -> bool:
    return isinstance(command, c.End) and command.commit and command.participants[0].name == sink_id


Point = Callable[[c.Command[Any], str, int], bool]
_ENDS: list[str] = []  # participants committed so far, by this process


def _finishing(number: int) -> Point:
    def test(command: c.Command[Any], sink_id: str, batch: int) -> bool:
        if not isinstance(command, c.End) or not command.commit or _is_decision(command, sink_id):
            return False
        _ENDS.append(command.participants[0].name)
        return len(_ENDS) == number

    return test


BEFORE: dict[str, Point] = {
    "before the decision is staged": lambda command, sink_id, _: isinstance(command, c.StageOffsets),
    "before the decision": lambda command, sink_id, _: _is_decision(command, sink_id),
    "decided, no winner finished": _finishing(1),
    "decided, some winners finished": _finishing(2),
}
REPLAYED = "decided again, the lost winner not finished"  # begin has asked for both of two winners before
BEFORE_OF_REPLAYS: dict[str, Point] = {REPLAYED: _finishing(3)}
AFTER: dict[str, Point] = {
    "sink acquired": lambda command, sink_id, _: isinstance(command, c.Acquire),
    "decision staged": lambda command, sink_id, _: isinstance(command, c.StageOffsets),
    "some winners sealed": lambda command, sink_id, _: isinstance(command, c.Seal),
    "verified": lambda command, sink_id, _: isinstance(command, c.Describe) and len(command.names) > 1,
}
ELSEWHERE = (
    "offsets logged",
    "begun",
    "some tasks prepared",
    "all tasks prepared",
    "decision sent, no answer read",
    "all finished, not logged",
    "a task in the middle of its rows",
    "a task prepared, report lost",
)
IN_DRIVER = (*BEFORE, *AFTER, *(point for point in ELSEWHERE if not point.startswith("a task")))
IN_TASKS = tuple(point for point in ELSEWHERE if point.startswith("a task"))


class Running:
    """A driver that was started."""

    def __init__(self, process: BaseProcess, answers: Connection, sleepers: Path) -> None:
        self.process, self._answers, self._sleepers = process, answers, sleepers

    def end(self, timeout: float = 180) -> str:
        """How it ended: "done", "killed", or what it raised."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.wake(signal.SIGKILL)
            self.process.kill()
            raise AssertionError("the driver hangs")
        if self.process.exitcode == -signal.SIGKILL:
            return "killed"
        return str(self._answers.recv()) if self._answers.poll() else f"exit {self.process.exitcode}"

    def wait_until_stopped(self, timeout: float = 120) -> None:
        """Until it, or one of its tasks, sleeps at its point."""
        deadline = time.monotonic() + timeout
        while not any(_sleeps(path.name) for path in self._sleepers.iterdir()):
            if time.monotonic() > deadline:
                self.process.kill()
                raise AssertionError("the driver does not get to its point")
            if self.process.exitcode is not None:
                raise AssertionError(f"the driver ended before its point: {self.end()}")
            time.sleep(0.02)

    def wake(self, number: signal.Signals = signal.SIGCONT) -> None:
        """Let it go on."""
        for path in self._sleepers.iterdir():
            if _sleeps(path.name):
                os.kill(int(path.name), number)


def _sleeps(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T"


def start(query: Query, crash: Crash | None = None) -> Running:
    """Start a driver; it has no memory of any other."""
    sleepers = query.checkpoint.parent / uuid.uuid4().hex
    sleepers.mkdir()
    if crash is not None:
        crash = replace(crash, sleepers=sleepers)
    here, there = _processes.Pipe(duplex=False)
    process = _processes.Process(target=_drive, args=(replace(query, run=uuid.uuid4().hex), crash, there))
    process.start()
    there.close()
    return Running(process, here, sleepers)


def run(query: Query, crash: Crash | None = None) -> str:
    """Start a driver and wait for its end."""
    return start(query, crash).end()


# -- the driver -------------------------------------------------------------------------------


def _drive(query: Query, crash: Crash | None, answers: Connection) -> None:
    os.environ["PYTHON_WORKER_FACTORY_SECRET"] = query.run  # a driver of its own
    try:
        small = {"kafka.max.request.size": "500"}  # a task's first rows travel before its last ones
        given = small | query.options | {"checkpointLocation": str(query.checkpoint)}
        options = sink_options(given, stream=True)
        query.checkpoint.mkdir(exist_ok=True)
        if not (query.checkpoint / "metadata").exists():
            _write(query.checkpoint / "metadata", json.dumps({"id": uuid.uuid4().hex}))
        for batch in range(_next_batch(query), query.batches):
            _batch(query, options, batch, crash if crash and crash.batch == batch else None)
        answers.send("done")
    except Exception as error:
        answers.send(f"{type(error).__name__}: {error}")


def _next_batch(query: Query) -> int:
    log = query.checkpoint / "commits"
    done = [int(path.name) for path in log.iterdir()] if log.exists() else []
    return max(done, default=-1) + 1


def _batch(query: Query, options: SinkOptions, batch: int, crash: Crash | None) -> None:
    point = crash.at if crash else ""

    def reached(name: str) -> None:
        if crash and point == name:
            crash.here()

    ends = {str(p): (batch + 1) * ROWS for p in range(query.partitions)}
    if not (query.checkpoint / "offsets" / str(batch)).exists():
        _write(query.checkpoint / "offsets" / str(batch), _planned(query, ends))
    reached("offsets logged")
    runner = _runner(options, batch, crash)
    begun = committer.begin_stream(options, runner)
    reached("begun")
    reports: list[Report | None] = [None] * query.partitions
    try:
        for partition in range(query.partitions):
            reports[partition] = _task(query, options, begun, batch, partition, crash)
            if partition < query.partitions - 1:
                reached("some tasks prepared")
        reached("all tasks prepared")
        with _silence_after_the_decision(point, options, crash):
            committer.commit_stream(options, reports, batch, runner)
    except Exception:
        committer.abort_batch(options, reports, batch, runner)
        raise
    reached("all finished, not logged")
    _write(query.checkpoint / "commits" / str(batch), _completed(query.version))


def _planned(query: Query, ends: dict[str, int]) -> str:
    """A file of the offset log as Spark writes it."""
    ids: dict[str, dict[str, int]] = {f"topic-id:{SOURCE}:{'A' * 22}": {}} if query.ours else {}
    line = json.dumps({SOURCE: ends, **ids})
    return (
        f"v1\n{{}}\n{line}" if query.version == 1 else f'v2\n{{"sourceMetadataInfo":{{}}}}\n{SOURCE}:{line}'
    )


def _completed(version: int) -> str:
    """A file of the commit log; version 3 with the names of sinks is what a query with names has."""
    sink = {"sinkName": "s", "commitOffset": "-", "providerName": "p", "apiVersion": "v2", "isActive": True}
    return "v1\n{}" if version == 1 else f"v3\n{json.dumps({'sinkMetadataMap': {'s': sink}})}"


def _runner(options: SinkOptions, batch: int, crash: Crash | None) -> Runner:
    _ENDS.clear()

    def watch(points: dict[str, Point]) -> Callable[[c.Command[Any]], None]:
        def watching(command: c.Command[Any]) -> None:
            if crash and crash.at in points and points[crash.at](command, _sink_id(options), batch):
                crash.here()

        return watching

    timeout = options.transaction_timeout_ms
    before = watch(BEFORE | BEFORE_OF_REPLAYS)
    cluster, topic = shared_cluster(options.client), options.decision_topic
    return Runner(cluster, timeout, decisions=topic, before=before, after=watch(AFTER))


def _sink_id(options: SinkOptions) -> str:
    assert options.transactional_id is not None
    return options.transactional_id


@contextlib.contextmanager
def _silence_after_the_decision(point: str, options: SinkOptions, crash: Crash | None) -> Iterator[None]:
    """The decision's request is on the wire, its answer is never read."""
    if point != "decision sent, no answer read":
        yield
        return
    real = KafkaConnection.send

    def send(self: KafkaConnection, api: ApiKey, body: Any, *args: Any, **kwargs: Any) -> Any:
        sent = real(self, api, body, *args, **kwargs)
        if api == ApiKey.END_TXN and body["transactional_id"] == _sink_id(options) and body["committed"]:
            assert crash is not None
            KafkaConnection.send = real  # type: ignore[method-assign]  # once: who only sleeps here tries again
            crash.here()
        return sent

    KafkaConnection.send = send  # type: ignore[method-assign]
    yield


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    draft = path.parent.parent / f".{path.name}.draft"
    draft.write_text(text)
    draft.rename(path)


# -- the tasks --------------------------------------------------------------------------------


def _task(
    query: Query, options: SinkOptions, begun: Any, batch: int, partition: int, crash: Crash | None
) -> Report | None:
    """Run attempts in processes of their own until one reports."""
    for attempt in range(4):
        here, there = _forks.Pipe(duplex=False)
        dies = crash if crash and attempt == 0 and crash.task == partition else None
        process = _forks.Process(target=_attempt, args=(query, options, begun, batch, partition, dies, there))
        process.start()
        there.close()
        try:
            answer: Report | Exception | None = here.recv()
        except EOFError:  # killed
            continue
        finally:
            process.join(30)
        if isinstance(answer, Exception):
            raise answer
        return answer
    raise RuntimeError(f"partition {partition} failed four times")


def _attempt(
    query: Query,
    options: SinkOptions,
    begun: Any,
    batch: int,
    partition: int,
    crash: Crash | None,
    answers: Any,
) -> None:
    try:
        who = json.loads((query.checkpoint / "metadata").read_text())["id"]
        rows = _rows(query, batch, partition, crash)
        message = write_rows(options, begun, Attempt(who, batch, partition), rows)
        if crash and crash.at == "a task prepared, report lost":
            crash.here()
        answers.send(message.report)
    except Exception as error:
        answers.send(error)


def rows_of_run(run: str) -> int:
    """How many rows a run of a query that varies has in each partition."""
    return ROWS + int(run, 16) % 10


def _rows(query: Query, batch: int, partition: int, crash: Crash | None) -> Iterator[pa.RecordBatch]:
    half, end = ROWS // 2, rows_of_run(query.run) if query.varies else ROWS
    mark = b"@" + query.run.encode() if query.varies else b""
    key = b"%d" % partition if query.keyed else None
    for first, last in ((0, half), (half, end)):
        values = [b"%d/%d/%d" % (batch, partition, number) + mark for number in range(first, last)]
        yield pa.record_batch(
            {"key": pa.array([key] * (last - first), pa.binary()), "value": pa.array(values)}
        )
        if first == 0 and crash and crash.at == "a task in the middle of its rows":
            time.sleep(0.2)  # its first rows are on their way
            crash.here()
