"""Applications of stateful queries as processes of their own, and how they are killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

import psutil
from stateful_halts import EVERYWHERE, OF_TRANSACTIONS, Halts

ROOT = Path(__file__).parents[2]
PATIENCE = 900.0
"""Seconds within which a run must get to its next kill, or to its end."""
LOOK = 0.01
WEAPONS = ("application", "workers", "broker")
RANDOM = "at random"


class Server(Protocol):
    """A broker that can be killed."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self) -> None: ...
    def restart(self) -> object: ...


@dataclass(frozen=True)
class Strike:
    """What is killed, and when: at a place of stateful_halts.py in the first batch from `batch` on that comes
    to it, or `wait` seconds after Spark has planned `batch`."""

    weapon: str
    batch: int
    place: str = RANDOM
    wait: float = 0.0


def strikes(kills: int, batches: int, random: Random, guarantee: str = "exactly_once") -> list[Strike]:
    """A plan of `kills` strikes over `batches` batches: all weapons in turns, in random order; two of three
    at a place drawn at random, one at a random moment."""
    places = [*EVERYWHERE, *(OF_TRANSACTIONS if guarantee == "exactly_once" else ())]
    random.shuffle(places)
    weapons = [WEAPONS[number % len(WEAPONS)] for number in range(kills)]
    random.shuffle(weapons)
    # Not the first batches, which are short of output, nor the last, so that every strike finds one.
    step = (batches - 4) / kills
    plan = []
    for number, weapon in enumerate(weapons):
        batch = 2 + int(number * step)
        if number % 3 == 2:
            plan.append(Strike(weapon, batch, RANDOM, random.random()))
        else:
            plan.append(Strike(weapon, batch, places[number % len(places)]))
    return plan


class Application:
    """One run of stateful_app.py after another, on one checkpoint."""

    def __init__(self, query: str, bootstrap: str, topics: str, target: str, place: Path, *more: str) -> None:
        """`place`: an empty folder for checkpoint, orders and log; `more`: further arguments."""
        self.checkpoint, self.log = place / "checkpoint", place / "log"
        self._folder = place / "halts"
        self._folder.mkdir()
        self.halts = Halts(self._folder)
        self._command = [
            sys.executable, str(Path(__file__).with_name("stateful_app.py")), query,
            "--bootstrap", bootstrap, "--topics", topics, "--target", target,
            "--checkpoint", str(self.checkpoint), *more,
        ]  # fmt: skip
        self._process: psutil.Popen | None = None
        self.starts = 0

    def watched(self) -> Application:
        """Its sink takes orders to stop."""
        self._command += ["--halts", str(self._folder)]
        return self

    def start(self) -> None:
        paths = (str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH"))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with self.log.open("ab") as log:
            self._process = psutil.Popen(
                self._command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.starts += 1

    @property
    def process(self) -> psutil.Popen:
        assert self._process is not None
        return self._process

    def ended(self) -> int | None:
        """Its exit status; None while it runs."""
        status: int | None = self.process.poll()
        return status

    def planned(self) -> int:
        """The last batch that Spark has planned; -1 before the first."""
        return _newest(self.checkpoint / "offsets")

    def completed(self) -> int:
        """The last batch that Spark has noted as done."""
        return _newest(self.checkpoint / "commits")

    def family(self) -> list[psutil.Process]:
        """The application with its JVM, planners and workers; a stopped one too."""
        try:
            return [self.process, *self.process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> int:
        """SIGKILL to all of it; answers to how many."""
        family = self.family()
        for process in family:
            _send_kill(process)
        psutil.wait_procs(family, timeout=60)
        return len(family)

    def kill_workers(self) -> int:
        """SIGKILL to every Python process that Spark has forked: workers of tasks, planners, committers."""
        workers = [p for p in self.family() if _is_worker(p)]
        return sum(_send_kill(worker) for worker in workers)

    def tail(self) -> str:
        """The end of what it has printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])


def _newest(log: Path) -> int:
    if not log.exists():
        return -1
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=-1)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "pyspark.daemon" in process.cmdline() and not process.children()
    return False


def _send_kill(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
        return True
    return False


@dataclass(frozen=True)
class Hit:
    """A strike that was carried out: in which batch, and to how many processes."""

    strike: Strike
    batch: int
    killed: int

    def __str__(self) -> str:
        return f"batch {self.batch:>2}: {self.strike.weapon} ({self.killed}), {self.strike.place}"


class Ordeal:
    """An application that is killed by plan, and started again until it has come to its end."""

    def __init__(self, application: Application, server: Server, plan: list[Strike]) -> None:
        self._application, self._server, self._plan = application, server, plan
        self.hits: list[Hit] = []

    def run(self) -> list[Hit]:
        """To the end. Raises AssertionError if it hangs, keeps failing, or ends before all strikes hit."""
        application = self._application
        application.start()
        try:
            for strike in self._plan:
                self.hits.append(self._hit(strike))
            deadline = time.monotonic() + PATIENCE
            while application.ended() != 0:
                self._revive(deadline, "does not come to its end")
        finally:
            application.kill()
        return self.hits

    def _hit(self, strike: Strike) -> Hit:
        sleeper = self._come_to(strike)
        batch = sleeper[1] if sleeper else self._application.planned()
        killed = self._strike(strike.weapon)
        self._application.halts.recall()
        if sleeper is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sleeper[0], signal.SIGCONT)
        if strike.weapon == "broker":
            self._server.restart()
        return Hit(strike, batch, killed)

    def _come_to(self, strike: Strike) -> tuple[int, int] | None:
        """Wait for the strike's place or moment; the sleeper and its batch, if there is one."""
        application, deadline = self._application, time.monotonic() + PATIENCE
        if strike.place != RANDOM:
            application.halts.order(strike.place, strike.batch)
        while True:
            if application.ended() == 0:
                raise AssertionError(f"the query was at its end before {strike} came to pass")
            sleeper = application.halts.stopped()
            if strike.place != RANDOM and sleeper is not None:
                return sleeper
            if strike.place == RANDOM and application.planned() >= strike.batch:
                time.sleep(strike.wait)
                return None
            self._revive(deadline, f"does not come to {strike}")

    def _strike(self, weapon: str) -> int:
        if weapon == "workers":
            return self._application.kill_workers()
        if weapon == "broker":
            self._server.kill()
            return 1
        killed = self._application.kill()
        self._application.start()
        return killed

    def _revive(self, deadline: float, what: str) -> None:
        """Start an application that has failed again, as a supervisor does."""
        application = self._application
        if application.ended() not in (None, 0):
            assert application.starts <= 2 * len(self._plan) + 2, f"it keeps failing:\n{application.tail()}"
            application.start()
        assert time.monotonic() < deadline, f"the query {what}:\n{application.tail()}"
        time.sleep(LOOK)
