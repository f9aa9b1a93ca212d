"""Spark in a soak: one application that goes on from round to round, and is started anew when it dies."""

from __future__ import annotations

import contextlib
import signal
import time
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.connector.spark_application import Application
from tests.kills.kill_query import Job, Life, clients
from tests.kit.spark_app import READY, Answers

MASTER = "local-cluster[2,1,1024]"
STOP_SECONDS = 120.0
UNBORN = 3
"""How often in a row it may die before it is up."""
AGAIN_SECONDS = 3.0
"""A query that was not up yet has not heard that it shall stop: it is told again."""


class Spark:
    """The application, whichever life it is in."""

    def __init__(self, folder: Path, master: str = MASTER) -> None:
        self._folder, self._master = folder, master
        folder.mkdir()
        self._application: Application | None = None
        self._lives, self._unborn, self._numbers = 0, 0, count()
        self._answers = Answers(folder)

    @property
    def life(self) -> int:
        """The number of the application's present life; it is started if it does not run."""
        if self._application is None or self._application.ended is not None:
            self._unborn = 0 if self._lives == 0 or self.ready else self._unborn + 1
            if self._unborn > UNBORN:
                raise RuntimeError(f"Spark does not start: {self._application and self._application.tail()}")
            self._lives += 1
            place = self._folder / f"application-{self._lives}"
            self._answers = Answers(place)
            self._application = Application(place, "tests.kills.kill_spark_app", self._master, place)
        return self._lives

    @property
    def application(self) -> Application:
        """It, alive."""
        assert self.life and self._application is not None
        return self._application

    def tell(self, command: dict[str, Any]) -> None:
        """Start or stop a query."""
        self.application.tell(command)

    def number(self) -> int:
        """Of the next life of a query."""
        return next(self._numbers)

    def answer(self, number: int) -> str | None:
        """How a query's life ended, once it has."""
        answer = self._answers.of(number)
        return answer and (answer[0] or "stopped")

    @property
    def ready(self) -> bool:
        """Whether its session is up."""
        return (self._folder / f"application-{self._lives}" / READY).exists()

    def kill(self) -> str | None:
        """SIGKILL to the driver's JVM and all that belongs to it; None if it is not up yet."""
        if not self.ready:
            return None
        self.application.kill()
        return "the whole application"

    def kill_executor(self, draw: Random) -> str | None:
        """SIGKILL to an executor's JVM; what it was doing: running tasks, or not."""
        found = []
        for process in self.application.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                    found.append(process)
        if not found:
            return None
        with contextlib.suppress(psutil.NoSuchProcess):
            draw.choice(found).kill()
            return "an executor of two"
        return None

    def close(self) -> None:
        """End it."""
        if self._application is not None:
            self._application.kill()


class SparkRunning:
    """A query in the application that was started; what kill_query.Running is for a process."""

    def __init__(self, spark: Spark, job: Job, life: Life) -> None:
        self._spark, self.life = spark, life
        self._number, self._of = spark.number(), spark.life
        self._stops_at: float | None = None
        options = {"kafka.bootstrap.servers": job.ways[0], **clients(job)}
        write = {"kafka.bootstrap.servers": job.ways[0], "topic": job.target, **job.options}
        if job.kind != "spark-tokens":
            write |= {"kafka.group.id": job.group, "checkpointLocation": str(life.checkpoint)}
        read = {
            **options, "subscribe": job.source, "includeHeaders": "true", "kafka.group.id": job.group,
            "kafka.isolation.level": "read_committed", "startingOffsets": life.starting,
        }  # fmt: skip
        spark.tell(
            {
                "life": self._number, "name": job.name, "kind": job.kind, "steps": str(job.steps),
                "checkpoint": str(life.checkpoint), "read": read, "write": write,
            }
        )  # fmt: skip

    @property
    def ended(self) -> str | None:
        """How it ended: "stopped", "killed", or what it raised. None while it runs."""
        if self._spark.life != self._of:
            return "killed"
        said = self._spark.answer(self._number)
        if said is None and self._stops_at is not None and time.monotonic() > self._stops_at:
            self.send(signal.SIGTERM)
        return said

    def send(self, number: signal.Signals) -> None:
        """query.stop(), in the middle of whatever it does."""
        if number in (signal.SIGTERM, signal.SIGUSR1):
            self._stops_at = time.monotonic() + AGAIN_SECONDS
            self._spark.tell({"life": self._number})

    def kill(self) -> None:
        """A query cannot be killed without its application: it is stopped, and waited for."""
        self.send(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.ended is None:
            if time.monotonic() > deadline:
                self._spark.close()
            time.sleep(0.05)
