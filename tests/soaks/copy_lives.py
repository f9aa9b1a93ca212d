"""The application of a copy soak: a tree of processes, started, killed on its way, and started again.

What it is doing is told from outside: by Spark's checkpoint and, for eoslog, by the transactions and the
decision that the cluster has.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from random import Random

from eoslog.client.admin.groups import fetch_committed
from eoslog.client.admin.transaction_states import list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.decision import ANCHOR, Decision, decode
from eoslog.connector.commit.transactional_ids import Sink
from tests.kit.program import Program, plain_python
from tests.soaks.copy_audit import Verdict

_ANCHORS = 8


class Phase(Enum):
    """What the application was doing."""

    STARTING = "starting: no batch of this life"
    BETWEEN = "between batches"
    PLANNED = "planned, nothing written"
    WRITING = "writing, or all written and not decided"
    COMMITTING = "decided, not finished"
    NOTING = "finished, not noted by Spark"
    IN_FLIGHT = "a batch in flight"

    @property
    def in_flight(self) -> bool:
        """Whether a batch was neither unplanned nor noted as done."""
        return self not in (Phase.STARTING, Phase.BETWEEN)


@dataclass(frozen=True)
class Job:
    """What is copied, and how."""

    connector: str
    bootstrap: str
    source: str
    target: str
    checkpoint: Path
    group: str
    batch: int
    jars: str = ""
    java: str = ""

    def command(self) -> list[str]:
        """The application's command line."""
        pairs = {
            "connector": self.connector, "bootstrap": self.bootstrap, "source": self.source,
            "target": self.target, "checkpoint": str(self.checkpoint), "batch": str(self.batch),
            "group": self.group, "jars": self.jars, "java": self.java,
        }  # fmt: skip
        script = str(Path(__file__).with_name("copy_app.py"))
        return [
            sys.executable,
            script,
            *(f"--{name}={value}" for name, value in pairs.items()),
        ]

    def newest(self, log: str) -> int:
        """The newest batch in a log of the checkpoint (offsets, commits); -1: none."""
        with contextlib.suppress(FileNotFoundError):
            return max((int(n) for n in os.listdir(self.checkpoint / log) if n.isdecimal()), default=-1)
        return -1


class Life:
    """One run of the application, from its start to its end or its death."""

    def __init__(self, job: Job, log: Path) -> None:
        self.job, self.log = job, log
        self.began_at = job.newest("offsets")
        self._started, self._started_at = time.monotonic(), time.time()
        self._program = Program(job.command(), log, environment=plain_python())

    @property
    def age(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._program.ended

    @property
    def began_a_batch(self) -> bool:
        """Whether this life has shown itself in the checkpoint: a batch planned or noted, or one replayed."""
        return self.job.newest("offsets") > self.began_at

    def times_of_batches(self) -> list[float]:
        """When batches of this life were planned, in seconds after its start."""
        places = [self.job.checkpoint / "offsets" / str(n) for n in self._planned()]
        return sorted(place.stat().st_mtime - self._started_at for place in places)

    def _planned(self) -> range:
        return range(self.began_at + 1, self.job.newest("offsets") + 1)

    def task_failures(self) -> int:
        """Tasks that failed and were tried again, by its own words. Not those of a life that was killed."""
        return self.log.read_text(errors="replace").count("Lost task ")

    def kill(self, *, workers_too: bool) -> None:
        """SIGKILL to driver and JVM at once. Spark's Python daemon has a group of its own: with
        `workers_too` it dies with them, else its workers live on until they notice."""
        if workers_too:
            self._program.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._program.process.pid, signal.SIGKILL)
        self._program.process.wait()

    def why_stopped(self) -> str:
        """The error in what it wrote, in short."""
        text = self.log.read_text(errors="replace")
        named = re.findall(r"(?:eoslog[\w.]*|connector[\w.]*|StreamingQueryException)[^\n]*", text)
        return (named[-1] if named else text[-500:])[:1500]


def sink_of(job: Job) -> Sink | None:
    """The sink of an eoslog query; None before there is one."""
    try:
        return Sink(Checkpoint.at(str(job.checkpoint)).query_id())
    except CheckpointUnreadable:
        return None


