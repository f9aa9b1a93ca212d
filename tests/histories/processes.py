"""The processes of one Spark application, and what may strike between two of their steps.

All run here in one Python process; what the connector keeps in its modules is kept for each apart. A step is
a request that is about to leave, an answer that is not read yet, or a line of Spark's logs.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eoslog.client.wire import cluster as clusters
from eoslog.connector.run import run_memory, runner, source_ends
from eoslog.connector.sink import task_writer
from eoslog.connector.spark.processes import ProcessIdentity
from tests.histories.sim_connection import Killed, Network, Process

_FRESH: tuple[tuple[Any, str, Callable[[], Any]], ...] = (
    (runner, "_said", set),
    (clusters, "_clusters", dict),
    (task_writer, "_slots", lambda: task_writer._Slots(-1, "", {})),
)
"""Modules' memories, and what they are in a process that has just begun."""


@dataclass
class Strike:
    """What happens at the `at`-th step of a run, or at the step so called when it comes for the so-manieth
    time, as ("commit: after END_TXN", 1). `more`: how many steps a dying task still gets."""

    kind: str
    at: int | tuple[str, int]
    more: int = 0
    act: Callable[[], None] = lambda: None


class Worker(Process):
    """One Python process of an application."""

    def __init__(self, app: "Application", kind: str) -> None:
        self.app, self.kind = app, kind
        self.dead = False
        self._kept = {(module, name): fresh() for module, name, fresh in _FRESH}
        self.on_step: Callable[[], None] | None = None

    def goes_on(self, earlier: "Worker") -> None:
        """It is that process, at a later start."""
        if not earlier.dead:
            self._kept = earlier._kept

    def before(self, what: str) -> None:
        self._step(f"before {what}")

    def after(self, what: str) -> None:
        self._step(f"after {what}")

    def _step(self, what: str) -> None:
        if self.on_step is not None:
            self.on_step()
        self.app.step(self, what)
        if self.dead or self.app.dead:
            raise Killed

    @contextmanager
    def runs(self) -> Iterator[None]:
        """Within it the connector's modules are those of this process."""
        if self.app.dead or self.dead:
            raise Killed
        before = {key: getattr(*key) for key in (*self._kept, *self.app.told())}
        process = Network.process
        self._enter()
        try:
            yield
        finally:
            self._kept = {key: getattr(*key) for key in self._kept}
            for (module, name), value in before.items():
                setattr(module, name, value)
            Network.process = process

    def _enter(self) -> None:
        for (module, name), value in {**self._kept, **self.app.told()}.items():
            setattr(module, name, value)
        Network.process = self


class Application:
    """A driver with its Python processes. `token` names it, as its parent process would."""

    def __init__(self, token: str, planners: int = 1) -> None:
        self.token, self.dead, self.ended = token, False, ""
        self.steps, self._met, self.struck = 0, 0, ""
        self.strike: Strike | None = None
        self.met: list[str] = []
        """Every step at which something has struck."""
        self.source = Worker(self, "source")
        self.committer = Worker(self, "commit")
        self.planners = [Worker(self, "plan") for _ in range(planners)]
        self.tasks = [Worker(self, "task") for _ in range(2)]
        self._lives = [self]
        """Every start that this driver has seen."""

    @classmethod
    def again(cls, living: "Application") -> "Application":
        """The same driver and its pool of processes, for another start. Only the source's process is new."""
        made = cls(living.token, len(living.planners))
        made._lives = living._lives
        made._lives.append(made)
        old = [living.committer, *living.planners, *living.tasks]
        for worker, kept in zip([made.committer, *made.planners, *made.tasks], old, strict=True):
            worker.goes_on(kept)
        return made

    def told(self) -> dict[tuple[Any, str], Any]:
        """What the system tells its processes of the driver, its threads, and the source's process."""
        source = ProcessIdentity(self._lives.index(self), self.token)
        return {
            (run_memory, "driver_token"): lambda: self.token,
            (run_memory, "streams_now"): self.streams,
            (run_memory, "stream_lives"): lambda stream: stream in self.streams(),
            (source_ends, "driver_process"): lambda: ProcessIdentity(0, self.token),
            (source_ends, "this_process"): lambda: source,
            (source_ends, "lives"): lambda process: not self._lives[process.pid].ended,
        }

    def streams(self) -> tuple[tuple[int, str], ...]:
        """The driver's threads that run queries: one for each start, until it has ended."""
        return tuple((at, "0") for at, start in enumerate(self._lives) if not start.ended)

    def planner(self, number: int) -> Worker:
        """Whichever of the pool Spark takes."""
        return self.planners[number % len(self.planners)]

    def worker(self, number: int) -> Worker:
        """A task's process; one that died is created again."""
        at = number % len(self.tasks)
        if self.tasks[at].dead:
            self.tasks[at] = Worker(self, "task")
        return self.tasks[at]

    def arm(self, strike: Strike | None) -> None:
        """What strikes in the run that begins now."""
        self.steps, self._met, self.strike, self.struck = 0, 0, strike, ""

    def step(self, worker: Worker | None, what: str) -> None:
        """A step of one of its processes (None: of the JVM)."""
        self.steps += 1
        strike, name = self.strike, f"{worker.kind if worker else 'spark'}: {what}"
        if strike is None or not self._is_there(strike, name):
            return
        if strike.kind == "copy" or (strike.kind == "task" and (worker is None or worker.kind != "task")):
            return
        self.strike, self.struck = None, name
        self.met.append(name)
        if strike.kind == "kill":
            self.kill()
            raise Killed
        if strike.kind == "task" and worker is not None:
            worker.dead = True
            raise Killed
        strike.act()
        if self.dead:
            raise Killed

    def _is_there(self, strike: Strike, name: str) -> bool:
        if isinstance(strike.at, int):
            return self.steps >= strike.at
        self._met += name == strike.at[0]
        return name == strike.at[0] and self._met >= strike.at[1]

    def kill(self) -> None:
        """SIGKILL to the driver and all of its processes."""
        for start in self._lives:
            start.dead, start.ended = True, "killed"


@contextmanager
def machine(folder: Path) -> Iterator[None]:
    """A machine's temporary files, where drivers keep their memory. Afterwards the connector's modules are
    this process's own again: a driver that hangs until the end leaves its own in them."""
    kept = tempfile.tempdir, run_memory._sweep, run_memory._swept
    own = {(module, name): getattr(module, name) for module, name, _ in _FRESH}
    own |= {key: getattr(*key) for key in Application("").told()}
    process = Network.process
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir, run_memory._swept = str(folder), 1e18
    try:
        yield
    finally:
        tempfile.tempdir, run_memory._sweep, run_memory._swept = kept
        for (module, name), value in own.items():
            setattr(module, name, value)
        Network.process = process
        shutil.rmtree(folder, ignore_errors=True)
