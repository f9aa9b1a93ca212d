"""A history's ground with Spark itself: applications on a real broker, driven trigger by trigger.

A query runs in an application of its own (local[2]); SIGKILL ends both. One that ended in order leaves its
application to the next query that starts. Triggers are let through one by one (spark_source.py), so what
happens between two of them is what the history says, as in the imitation.
"""

import importlib
import json
import os
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig
from tests.histories.ground import Rows
from tests.histories.offset_log import source_name
from tests.histories.processes import Strike
from tests.histories.query import age, identity
from tests.histories.real_cluster import RealCluster
from tests.histories.sessions import kill_session
from tests.histories.sim_connection import Killed
from tests.histories.spark import Plan, Stopped, TaskFailed, Told
from tests.histories.spark_source import number, put, steps
from tests.kit.program import Program
from tests.kit.spark_app import Answers

PATIENCE_SECONDS = 180.0
"""How long anything may take that is bound to come to an end."""
LOOK = 0.02
SHORT_SECONDS = 5.0
"""Waits up to here are waited."""
LONG_SECONDS = 18.0
"""Longer waits end when nothing is open any more, or after this: all time-outs are over then."""
SOURCE = {"kafka.request.timeout.ms": "4000", "kafka.default.api.timeout.ms": "12000"}
SINK = {**SOURCE, "kafka.delivery.timeout.ms": "12000", "kafka.transaction.timeout.ms": "15000"}
_ERROR = re.compile(r"\b(eoslog(?:\.\w+)+)\.([A-Z]\w+): ([^\n]*)")
_WORKER = re.compile(r"exited unexpectedly|crashed|EOFException|Connection reset|Broken pipe")
_TWO = re.compile(r"CONCURRENT_STREAM_LOG_UPDATE|[Mm]ultiple streaming queries are concurrently")
_SLOW = re.compile(r"[Tt]imed out|connect back|SocketTimeout")
_WRITES = ("PRODUCE", "ADD_PARTITIONS_TO_TXN", "ADD_OFFSETS_TO_TXN", "TXN_OFFSET_COMMIT")


class RealTime:
    """Time that passes by itself."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open

    def sleep(self, seconds: float) -> None:
        """See SHORT_SECONDS and LONG_SECONDS."""
        if seconds <= SHORT_SECONDS:
            time.sleep(seconds)
            return
        until = time.monotonic() + LONG_SECONDS
        while time.monotonic() < until and self._is_open():
            time.sleep(0.2)


class Process:
    """A Spark application (spark_app.py), and what it was told and has said."""

    def __init__(self, folder: Path) -> None:
        (folder / "tmp").mkdir(parents=True)
        self.numbers, self._answers = 0, Answers(folder)
        environment = {"TMPDIR": str(folder / "tmp"), "SPARK_LOCAL_DIRS": str(folder / "tmp")}
        command = [sys.executable, "-m", "tests.histories.spark_app", folder]
        self._program = Program(command, folder / "log", environment=os.environ | environment)

    @property
    def lives(self) -> bool:
        """Whether it runs."""
        return self._program.ended is None

    def tell(self, told: Mapping[str, Any]) -> None:
        """A line to it."""
        self._program.tell(told)

    def answer(self, asked: int) -> tuple[str | None] | None:
        """How something ended (None in it: well), once it has."""
        return self._answers.of(asked)

    def kill(self) -> None:
        """SIGKILL to all of it."""
        kill_session(self._program.process.pid)
        self._program.process.wait()

    def tail(self) -> str:
        """The end of what it printed."""
        return self._program.tail(1500)


class Processes:
    """Applications that wait for work; one is always on its way."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._idle: list[Process] = []
        self._all: list[Process] = []
        self.born = 0

    def take(self) -> Process:
        """The one that has waited longest."""
        self._idle = [process for process in self._idle if process.lives] or [self._new()]
        taken = self._idle.pop(0)
        if not self._idle:
            self._idle.append(self._new())
        return taken

    def give(self, process: Process) -> None:
        """It has nothing to do any more."""
        if process.lives:
            self._idle.insert(0, process)

    def _new(self) -> Process:
        self.born += 1
        made = Process(self._folder / f"application-{self.born}")
        self._all.append(made)
        return made

    def close(self) -> None:
        """End all."""
        for process in self._all:
            process.kill()