class Watch:
    """What the cluster knows of an eoslog query, and what of it is new since `mark`."""

    def __init__(self, job: Job) -> None:
        self._job = job
        config = ClientConfig(parse_addresses(job.bootstrap), client_id="watch")
        self._cluster = Cluster(config)
        self._old: frozenset[str] = frozenset()
        self._sequence = 0

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def mark(self) -> None:
        """What is there now is old: a life begins."""
        self._old, last = frozenset(self._open()), self._decision()
        self._sequence = last.sequence if last else 0

    def writes(self) -> bool:
        """Whether tasks of this life have transactions open."""
        return not self._open() <= self._old

    def decided(self, batch: int) -> bool:
        """Whether this life has decided the batch, or a later one."""
        last = self._decision()
        return last is not None and last.sequence > self._sequence and last.batch.batch_id >= batch

    def _open(self) -> set[str]:
        sink = sink_of(self._job)
        listed = [] if sink is None else list_transactions(self._cluster, sink.prefix, ["Ongoing"])
        return {listing.transactional_id for listing in listed}

    def _decision(self) -> Decision | None:
        sink = sink_of(self._job)
        if sink is None:
            return None
        places = [(ANCHOR, number) for number in range(_ANCHORS)]
        found = fetch_committed(self._cluster, sink.group, places, require_stable=False)
        return decode(sink, {number: chunk for (_, number), chunk in found.items()})


def phase_of(life: Life, watch: Watch | None) -> Phase:
    """What a life that was just killed was doing."""
    planned, noted = life.job.newest("offsets"), life.job.newest("commits")
    if planned == noted:
        return Phase.BETWEEN if life.began_a_batch else Phase.STARTING
    if watch is None:
        return Phase.IN_FLIGHT if life.began_a_batch else Phase.STARTING
    if watch.decided(planned):
        return Phase.COMMITTING if watch.writes() else Phase.NOTING
    if watch.writes():
        return Phase.WRITING
    return Phase.PLANNED if life.began_a_batch else Phase.STARTING


class Aim(Enum):
    """When to kill: when this is seen of a batch, and a random time later."""

    START = "a random time after the start"
    PLANNED = "a batch is planned"
    WRITING = "a transaction is open"
    DECIDED = "a batch is decided"


def wait_for(aim: Aim, life: Life, watch: Watch | None, batch: int, seconds: float) -> None:
    """Return `seconds` after what is aimed at, or when the life is over. `batch`: the first to look at."""
    while life.exit_code is None and not _seen(aim, life, watch, batch):
        time.sleep(0.005)
    until = time.monotonic() + seconds
    while life.exit_code is None and time.monotonic() < until:
        time.sleep(0.002)


def _seen(aim: Aim, life: Life, watch: Watch | None, batch: int) -> bool:
    if aim is Aim.START:
        return True
    if life.job.newest("offsets") < batch:
        return False
    if aim is Aim.PLANNED or watch is None:
        return True
    return watch.writes() if aim is Aim.WRITING else watch.decided(batch)


# -- a copy that is killed -----------------------------------------------------------------------
# A copy that is killed on its way: start the application, kill it at random moments, start it again.
#
# A plan says how often and when, drawn from a seed; the rest is what the machine makes of it. At the end the
# application runs to its end, undisturbed but for nodes that may die.

START_SECONDS = 8.0
"""Until the first batch of a life, about; kills of the start are spread over it until it is known."""
LIMIT_SECONDS = 1800.0
"""A life that lasts longer hangs."""
SLOW_START = "Python worker failed to connect back"
"""Spark gives a Python process 10 s to start; a machine with much else to do may take longer."""
STOPS = 20
"""A query that stops by itself more often than that will not come to its end."""


@dataclass
class Report:
    """What happened to one copy."""

    kills: Counter[Phase] = field(default_factory=Counter)
    stops: list[str] = field(default_factory=list)
    slow_starts: int = 0
    batches: int = 0
    task_failures: int = 0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def in_flight(self) -> int:
        """Kills with a batch under way."""
        return sum(count for phase, count in self.kills.items() if phase.in_flight)

    def lines(self) -> list[str]:
        """For people."""
        v = self.verdict
        kills = ", ".join(f"{count} {phase.value}" for phase, count in self.kills.most_common())
        return [
            f"{sum(self.kills.values())} kills of the driver, {self.in_flight} in mid-batch ({kills})",
            f"{len(self.stops)} stops of the query by itself, {self.slow_starts} by Spark as the machine was "
            f"slow, {self.task_failures} tasks tried again, {self.batches} batches, {self.seconds:.0f} s",
            f"{v.rows} rows: {v.lost} lost, {v.doubled} doubled, {v.reordered} out of order, "
            f"{v.damaged} damaged; {v.split_keys} keys in several partitions, {v.held_back} partitions held "
            f"back, the group off in {v.group_off}",
            *v.samples,
            *self.stops[:5],
        ]


