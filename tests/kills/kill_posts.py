"""Who keeps a query running: starts it again when it has died, and judges what it said when it stopped."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.kills.kill_query import Job, Life, Running, newest
from tests.kills.kill_spark import SparkRunning

PASSING = (
    "BatchRefused",
    "OutcomeUnknown",
    "Unfinished",
    "BrokerUnreachable",
    "ConnectionLost",
    "RetriesExhausted",
    "RefusedByBroker",
    "ProduceFailed",
    "CommitFault",
)
"""A query that stops with one of these is started again: brokers die here, and networks."""
CLOCKS = (0.0, 0.0, 0.0, 86_400.0, -86_400.0)
"""By how many seconds a driver's wall clock is wrong."""
OF_TWO_DRIVERS = ("SinkFenced", "TakenOver", "Concurrent update to the log")
"""What a driver may say that has been replaced, or is replaced just now."""
OF_DEATHS = (
    "was killed",
    "Python worker",
    "EOFException",
    "SocketException",
    "Connection reset",
    "Broken pipe",
    "PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR",
    "Job aborted due to stage failure",
    "SparkContext was shut down",
    "executor",
)
"""What Spark, or the soak's own driver, says where processes of a query have died."""
CHECKPOINT_WRONG = ("CheckpointMismatch", "CheckpointOlder", "DecisionGone", "StartsElsewhere")
"""What a query has to say whose checkpoint is not that of its last run, or begins where another query has
gone on meanwhile; the way out is a hand-over."""
SERIOUS = (
    *CHECKPOINT_WRONG,
    "SinkChanged",
    "ParticipantsLost",
    "MarkersMissing",
    "ReplayDiffers",
    "DecisionDamaged",
    "DataLoss",
    "WrongCluster",
    "OptionError",
    "SchemaError",
)
"""Errors that nothing done here excuses, but for those of a restored checkpoint."""


def kind_of(said: str) -> str:
    """What an error is, whoever carries it: the class of eoslog's, or what Spark says of dead processes."""
    for kind in (*SERIOUS, *OF_TWO_DRIVERS, *PASSING, *OF_DEATHS):
        if kind in said:
            return kind
    return said.split(":")[0]


def passes(kind: str) -> bool:
    """Whether the query is just started again."""
    return kind in (*PASSING, *OF_TWO_DRIVERS, *OF_DEATHS)


class Found(AssertionError):
    """Something is wrong with the product: the soak stops."""


@dataclass
class Tally:
    """What was done to the queries of a soak, and what they said."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    acts: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    batches: int = 0
    rows: int = 0

    def add(self, other: Tally) -> None:
        """Count another round's with these."""
        self.kills += other.kills
        self.acts += other.acts
        self.stops += other.stops
        self.lives += other.lives
        self.batches += other.batches
        self.rows += other.rows

    def of(self, kind: str) -> int:
        """How many of a kind were killed."""
        return sum(count for (whose, _), count in self.kills.items() if whose == kind)

    @property
    def killed(self) -> int:
        """All that got a SIGKILL, and each power loss."""
        return sum(self.kills.values())

    def kinds(self) -> str:
        """How many of each kind were killed."""
        return ", ".join(f"{self.of(kind)} {kind}" for kind in sorted({kind for kind, _ in self.kills}))

    def lines(self) -> list[str]:
        """For people, and for docs/soaks.md: who was killed at which step, and what else was done."""
        moments = sorted(self.kills.items(), key=lambda item: (item[0][0], -item[1]))
        return [
            f"{self.killed} kills: {self.kinds()}; {self.lives} lives of drivers, {self.batches} batches, "
            f"{self.rows} rows read by the auditor",
            *(f"| {kind} | {step} | {times} |" for (kind, step), times in moments),
            *(f"| act | {act} | {times} |" for act, times in self.acts.most_common()),
            *(f"| stop | {stop} | {times} |" for stop, times in self.stops.most_common()),
        ]