class SparkApp:
    """See ground.App."""

    def __init__(self, process: Process, give: Callable[[Process], None]) -> None:
        self.process, self._give = process, give
        self.ended, self.dead, self.released = "", False, False
        self.strike: Strike | None = None

    def arm(self, strike: Strike | None) -> None:
        """See ground.App."""
        self.strike = strike

    def kill(self) -> None:
        """See ground.App."""
        if not self.dead:
            self.dead, self.ended = True, "killed"
            self.process.kill()

    def release(self) -> None:
        """Its query or write is over: it may have another one."""
        if not self.released:
            self.released = True
            self._give(self.process)


class Watched:
    """Something that runs in an application: what strikes it, and how it ends."""

    def __init__(self, app: SparkApp, folder: Path, struck: Counter[str]) -> None:
        self.app, self.folder, self._struck = app, folder, struck
        app.process.numbers += 1
        self.number, self.busy = app.process.numbers, False
        self._strike: Strike | None = None
        self._stopping = False

    def tell(self, do: str, **more: Any) -> None:
        """The application shall do this."""
        self.app.process.tell({"do": do, "id": self.number, **more})

    def arm(self, strike: Strike | None) -> None:
        """What strikes from the next step on, once."""
        for name in ("strike.json", "struck", "held", "woken", "stop"):
            (self.folder / name).unlink(missing_ok=True)
        self._strike = strike
        if strike is not None:
            told = {
                "kind": strike.kind,
                "at": strike.at,
                "more": strike.more,
                "base": len(steps(self.folder)),
            }
            (self.folder / "strike.json").write_text(json.dumps(told))

    def wait(self, rests: Callable[[], bool]) -> tuple[str | None] | None:
        """Until it rests (None) or has ended: its answer. Raises Killed."""
        until, self.busy = time.monotonic() + PATIENCE_SECONDS, True
        try:
            while True:
                answer, alive = self.app.process.answer(self.number), self.app.process.lives
                if answer is not None or (alive and not self._stopping and rests()):
                    return answer
                if not alive:
                    self._died()
                if self._meets("held") and self._strike is not None:
                    self._strike.act()
                    (self.folder / "woken").touch()
                    until = time.monotonic() + PATIENCE_SECONDS
                if self._meets("stop"):
                    self.ask_to_stop()
                if time.monotonic() > until:
                    raise RuntimeError(f"nothing within {PATIENCE_SECONDS} s: {self.app.process.tail()}")
                time.sleep(LOOK)
        finally:
            self.busy = False

    def _meets(self, name: str) -> bool:
        path = self.folder / name
        return path.exists() and not path.rename(path.with_suffix(".met")).is_dir()

    def _died(self) -> None:
        expected = self.app.dead or (self.folder / "struck").exists()
        self.app.kill()
        if not expected:
            raise RuntimeError(f"the application died: {self.app.process.tail()}")
        raise Killed

    def disarm(self) -> None:
        """What did not strike until now does not strike; what did is counted."""
        path = self.folder / "struck"
        if self._strike is not None and path.exists():
            self._struck[f"{self._strike.kind}, {path.read_text()}"] += 1
            path.unlink()
        (self.folder / "strike.json").unlink(missing_ok=True)

    def ask_to_stop(self) -> None:
        """query.stop()."""
        self._stopping = True
        (self.folder / "ending").touch()
        self.tell("stop")

    def ended(self, said: str | None) -> None:
        """It has said so. Raises what it tells of."""
        self.app.release()
        error = None if said is None else loud(said)
        if error is not None:
            raise error
        if self._stopping:
            self.app.ended = "stopped"
            raise Stopped
        if said is not None:
            kinds = {
                "a task died": _WORKER,
                "two runs on a checkpoint": _TWO,
                "Spark's Python was slow": _SLOW,
            }
            found = next((kind for kind, pattern in kinds.items() if pattern.search(said)), None)
            if found is None:
                raise RuntimeError(f"not an error of the connector: {said[-1500:]}")
            self._struck[found] += 1
            raise TaskFailed(found)