class Copy:
    """One job and the lives of its application."""

    def __init__(self, job: Job, batches: int, kills: int, seed: int, logs: Path) -> None:
        """`batches`: how many there will be, about; `logs`: a directory for what each life writes."""
        self.job, self.report = job, Report()
        self._batches, self._draw, self._logs = batches, Random(seed), logs
        self._aims = [list(Aim)[at % len(Aim)] for at in range(kills)]
        self._draw.shuffle(self._aims)
        self._watch = Watch(job) if job.connector == "eoslog" else None
        self._lives: list[Life] = []
        self._start_seconds, self._batch_seconds = START_SECONDS, 1.0

    @property
    def watch(self) -> Watch | None:
        """What the cluster knows of the query; None for Spark's own connector."""
        return self._watch

    def run(self) -> Report:
        """Kill as planned, then let it come to its end. Raises RuntimeError if it cannot."""
        began = time.monotonic()
        try:
            for at, aim in enumerate(self._aims):
                self._live_and_die(aim, len(self._aims) - at)
            self._live_to_the_end()
        finally:
            if self._lives and self._lives[-1].exit_code is None:  # interrupted
                self._lives[-1].kill(workers_too=True)
        self.report.batches = self.job.newest("commits") + 1
        self.report.seconds = time.monotonic() - began
        return self.report

    def _life(self) -> Life:
        if self._watch is not None:
            self._watch.mark()
        self._lives.append(Life(self.job, self._logs / f"life-{len(self._lives) + 1}.log"))
        return self._lives[-1]

    def _live_and_die(self, aim: Aim, kills_left: int) -> None:
        life = self._life()
        done = self.job.newest("offsets")
        most = 2 * (self._batches - done) // (kills_left + 1) - 1
        batch = done + self._draw.randint(1, max(1, most))
        wait_for(aim, life, self._watch, batch, self._delay(aim))
        code = life.exit_code
        life.kill(workers_too=self._draw.random() < 0.5)
        self.report.task_failures += life.task_failures()
        if code is not None:  # it was quicker, or has stopped by itself
            self._note_end(life, code)
            if code == 0:
                raise RuntimeError(f"all is copied, and {kills_left} kills are left: make batches smaller")
            self._live_and_die(aim, kills_left)
            return
        phase = phase_of(life, self._watch)
        self.report.kills[phase] += 1
        self._learn(life)
        number = sum(self.report.kills.values())
        print(
            f"  kill {number} after {life.age:.1f} s, batch {self.job.newest('offsets')}: {phase.value}",
            flush=True,
        )

    def _delay(self, aim: Aim) -> float:
        most = {
            Aim.START: self._start_seconds,
            Aim.PLANNED: self._batch_seconds,
            Aim.WRITING: self._batch_seconds / 2,
            Aim.DECIDED: 0.02 if self._watch else self._batch_seconds,
        }
        return self._draw.uniform(0.0, most[aim] if self._watch or aim is Aim.START else self._batch_seconds)

    def _learn(self, life: Life) -> None:
        """How long the start and a batch take, from the times of the checkpoint's files."""
        times = life.times_of_batches()
        if times:
            self._start_seconds = max(times[0], 1.0)
        gaps = [b - a for a, b in pairwise(times)]
        if gaps:
            self._batch_seconds = sorted(gaps)[len(gaps) // 2]

    def _live_to_the_end(self) -> None:
        while True:
            life = self._life()
            while life.exit_code is None:
                if life.age > LIMIT_SECONDS:
                    life.kill(workers_too=True)
                    raise RuntimeError(f"no end after {LIMIT_SECONDS} s: {life.why_stopped()}")
                time.sleep(0.1)
            self.report.task_failures += life.task_failures()
            if life.exit_code == 0:
                return
            self._note_end(life, life.exit_code)

    def _note_end(self, life: Life, code: int) -> None:
        if code != 0 and SLOW_START in life.why_stopped():
            self.report.slow_starts += 1
        elif code != 0:
            self.report.stops.append(life.why_stopped())
            print(f"  the query stopped by itself ({life.log}): {life.why_stopped()}", flush=True)
        if len(self.report.stops) + self.report.slow_starts > STOPS:
            raise RuntimeError(f"the query stops again and again: {life.why_stopped()}")
