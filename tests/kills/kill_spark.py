"""Spark in a soak: one application that goes on from round to round, and is started anew when it dies."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tests.connector.spark_application import Application
from tests.kills.kill_noted import OF, STEPS, NotedSource
from tests.kills.kill_query import BATCH, MARK, Job, Life, clients
from tests.kit.spark_app import READY, Answers, Queries, lines, session
from tests.spark_session import QUICK_START

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
            self._application = Application(place, "tests.kills.kill_spark", self._master, place)
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


# -- the application -----------------------------------------------------------------------------
# The Spark application of a soak: queries are started and stopped as it is told on its standard input.
#
# Each command has the number of a query's life (kit/spark_app.py). Arguments: master, folder.

_SETTINGS = {
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.task.maxFailures": "4",
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.python.worker.idleTimeoutSeconds": "0",
}
TRIGGER = "300 milliseconds"


def rows(spark: SparkSession, job: dict[str, Any]) -> DataFrame:
    """The source with the query's own header. `dedup` reads a topic that has every row twice."""
    read = spark.readStream.format("eoslog_noted").options(**job["read"]).load()
    found = read.select("key", "value", "headers")
    if job["kind"] == "spark-dedup":
        found = found.dropDuplicates(["key", "value", "headers"])
    mark = F.array(F.struct(F.lit(MARK).alias("key"), F.lit(job["name"]).cast("binary").alias("value")))
    headers = F.when(F.col("headers").isNull(), mark).otherwise(F.concat("headers", mark))
    return found.withColumn("headers", headers)


def start(spark: SparkSession, job: dict[str, Any]) -> StreamingQuery:
    """Streams by the sink; `tokens` by `foreachBatch` and a token for each batch."""
    given = {**job["write"], STEPS: job["steps"], OF: job["name"]}
    job["read"] |= {STEPS: job["steps"], OF: job["name"], "maxOffsetsPerTrigger": str(BATCH)}
    writer = rows(spark, job).writeStream.option("checkpointLocation", job["checkpoint"])
    writer = writer.trigger(processingTime=TRIGGER)
    if job["kind"] != "spark-tokens":
        return writer.format("eoslog_noted").options(**given).start()

    def write(batch_rows: DataFrame, batch: int) -> None:
        options = given | {"write.token": f"{Path(job['checkpoint']).name}-{batch}"}
        batch_rows.write.format("eoslog_noted").options(**options).mode("append").save()

    return writer.foreachBatch(write).start()


def main(master: str, place: str) -> None:
    spark = session(master, "soak-kill", "ERROR", _SETTINGS)
    spark.dataSource.register(NotedSource)
    queries = Queries(Path(place))
    for told in lines():
        if "name" in told:
            queries.start(told["life"], partial(start, spark, told))
        else:
            queries.stop(told["life"])


if __name__ == "__main__":
    main(*sys.argv[1:])