class SparkStream:
    """See ground.Run."""

    def __init__(self, plan: Plan, watched: Watched, told: Told) -> None:
        self.plan, self.app, self._run, self._told = plan, watched.app, watched, told
        self.until_now = self._started = self._over = False
        self._planned, self._completed = age(plan.checkpoint)[::-1]
        self._granted = self._read = 0

    @property
    def query_id(self) -> str:
        """See ground.Run."""
        return str(json.loads(identity(self.plan.checkpoint))["id"])

    @property
    def began(self) -> dict[str, dict[str, int]]:
        """See ground.Run."""
        path = self._run.folder / "began"
        found: dict[str, dict[str, int]] = json.loads(path.read_text()) if path.exists() else {}
        return found

    @property
    def busy(self) -> bool:
        """Whether it stands still in the middle of a trigger."""
        return self._run.busy

    @property
    def between(self) -> bool:
        """See ground.Run."""
        completed, planned = age(self.plan.checkpoint)
        return completed >= planned

    def trigger(self, strike: Strike | None = None) -> bool:
        """See ground.Run. The first one of a run is the batch that was planned before, if there is one."""
        if self._over or self.busy:  # who stands still in the middle of one begins no other
            return False
        before = age(self.plan.checkpoint)
        self._run.arm(self._looking(strike))
        try:
            self._trigger()
        finally:
            self._run.disarm()
        return age(self.plan.checkpoint) != before

    def _trigger(self) -> None:
        if not self._started:
            again = not self.between
            self._start()
            self._wait()
            if again or self._over:
                return
        self._granted += 1
        put(self._run.folder / "granted", str(self._granted))
        self._wait()

    def _looking(self, strike: Strike | None) -> Strike | None:
        """Before the world goes on beside a process that stands still, it is noted what was done so far."""
        if strike is not None and strike.kind == "hold":
            act = strike.act

            def look() -> None:
                self._look()
                act()

            strike.act = look
        return strike

    def _start(self) -> None:
        self._started, plan = True, self.plan
        own = {"history.folder": str(self._run.folder)}
        self._run.tell(
            "start", checkpoint=str(plan.checkpoint), told=plan.told, token=plan.token, mark=plan.mark,
            left_out=sorted(plan.left_out),
            source_name=source_name(plan.checkpoint, plan.source_name),
            now=self.until_now, sink={**plan.sink, **own},
            source={**plan.source, **own, "history.gated": "no" if self.until_now else "yes"},
        )  # fmt: skip

    def _wait(self) -> None:
        try:
            answer = self._run.wait(lambda: number(self._run.folder / "waiting") > self._granted)
        finally:
            self._look()
        if answer is not None:
            self._over = True
            self._run.ended(*answer)

    def _look(self) -> None:
        """Tell what was planned, read and completed."""
        completed, planned = age(self.plan.checkpoint)
        for batch in range(self._planned + 1, planned + 1):
            self._told.planned(batch)
        path = self._run.folder / "read"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        for line in lines[self._read :]:
            if line.endswith("\n"):
                batch, values = json.loads(line)
                column = pa.array([value.encode() for value in values], pa.binary())
                self._told.read(batch, pa.record_batch({"value": column}))
                self._read += 1
        for batch in range(self._completed + 1, completed + 1):
            self._told.completed(batch)
        self._planned, self._completed = max(planned, self._planned), max(completed, self._completed)

    def stop(self) -> None:
        """See ground.Run. One that stands still in the middle of something ends when it wakes."""
        self.app.ended = "stopped"
        if self._over or not self._started:
            self.app.release()
            return
        self._run.ask_to_stop()
        if self._run.busy:
            return
        try:
            self._granted += 1 << 30  # nothing but its end is waited for
            self._wait()
        except Stopped:
            return


