"""A copy that is killed on its way: start the application, kill it at random moments, start it again.

A plan says how often and when, drawn from a seed; the rest is what the machine makes of it. At the end the
application runs to its end, undisturbed but for nodes that may die.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

from tests.soaks.copy_audit import Verdict
from tests.soaks.copy_lives import Aim, Job, Life, Phase, Watch, phase_of, wait_for

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
