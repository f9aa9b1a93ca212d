"""The application of a copy soak as a tree of processes that is started, watched and killed.

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
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from eoslog.client.admin.group_offsets import fetch_committed
from eoslog.client.admin.transaction_states import list_transactions
from eoslog.client.wire.cluster import Cluster
from eoslog.client.wire.config import ClientConfig, parse_addresses
from eoslog.connector.checkpoint.checkpoint import Checkpoint, CheckpointUnreadable
from eoslog.connector.commit.decision import ANCHOR, Decision, decode
from eoslog.connector.commit.transactional_ids import Sink
from tests.kit.program import Program, plain_python

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
