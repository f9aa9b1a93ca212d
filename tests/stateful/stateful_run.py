"""Applications of stateful queries as processes of their own, and how they are killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

import psutil

from tests.kit.program import Program, kill, plain_python
from tests.stateful.stateful_halts import EVERYWHERE, OF_TRANSACTIONS, SAVED, Halts
from tests.stateful.stateful_input import LOSABLE

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
    """What is killed, and when: once `after` micro-batches are done, of all queries together, at a place of
    stateful_halts.py in a later batch of a query that is drawn then; or `wait` seconds later. `loses`: the
    application is killed in any case, and its checkpoints are deleted."""

    weapon: str
    after: int
    place: str = RANDOM
    wait: float = 0.0
    loses: bool = False


def strikes(
    kills: int, batches: int, random: Random, guarantee: str = "exactly_once", *, losing: bool = False
) -> list[Strike]:
    """A plan of `kills` strikes while `batches` batches are done: all weapons in turns, in random order; two
    of three at a place drawn at random, one at a random moment. `losing`: every other one loses the
    checkpoints."""
    places = [*EVERYWHERE, *(OF_TRANSACTIONS if guarantee == "exactly_once" else ())]
    places += [SAVED] if losing else []
    random.shuffle(places)
    weapons = [WEAPONS[number % len(WEAPONS)] for number in range(kills)]
    random.shuffle(weapons)
    plan = []
    for number, weapon in enumerate(weapons):
        after, loses = int(batches * (0.1 + 0.75 * number / kills)), losing and number % 2 == 0
        if number % 3 == 2:
            plan.append(Strike(weapon, after, RANDOM, random.random(), loses))
        else:
            plan.append(Strike(weapon, after, places[number % len(places)], loses=loses))
    return plan


class Application:
    """One run of stateful_app.py after another, on the same checkpoints."""

    def __init__(
        self, queries: Sequence[str], bootstrap: str, topics: str, run: str, place: Path, *more: str
    ) -> None:
        """`topics`, `run`: how all names of topics begin, and those of the targets end; `place`: an empty
        folder for checkpoints, orders and log; `more`: further arguments."""
        self._checkpoints, self._orders, self.log = place / "checkpoints", place / "halts", place / "log"
        self.halts = {query: Halts(self._orders / query) for query in queries}
        self._command = [
            sys.executable, "-m", "tests.stateful.stateful_app", *queries,
            "--bootstrap", bootstrap, "--topics", topics, "--run", run,
            "--checkpoints", str(self._checkpoints), *more,
        ]  # fmt: skip
        self._program: Program | None = None
        self.starts = 0

    def watched(self) -> Application:
        """Its sinks take orders to stop."""
        for query in self.halts:
            (self._orders / query).mkdir(parents=True)
        self._command += ["--halts", str(self._orders)]
        return self

    def checkpoint(self, query: str) -> Path:
        return self._checkpoints / query

    def start(self) -> None:
        self._program = Program(self._command, self.log, environment=plain_python())
        self.starts += 1

    @property
    def program(self) -> Program:
        """It, started."""
        assert self._program is not None
        return self._program

    def planned(self, query: str) -> int:
        """The last batch of the query that Spark has planned; -1 before the first."""
        return _newest(self.checkpoint(query) / "offsets")

    def done(self) -> int:
        """How many batches Spark has noted as done, of all queries together."""
        return sum(_newest(self.checkpoint(query) / "commits") + 1 for query in self.halts)

    def kill(self) -> int:
        """SIGKILL to all of it; answers to how many."""
        family = self.program.kill()
        psutil.wait_procs(family, timeout=60)
        return len(family)

    def lose_checkpoints(self) -> None:
        """Delete the checkpoints of all queries that save their state."""
        for query in self.halts:
            if query in LOSABLE:
                shutil.rmtree(self.checkpoint(query), ignore_errors=True)

    def kill_workers(self) -> int:
        """SIGKILL to every Python process that Spark has forked: workers of tasks, planners, committers."""
        workers = [p for p in self.program.family() if _is_worker(p)]
        return sum(kill(worker) for worker in workers)


def _newest(log: Path) -> int:
    if not log.exists():
        return -1
    return max((int(path.name) for path in log.iterdir() if path.name.isdigit()), default=-1)


def _is_worker(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return "pyspark.daemon" in process.cmdline() and not process.children()
    return False


@dataclass(frozen=True)
class Hit:
    """A strike that was carried out: after how many batches, at whose, and to how many processes."""

    strike: Strike
    done: int
    where: str
    killed: int

    def __str__(self) -> str:
        lost = ", checkpoints deleted" if self.strike.loses else ""
        return f"{self.done:>3} batches done: {self.strike.weapon} ({self.killed}), {self.where}{lost}"


class Sleeper(NamedTuple):
    """A process that sleeps at its place."""

    query: str
    batch: int
    pid: int


class Ordeal:
    """An application that is killed by plan, and started again until it has come to its end.

    `batches`: how many each query has, but for those without data; none is ordered to stop behind them.
    """

    def __init__(
        self, application: Application, server: Server, plan: list[Strike], batches: int, random: Random
    ) -> None:
        self._application, self._server, self._plan = application, server, plan
        self._batches, self._random = batches, random
        self._limit = 2 * len(plan) + 6  # each strike may cost two, and a machine that is too slow some more
        self.hits: list[Hit] = []

    def run(self) -> list[Hit]:
        """To the end. Raises AssertionError if it hangs, keeps failing, or ends before all strikes hit."""
        application = self._application
        application.start()
        try:
            for strike in self._plan:
                self.hits.append(self._hit(strike))
            self._wait(lambda: application.program.ended == 0, "come to its end")
        finally:
            application.kill()
        return self.hits

    def _hit(self, strike: Strike) -> Hit:
        application = self._application
        self._wait(lambda: application.done() >= strike.after, f"get to {strike}")
        sleeper = None
        if strike.place == RANDOM:
            time.sleep(strike.wait)
        else:
            sleeper = self._halted(strike)
        done, killed = application.done(), self._strike(strike)
        if sleeper is not None:
            application.halts[sleeper.query].recall()
            with contextlib.suppress(ProcessLookupError):
                os.kill(sleeper.pid, signal.SIGCONT)
        if strike.weapon == "broker":
            self._server.restart()
        if strike.loses and strike.weapon != "application":
            application.kill()
            application.lose_checkpoints()
            application.start()
        where = f"{sleeper.query} {sleeper.batch}: {strike.place}" if sleeper else strike.place
        return Hit(strike, done, where, killed)

    def _halted(self, strike: Strike) -> Sleeper:
        """Order a query that has batches left to stop, and wait until it does."""
        application = self._application
        planned = {query: application.planned(query) for query in application.halts}
        left = sorted(query for query, batch in planned.items() if batch < self._batches - 2)
        assert left, f"all queries were at their ends before {strike} came to pass"
        query = self._random.choice(left)
        halts = application.halts[query]
        halts.order(strike.place, planned[query] + 1)
        self._wait(lambda: halts.stopped() is not None, f"get to {strike}, {query}")
        found = halts.stopped()
        assert found is not None
        return Sleeper(query, found[1], found[0])

    def _strike(self, strike: Strike) -> int:
        if strike.weapon == "workers":
            return self._application.kill_workers()
        if strike.weapon == "broker":
            self._server.kill()
            return 1
        killed = self._application.kill()
        if strike.loses:
            self._application.lose_checkpoints()
        self._application.start()
        return killed

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Until it holds. An application that has failed is started again, as a supervisor does."""
        application, deadline = self._application, time.monotonic() + PATIENCE
        while not condition():
            ended = application.program.ended
            assert ended != 0 or condition(), f"all queries were at their ends, and did not {what}"
            if ended:
                assert application.starts <= self._limit, f"it keeps failing:\n{application.program.tail()}"
                application.start()
            assert time.monotonic() < deadline, f"it did not {what}:\n{application.program.tail()}"
            time.sleep(LOOK)