class Post:
    """One query and the drivers that run it, one at a time but for those that were taken for dead."""

    def __init__(
        self,
        job: Job,
        draw: Random,
        tally: Tally,
        begin: Callable[[Job, Life], Running | SparkRunning],
        clocks: Sequence[float] = CLOCKS,
    ) -> None:
        """`begin`: what starts a driver of the job. `clocks`: by how many seconds a driver's may be wrong."""
        self._clocks = clocks
        self.job, self._draw, self._tally, self._begin = job, draw, tally, begin
        self._checkpoints = 0
        self.checkpoint = job.folder / f"{job.name}-0"
        self._starting = "earliest"
        self._older: list[Path] = []  # checkpoints before a hand-over that has not committed yet
        self.running: Running | SparkRunning | None = None
        self.others: list[
            Running | SparkRunning
        ] = []  # taken for dead, or not told yet that they are replaced
        self._not_before = 0.0
        self._restored = self._ground_lost = False
        self.loud = False
        """Whether it has said that the broker was restored."""
        self._wanted = True

    # -- lives --------------------------------------------------------------------------------

    def start(self) -> None:
        """A new driver."""
        wrong = 0.0 if self.job.kind.startswith("spark") else self._draw.choice(self._clocks)
        life = Life(self.checkpoint, self._starting, self._draw.randrange(1 << 30), wrong)
        if life.clock:
            self._tally.acts["a driver's clock is a day off"] += 1
        self.running = self._begin(self.job, life)
        self._tally.lives += 1

    def look(self) -> None:
        """Start it again if it has ended. Raises Found."""
        self.others = [one for one in self.others if not self._is_over(one)]
        if self.running is None:
            if self._wanted and time.monotonic() >= self._not_before:
                self.start()
            return
        said = self.running.ended
        if said is None:
            return
        ended, self.running = self.running, None
        self._not_before = time.monotonic() + self._draw.uniform(0, 0.3)
        if said not in ("killed", "stopped"):
            self._judge(said, ended)

    def _is_over(self, one: Running | SparkRunning) -> bool:
        said = one.ended
        if said is not None and said not in ("killed", "stopped"):
            kind = kind_of(said)
            if not passes(kind) and kind not in CHECKPOINT_WRONG:
                raise Found(f"{self.job.name}: a driver that was replaced said: {said}")
            self._tally.stops[f"{kind} (replaced)"] += 1
        return said is not None

    def _judge(self, said: str, ended: Running | SparkRunning) -> None:
        kind = kind_of(said)
        self._tally.stops[kind] += 1
        if self._ground_lost and not passes(kind):
            self.loud, self._wanted = True, False
            self._tally.acts[f"broker restored: {kind}"] += 1
            return
        expected = self._restored or kind == "StartsElsewhere"
        if kind in CHECKPOINT_WRONG and expected:
            self._tally.acts[f"stopped by {kind}, handed over"] += 1
            self.hand_over(stop=True)
        elif "has committed no offset" in said and self._older:
            self.checkpoint, self._starting = self._older.pop(), "earliest"
        elif not passes(kind):
            raise Found(f"{self.job.name} stopped: {said} ({ended.life})")

    def wanted(self, wanted: bool) -> None:
        """Whether it shall run."""
        self._wanted = wanted

    # -- what is done to it --------------------------------------------------------------------

    def replace(self) -> bool:
        """Its driver is taken for dead and another one is started beside it."""
        if self.running is None:
            return False
        self.others.append(self.running)
        self.start()
        return True

    def hand_over(self, *, stop: bool) -> None:
        """A new checkpoint that begins where the group stands; the old driver lives on, or not (`stop`)."""
        self._older = [] if self.has_noted else [self.checkpoint]
        self._checkpoints += 1
        self.checkpoint = self.job.folder / f"{self.job.name}-{self._checkpoints}"
        self._starting, self._restored = "committed", False
        if stop or self.running is None:
            self.kill()
            return
        self.others.append(self.running)
        self.start()

    def restore(self, copy: Path) -> None:
        """The checkpoint is that of an older copy."""
        self.kill()
        shutil.rmtree(self.checkpoint)
        shutil.copytree(copy, self.checkpoint)
        self._restored = True

    def ground_lost(self) -> None:
        """The broker was restored from an older copy: it has to stop, and say why."""
        self._ground_lost = self._wanted = True

    def copy(self, to: Path) -> None:
        """Copy its checkpoint: the log of commits first, so that no batch is noted and not planned."""
        for part in ("metadata", "commits", "offsets"):
            place = self.checkpoint / part
            if place.is_dir():
                shutil.copytree(place, to / part, ignore=shutil.ignore_patterns(".*"))
            elif place.exists():
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy(place, to / part)

    def kill(self) -> None:
        """SIGKILL to the driver that runs."""
        if self.running is not None:
            self.running.kill()
            self.running = None

    def stop(self, number: signal.Signals) -> None:
        """query.stop(): after the batch (SIGTERM), or in the middle of it (SIGUSR1)."""
        self._wanted = False
        for one in (self.running, *self.others):
            if one is not None:
                one.send(number)

    @property
    def over(self) -> bool:
        """Whether no driver of it lives."""
        return self.running is None and not self.others

    @property
    def has_noted(self) -> bool:
        """Whether a batch is noted in the checkpoint that is in use."""
        return newest(self.checkpoint, "commits") >= 0

    def at_end(self, ends: dict[str, int]) -> bool:
        """Whether every batch that is planned is noted, and the last one ends there."""
        last = newest(self.checkpoint, "commits")
        if last < 0 or newest(self.checkpoint, "offsets") != last:
            return False
        offset = json.loads((self.checkpoint / "offsets" / str(last)).read_text().splitlines()[2])
        return bool(offset[self.job.source] == ends)

    def batches(self) -> int:
        """How many are noted, of all its checkpoints together."""
        places = [self.job.folder / f"{self.job.name}-{number}" for number in range(self._checkpoints + 1)]
        return sum(newest(place, "commits") + 1 for place in places)