class SparkWrite:
    """See ground.Write."""

    def __init__(self, watched: Watched, options: dict[str, str]) -> None:
        self._run, self._options = watched, options

    def run(self, rows: Sequence[Rows]) -> None:
        """See ground.Write."""
        values = [
            [v.decode() for batch in part() for v in batch.column("value").to_pylist()] for part in rows
        ]
        self._run.arm(self._run.app.strike)
        self._run.tell("write", rows=values, sink={**self._options, "history.folder": str(self._run.folder)})
        try:
            answer = self._run.wait(lambda: False)
        finally:
            self._run.disarm()
        assert answer is not None
        self._run.ended(*answer)


class SparkGround:
    """See ground.Ground."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self._runs, self._processes = folder / "runs", processes
        self._runs.mkdir(parents=True)
        self.cluster = RealCluster(folder / "broker")
        self.cluster.opener = self._opener
        self.clock = RealTime(self.cluster.is_open)
        self.sites = {self.cluster.broker.bootstrap: self.cluster}
        servers = {"kafka.bootstrap.servers": self.cluster.broker.bootstrap}
        self.source: Mapping[str, str] = servers | SOURCE
        self.sink: Mapping[str, str] = servers | SINK
        self.apps: dict[Path, SparkApp] = {}
        self.struck: Counter[str] = Counter()

    @contextmanager
    def around(self, warned: Counter[str]) -> Iterator[None]:
        """See ground.Ground. The warnings are in the applications' logs."""
        try:
            yield
        finally:
            for app in self.apps.values():
                if not app.released:
                    app.kill()
            self.cluster.close()

    def turn(self, servers: str) -> None:
        """See ground.Ground."""

    def application(self, planners: int = 1, living: object = None) -> SparkApp:
        """See ground.Ground. One that has nothing to do lives, and takes whatever starts next."""
        return SparkApp(self._processes.take(), self._processes.give)

    def stream(self, plan: Plan, app: Any, told: Told) -> SparkStream:
        """See ground.Ground."""
        return SparkStream(plan, self._watched(app), told)

    def job(self, app: Any, options: dict[str, str]) -> SparkWrite:
        """See ground.Ground."""
        return SparkWrite(self._watched(app), options)

    def client(self) -> Cluster:
        """See ground.Ground."""
        broker = self.cluster.broker
        return Cluster(ClientConfig(((broker.host, broker.port),)))

    def shell(self, kill: int | tuple[str, int] | None) -> AbstractContextManager[None]:
        """See ground.Ground. Nobody kills it."""
        return nullcontext()

    def _watched(self, app: SparkApp) -> Watched:
        folder = self._runs / uuid.uuid4().hex
        folder.mkdir()
        self.apps[folder] = app
        return Watched(app, folder, self.struck)

    def _opener(self, name: str) -> object:
        """Who has written in a transaction last."""
        wrote = [
            (at, str(folder))
            for folder in self.apps
            for at, what, of in steps(folder)
            if of == name and what.rpartition(" ")[2] in _WRITES
        ]
        return self.apps[Path(max(wrote)[1])] if wrote else None


def loud(said: str) -> Exception | None:
    """The connector's error that Spark's text tells of, with the text that its reader sees."""
    found = _ERROR.findall(said)
    if not found:
        return None
    module, name, text = found[-1]
    kind = getattr(importlib.import_module(module), name)
    made: Exception = type(name, (kind,), {"__str__": lambda _: text, "__init__": lambda self: None})()
    return made
